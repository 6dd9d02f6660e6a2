//! Steering of a real interface: programs loaded, maps filled, everything attached, and everything
//! gone again with the process.
//!
//! Always true: attached is only by links that this process holds, so that its death, by any signal,
//! detaches everything; nothing is pinned. The sockets and the backlogs are heard before the first
//! packet is steered.
//! Elsewhere: the programs (`rxsteer-ebpf`); the decision (`rxsteer-core`).

mod check;
mod counters;
mod error;
mod interface;
mod maps;
mod memory;
mod settings;
mod status;

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::linux::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use aya::Ebpf;
use aya::maps::{Array, CpuMap, MapData};
use aya::programs::links::FdLink;
use aya::programs::{CgroupAttachMode, Program, ProgramError, ProgramFd, XdpMode};
use rxsteer_core::CpuId;
use rxsteer_core::hash::SoftHasher;
use rxsteer_core::table::Epoch;
use rxsteer_ebpf::{Config, MAX_CPUS, MAX_QUEUES, cpu_state, map, program};

pub use check::{Finding, Weight, check_attachment, look_at_interface};
pub use counters::{Counters, CpuCounters};
pub use error::AttachError;
pub use interface::{AttachedMode, OnInterface, programs_on_interfaces};
pub use settings::{LivePolicy, Mode, NoSuchChoice, Settings};
pub use status::{Status, StatusError, status};

use crate::load::{self, Sizes};
use crate::{OBJECT, missing_capabilities};
use interface::index_of;
use maps::{Maps, in_map};

/// An interface whose packets are steered, until this is dropped or its process ends.
pub struct Attachment {
    settings: Settings,
    index: u32,
    mode: AttachedMode,
    hears_close: bool,
    maps: Maps,
    /// Keeps all other programs and their links.
    _ebpf: Ebpf,
    /// Detaches the interface first.
    link: Option<FdLink>,
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
        let mut ebpf = prepare(&settings)?;
        load_all(&mut ebpf)?;
        fill(&mut ebpf, &settings)?;
        attach_events(&mut ebpf, settings.policy)?;
        let hears_close = settings.policy == LivePolicy::FlowAware && attach_release(&mut ebpf)?;
        let maps = Maps::open(|name| take(&mut ebpf, name))?;
        let (link, mode) = attach_xdp(&mut ebpf, &settings, index)?;
        Ok(Self {
            settings,
            index,
            mode,
            hears_close,
            maps,
            _ebpf: ebpf,
            link: Some(link),
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

    /// Does what must be done from time to time, at least once in two minutes: takes flows out that
    /// nobody has confirmed for long, a part of the tables each time. Returns how many.
    pub fn maintain(&mut self) -> usize {
        /// Buckets a turn: 64 turns for the usual tables.
        const TURN: usize = 1024;
        let Some(tables) = self.maps.flows().tables() else { return 0 };
        let now = Epoch::from_ns(monotonic_ns());
        let most = tables.iter().map(|table| table.geometry().buckets()).max().unwrap_or(1);
        let count = TURN.max(most / 64);
        let removed =
            tables.map(|table| table.sweep(self.swept % table.geometry().buckets(), count, now));
        self.swept = self.swept.wrapping_add(count);
        removed.iter().sum()
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
        Some(other) => Err(AttachError::Occupied(other)),
        None => Ok(index),
    }
}

fn prepare(settings: &Settings) -> Result<Ebpf, AttachError> {
    let sizes = Sizes {
        buckets: 2 * settings.buckets(),
        cpus: settings.cpus.last().map(|cpu| u32::from(cpu.0) + 1),
        sockets: Some(2 * settings.table_entries.max(512)),
    };
    let namespace = if settings.all_namespaces { 0 } else { namespace_number() };
    let prepared = load::prepare(OBJECT, sizes, load::offsets()?, namespace);
    prepared.map_err(|error| AttachError::Object(Box::new(error)))
}

/// Loads the programs of an attachment into the kernel.
fn load_all(ebpf: &mut Ebpf) -> Result<(), AttachError> {
    let btf = aya::Btf::from_sys_fs()?;
    let events = program::EVENTS.map(|(name, _)| name);
    for name in [program::STEER, program::TAKEN, program::RELEASED].into_iter().chain(events) {
        load::load(of_name(ebpf, name), name, Some(&btf)).map_err(|source| AttachError::Load {
            name: name.to_owned(),
            source: Box::new(source),
        })?;
    }
    Ok(())
}

/// Writes the settings and the CPUs into the maps.
fn fill(ebpf: &mut Ebpf, settings: &Settings) -> Result<(), AttachError> {
    let [k0, k1] = random()?;
    let config = Config {
        hasher: SoftHasher { k0, k1 },
        tcp_buckets: settings.buckets(),
        udp_buckets: settings.buckets(),
        aware: settings.aware,
    };
    set(ebpf, map::CONFIG, 0, config.to_words())?;

    let mut mask = [0u16; 2 + MAX_CPUS];
    if settings.policy != LivePolicy::None {
        mask[0] = settings.cpus.count() as u16;
        for (place, cpu) in mask[2..].iter_mut().zip(settings.cpus.iter()) {
            *place = cpu.0;
        }
    }
    for queue in 0..MAX_QUEUES {
        set(ebpf, map::QUEUES, queue, mask)?;
    }

    let taken = fd(ebpf, program::TAKEN).map_err(in_map(map::CPUS))?;
    let cpus = ebpf.map_mut(map::CPUS).ok_or_else(|| no_map(map::CPUS))?;
    let mut cpus = CpuMap::try_from(cpus).map_err(in_map(map::CPUS))?;
    for cpu in settings.cpus.iter() {
        let entry = cpus.set(u32::from(cpu.0), settings.queue_packets, Some(&taken), 0);
        entry.map_err(in_map(map::CPUS))?;
    }
    for cpu in settings.cpus.iter() {
        let mut state = [0u64; cpu_state::WORDS];
        state[cpu_state::ONLINE] = 1;
        set(ebpf, map::CPU_STATES, u32::from(cpu.0), state)?;
    }
    let id = match ebpf.map(map::CPUS) {
        Some(aya::maps::Map::CpuMap(data)) => data.info().map_err(in_map(map::CPUS))?.id(),
        _ => return Err(no_map(map::CPUS)),
    };
    set(ebpf, map::IDS, 0, id)
}

/// Attaches the programs on tracepoints that the policy needs.
fn attach_events(ebpf: &mut Ebpf, policy: LivePolicy) -> Result<(), AttachError> {
    let count = match policy {
        LivePolicy::FlowAware => program::EVENTS.len(),
        LivePolicy::Rps => program::BACKLOG_EVENTS,
        LivePolicy::None => 0,
    };
    for (name, event) in &program::EVENTS[..count] {
        let attached = match of_name(ebpf, name) {
            Program::BtfTracePoint(program) => program.attach().map(drop),
            _ => Err(ProgramError::UnexpectedProgramType),
        };
        attached.map_err(|source| AttachError::Event {
            name,
            place: format!("the tracepoint {event}"),
            source: Box::new(source),
        })?;
    }
    Ok(())
}

/// Attaches the program that hears of closed sockets; `false` if there is no cgroup to attach it to.
fn attach_release(ebpf: &mut Ebpf) -> Result<bool, AttachError> {
    let Some(root) = cgroup_root() else { return Ok(false) };
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| AttachError::Event {
        name: program::RELEASED,
        place: format!("the cgroup {}", root.display()),
        source,
    };
    let cgroup = File::open(&root).map_err(|error| failed(Box::new(error)))?;
    let attached = match of_name(ebpf, program::RELEASED) {
        // A link takes no mode, and is always one of several.
        Program::CgroupSock(program) => program.attach(cgroup, CgroupAttachMode::Single).map(drop),
        _ => Err(ProgramError::UnexpectedProgramType),
    };
    attached.map_err(|error| failed(Box::new(error)))?;
    Ok(true)
}

/// Attaches the program that steers, in the first of the modes that the interface takes.
fn attach_xdp(
    ebpf: &mut Ebpf,
    settings: &Settings,
    index: u32,
) -> Result<(FdLink, AttachedMode), AttachError> {
    const NATIVE: (XdpMode, AttachedMode) = (XdpMode::Driver, AttachedMode::Native);
    const SKB: (XdpMode, AttachedMode) = (XdpMode::Skb, AttachedMode::Skb);
    let modes = match settings.mode {
        Mode::Auto => vec![NATIVE, SKB],
        Mode::Native => vec![NATIVE],
        Mode::Skb => vec![SKB],
    };
    let mut said = Err(AttachError::NoLinks);
    for (flags, mode) in modes {
        let Program::Xdp(program) = of_name(ebpf, program::STEER) else { continue };
        match program.attach_to_if_index(index, flags) {
            Ok(id) => {
                let link = program.take_link(id).map_err(|_| AttachError::NoLinks)?;
                let link = FdLink::try_from(link).map_err(|_| AttachError::NoLinks)?;
                return Ok((link, mode));
            }
            Err(error) => {
                let said_now = match &error {
                    ProgramError::SyscallError(error) => {
                        io::Error::from_raw_os_error(error.io_error.raw_os_error().unwrap_or(0))
                    }
                    other => io::Error::other(other.to_string()),
                };
                let interface = settings.interface.clone();
                let name = if mode == AttachedMode::Native { "native" } else { "skb" };
                said = Err(AttachError::Attach { interface, mode: name, said: said_now });
            }
        }
    }
    said
}

/// Returns a program of the object.
fn of_name<'a>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut Program {
    ebpf.program_mut(name).expect("the object of this crate has this program")
}

fn fd(ebpf: &mut Ebpf, name: &str) -> Result<ProgramFd, ProgramError> {
    of_name(ebpf, name).fd()?.try_clone().map_err(ProgramError::IOError)
}

fn set<V: aya::Pod>(
    ebpf: &mut Ebpf,
    name: &'static str,
    index: u32,
    value: V,
) -> Result<(), AttachError> {
    let map = ebpf.map_mut(name).ok_or_else(|| no_map(name))?;
    let mut array: Array<_, V> = Array::try_from(map).map_err(in_map(name))?;
    array.set(index, value, 0).map_err(in_map(name))
}

/// Takes a map out of the object, which does not need it any more: the programs hold it.
fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<MapData, AttachError> {
    use aya::maps::Map;
    match ebpf.take_map(name) {
        Some(Map::Array(data) | Map::PerCpuArray(data)) => Ok(data),
        _ => Err(no_map(name)),
    }
}

fn no_map(name: &'static str) -> AttachError {
    in_map(name)(io::Error::from(io::ErrorKind::NotFound))
}

/// Returns the root of the cgroup hierarchy of version 2, if it is mounted.
fn cgroup_root() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (_, place, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(place))
    })
}

/// Returns the number of the network namespace of the calling thread; 0 if it is not told.
fn namespace_number() -> u32 {
    std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |about| about.st_ino() as u32)
}

fn random() -> Result<[u64; 2], AttachError> {
    let word = || getrandom::u64().map_err(|error| AttachError::Random(error.into()));
    Ok([word()?, word()?])
}

/// Returns the clock that the programs read.
fn monotonic_ns() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    let time = Duration::from(time.expect("this clock is always there"));
    time.as_nanos() as u64
}

/// Returns the CPUs of the mask of a queue, as [`fill`] writes it.
fn cpus_of(mask: &[u16; 2 + MAX_CPUS]) -> Vec<CpuId> {
    mask[2..].iter().take(usize::from(mask[0])).map(|cpu| CpuId(*cpu)).collect()
}
