//! Steering of a real interface: programs loaded, maps filled, everything attached, and everything
//! gone again with the process.
//!
//! Always true: attached is only by links that this process holds, so that its death, by any signal,
//! detaches everything; nothing is pinned. The sockets and the backlogs are heard before the first
//! packet is steered.
//! Elsewhere: the programs (`rxsteer-ebpf`); the decision (`rxsteer-core`).

mod answers;
mod backlogs;
mod beside;
mod change;
mod check;
mod counters;
mod cpus;
mod error;
mod generation;
mod handover;
mod holders;
mod interface;
mod local;
mod maps;
mod memory;
mod own;
mod peer;
mod settings;
mod status;

use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::linux::fs::MetadataExt as _;
use std::time::Duration;

use aya::util::KernelVersion;
use rxsteer_core::hash::SoftHasher;
use rxsteer_core::table::Epoch;
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_ebpf::{Config, MAX_CPUS, program};

pub use change::Change;
pub use check::{Finding, Weight, check_attachment, look_at_interface};
pub use counters::{Answers, Counters, CpuCounters};
pub use error::AttachError;
pub use handover::Handover;
pub use holders::{Holder, holders};
pub use interface::{AttachedMode, OnInterface, lists_programs, programs_on_interfaces};
pub use own::KernelSteering;
pub use settings::{LivePolicy, Mode, NoSuchChoice, Settings};
pub use status::{Status, StatusError, status};

use crate::{host_cpus, link, missing_capabilities};
use backlogs::Backlogs;
use generation::{MapFds, Programs, cgroup_root};
use interface::index_of;
use maps::{Maps, in_map};

/// An interface whose packets are steered, until this is dropped or its process ends.
pub struct Attachment {
    settings: Settings,
    index: u32,
    /// Number of the network namespace of the interface.
    namespace: u32,
    mode: AttachedMode,
    hears_close: bool,
    maps: Maps,
    /// The programs that this process loaded; none yet while it takes over from another.
    programs: Option<Programs>,
    fds: MapFds,
    backlogs: Backlogs,
    /// The packed list that queues spread over.
    list: Vec<CpuId>,
    /// CPUs of the list of before where packets may wait, and whether they were seen at rest once.
    pending: Vec<(CpuId, bool)>,
    /// Detaches the interface first.
    link: Option<OwnedFd>,
    /// Holds the program that sees answers, if there is one.
    answers: Option<OwnedFd>,
    swept: usize,
}

impl Attachment {
    /// Attaches to an interface of the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`AttachError`], with the step that failed; nothing is attached then.
    pub fn new(settings: Settings) -> Result<Self, AttachError> {
        check(&settings)?;
        let index = free_interface(&settings.interface)?;
        Self::begin(settings, index, |programs, settings| attach_xdp(programs, settings, index))
    }

    /// Begins anew; `attach` puts the program on the interface.
    fn begin(
        settings: Settings,
        index: u32,
        attach: impl FnOnce(&mut Programs, &Settings) -> Result<(OwnedFd, AttachedMode), AttachError>,
    ) -> Result<Self, AttachError> {
        let namespace = namespace_number();
        let mut programs = Programs::prepare(&settings, namespace, &MapFds::default(), &[])?;
        let fds = programs.load()?;
        let config = Config {
            hasher: match settings.hasher {
                Some(hasher) => hasher,
                None => random()?,
            },
            tcp_buckets: settings.buckets(),
            udp_buckets: settings.buckets(),
            aware: settings.aware,
        };
        let list = list_of(settings.policy, &settings.cpus);
        fds.tell(&config, &list, &[])?;
        let mut backlogs = Backlogs::new(&fds, Vec::new())?;
        backlogs.let_in(&mut programs, &settings.cpus, settings.queue_packets)?;
        if settings.policy != LivePolicy::None {
            backlogs.hear(&mut programs)?;
        }
        let hears_close = programs.hear_sockets(settings.policy)?;
        let mut maps = fds.maps()?;
        maps.begin(&settings)?;
        let answers = answers::hear(&mut programs, &fds, &settings, index)?;
        let (link, mode) = attach(&mut programs, &settings)?;
        Ok(Self {
            settings,
            index,
            namespace,
            mode,
            hears_close,
            maps,
            programs: Some(programs),
            fds,
            backlogs,
            list,
            pending: Vec::new(),
            link: Some(link),
            answers,
            swept: 0,
        })
    }

    /// Returns what it was told.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns how the program is attached.
    pub fn mode(&self) -> AttachedMode {
        self.mode
    }

    /// Returns whether the interface is still there. When it is removed, or moved to another namespace,
    /// the kernel ends the attachment without a word.
    pub fn has_interface(&self) -> bool {
        // Of an interface that is not there, nix 0.31 gives an empty name instead of the error.
        nix::net::if_::if_indextoname(self.index).is_ok_and(|name| !name.is_empty())
    }

    /// Returns whether a UDP flow is withdrawn when its socket closes. Without a cgroup hierarchy of
    /// version 2, whose root tells of that, it grows old instead.
    pub fn hears_close(&self) -> bool {
        self.hears_close
    }

    /// Returns what was counted.
    ///
    /// # Errors
    /// [`AttachError::Map`].
    pub fn counters(&self) -> Result<Counters, AttachError> {
        self.maps.counters()
    }

    /// Returns the number of flows in the tables, of TCP and of UDP; reads both tables.
    pub fn flows(&self) -> [usize; 2] {
        self.maps.flows().tables().map_or([0; 2], |tables| tables.map(|table| table.count()))
    }

    /// Returns the number of local UDP ports, and addresses with one, whose readers are known.
    pub fn ports(&self) -> usize {
        self.maps.ports().table().map_or(0, |table| table.count())
    }

    /// Does what must be done from time to time, at least once in two minutes: takes flows and ports out
    /// that nobody has confirmed for long, a part of the tables each time, tells the programs of new
    /// addresses of this host, if called in the interface's namespace, and ends what a change has
    /// begun. Returns how many were taken out.
    pub fn maintain(&mut self) -> usize {
        if namespace_number() == self.namespace {
            // What the kernel does not tell now it may tell the next time.
            let _ = self.maps.tell_addresses();
        }
        self.maps.tidy();
        /// Buckets a turn: 64 turns for the usual tables.
        const TURN: usize = 1024;
        self.settle();
        let Some(tables) = self.maps.flows().tables() else { return 0 };
        let now = Epoch::from_ns(monotonic_ns());
        let most = tables.iter().map(|table| table.geometry().buckets()).max().unwrap_or(1);
        let count = TURN.max(most / 64);
        let removed =
            tables.map(|table| table.sweep(self.swept % table.geometry().buckets(), count, now));
        self.swept = self.swept.wrapping_add(count);
        let ports = self
            .maps
            .ports()
            .table()
            .map_or(0, |table| table.sweep(self.swept % table.geometry().buckets(), TURN, now));
        removed.iter().sum::<usize>() + ports
    }

    /// Sends packets of a CPU that cannot carry them to one beside it, as a trial, and home again
    /// ([`Settings::beside`]). To be called some twenty times a second; does nothing more often than that.
    pub fn relieve(&mut self) {
        if !self.settings.beside || self.settings.policy != LivePolicy::FlowAware {
            self.backlogs.come_home();
        } else if self.backlogs.may_relieve()
            && let (Ok(done), Ok(shed)) = (self.maps.heard(), self.maps.shed())
        {
            self.backlogs.relieve(done, shed);
        }
    }

    fn link(&self) -> BorrowedFd<'_> {
        self.link.as_ref().expect("taken only when this is dropped").as_fd()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // First no packet is steered any more; then the CPUMAP hands on what waits and goes.
        drop(self.link.take());
    }
}

fn check(settings: &Settings) -> Result<(), AttachError> {
    let missing = missing_capabilities();
    if !missing.is_empty() {
        return Err(AttachError::Rights(missing));
    }
    if settings.cpus.is_empty() {
        return Err(AttachError::NoCpu);
    }
    let setting = |name, value, allowed: RangeInclusive<u32>| {
        if allowed.contains(&value) {
            Ok(())
        } else {
            Err(AttachError::Setting { name, value, allowed })
        }
    };
    setting("queue packets", settings.queue_packets, Settings::ALLOWED_PACKETS)?;
    setting("table entries", settings.table_entries, Settings::ALLOWED_ENTRIES)?;
    let last = settings.cpus.last().map_or(0, |cpu| u32::from(cpu.0));
    setting("the highest CPU", last, 0..=MAX_CPUS as u32 - 1)
}

/// Returns the number of an interface on which no XDP program is.
fn free_interface(name: &str) -> Result<u32, AttachError> {
    let index = index_of(name).ok_or_else(|| AttachError::NoInterface(name.to_owned()))?;
    let there = programs_on_interfaces().map_err(AttachError::Netlink)?;
    match there.into_iter().find(|this| this.interface == name) {
        Some(on) => Err(AttachError::Occupied { holders: holders(on.id), on }),
        None => Ok(index),
    }
}

/// Attaches the program that steers, in the first of the modes that the interface takes.
fn attach_xdp(
    programs: &mut Programs,
    settings: &Settings,
    index: u32,
) -> Result<(OwnedFd, AttachedMode), AttachError> {
    if KernelVersion::current().is_ok_and(|version| version < KernelVersion::new(5, 9, 0)) {
        return Err(AttachError::NoLinks);
    }
    let program = programs.fd(program::STEER).map_err(in_map(program::STEER))?;
    let mut said = AttachError::NoLinks;
    for mode in [AttachedMode::Native, AttachedMode::Skb] {
        if !settings.mode.allows(mode) {
            continue;
        }
        let is_native = mode == AttachedMode::Native;
        match link::attach_xdp(&program, index, is_native) {
            Ok(link) => return Ok((link, mode)),
            Err(error) => {
                let interface = settings.interface.clone();
                let mode = if is_native { "native" } else { "skb" };
                said = AttachError::Attach { interface, mode, said: error };
            }
        }
    }
    Err(said)
}

/// Returns the packed list of CPUs that all queues spread over.
fn list_of(policy: LivePolicy, cpus: &CpuSet) -> Vec<CpuId> {
    if policy == LivePolicy::None { Vec::new() } else { cpus.iter().collect() }
}

/// Returns the CPUs that are online; those that were asked for if the kernel does not list them.
fn online_cpus(asked: &CpuSet) -> CpuSet {
    host_cpus().map_or(*asked, |host| host.online)
}

/// Returns the number of the network namespace of the calling thread; 0 if it is not told.
fn namespace_number() -> u32 {
    std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |about| about.st_ino() as u32)
}

fn random() -> Result<SoftHasher, AttachError> {
    let word = || getrandom::u64().map_err(|error| AttachError::Random(error.into()));
    Ok(SoftHasher { k0: word()?, k1: word()? })
}

/// Returns the clock that the programs read.
fn monotonic_ns() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    let time = Duration::from(time.expect("this clock is always there"));
    time.as_nanos() as u64
}

/// Returns the CPUs of the mask of a queue, as it stands in the map.
fn cpus_of(mask: &[u16; 2 + MAX_CPUS]) -> Vec<CpuId> {
    mask[2..].iter().take(usize::from(mask[0])).map(|cpu| CpuId(*cpu)).collect()
}
