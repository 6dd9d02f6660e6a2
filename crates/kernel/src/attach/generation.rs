//! A generation: the programs loaded once, for one lot of settings, with the maps that are theirs.
//!
//! An attachment lives through several generations, and packets flow on meanwhile. What tells where
//! packets wait and how many went by goes on from one to the next ([`GOES_ON`]): the queues of the
//! CPUs, their states, the positions of flows that move, the counters. The tables go on too
//! ([`TABLES`]) while their size stays. Settings and lists of CPUs are new, and complete before the
//! first packet meets them.
//!
//! Always true: until the link of the interface is told of the new program, nothing that the old one
//! does is different; an error before that leaves the old generation as it was.
//! Elsewhere: the order of steps ([`super::change`]); the queues of the CPUs ([`super::backlogs`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use aya::Ebpf;
use aya::maps::MapData;
use aya::programs::{CgroupAttachMode, Program, ProgramError, ProgramFd};
use rxsteer_core::CpuId;
use rxsteer_ebpf::{Config, MAX_CPUS, MAX_QUEUES, map, program};

use super::interface::index_of;
use super::maps::{Maps, array, in_map};
use super::{AttachError, LivePolicy, Settings, cpus_of};
use crate::load::{self, Sizes};
use crate::{OBJECT, host_cpus};

/// Maps that one generation takes over from the one before.
pub(super) const GOES_ON: [&str; 6] =
    [map::ANSWERS, map::CPUS, map::CPU_STATES, map::IDS, map::ORDER, map::REASONS];

/// Maps that it takes over if the tables keep their size.
pub(super) const TABLES: [&str; 3] = [map::FLOWS, map::SOCKETS, map::RECORDS];

/// Maps that it takes over if both hear sockets.
pub(super) const OF_PORTS: [&str; 6] =
    [map::PORTS, map::PORT_READERS, map::LIVE, map::CREDITS, map::LOCAL, map::SIGHTINGS];

/// The maps of a generation, by name.
#[derive(Debug, Default)]
pub(super) struct MapFds(BTreeMap<String, OwnedFd>);

impl MapFds {
    fn of(ebpf: &Ebpf) -> io::Result<Self> {
        let fds = ebpf.maps().filter_map(|(name, map)| {
            let fd = load::raw_fd(map)?;
            // SAFETY: the descriptor of a map that `ebpf` owns, which outlives this.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            Some(fd.try_clone_to_owned().map(|fd| (name.to_owned(), fd)))
        });
        fds.collect::<io::Result<_>>().map(Self)
    }

    /// Takes maps that another process opened.
    pub(super) fn from_parts(parts: impl IntoIterator<Item = (String, OwnedFd)>) -> Self {
        Self(parts.into_iter().collect())
    }

    /// Returns the names and descriptors of all maps.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.0.iter().map(|(name, fd)| (name.as_str(), fd.as_fd()))
    }

    fn fd(&self, name: &'static str) -> Result<BorrowedFd<'_>, AttachError> {
        let fd = self.0.get(name).map(std::os::fd::AsFd::as_fd);
        fd.ok_or_else(|| in_map(name)(io::Error::from(io::ErrorKind::NotFound)))
    }

    /// Opens a map.
    pub(super) fn open(&self, name: &'static str) -> Result<MapData, AttachError> {
        let fd = self.fd(name)?.try_clone_to_owned().map_err(in_map(name))?;
        MapData::from_fd(fd).map_err(in_map(name))
    }

    /// Opens the maps that tell what goes on.
    pub(super) fn maps(&self) -> Result<Maps, AttachError> {
        Maps::open(|name| self.open(name))
    }

    /// Returns the settings in the map.
    pub(super) fn config(&self) -> Result<Config, AttachError> {
        let config = array(map::CONFIG, self.open(map::CONFIG)?)?;
        Ok(Config::from_words(&config.get(&0, 0).map_err(in_map(map::CONFIG))?))
    }

    /// Writes one value of an array.
    pub(super) fn set<V: aya::Pod>(
        &self,
        name: &'static str,
        index: u32,
        value: V,
    ) -> Result<(), AttachError> {
        array(name, self.open(name)?)?.set(index, value, 0).map_err(in_map(name))
    }

    /// Writes the settings, and the lists of CPUs: that which every queue spreads over, and that of
    /// before, by which hashes go until nothing of them waits any more.
    pub(super) fn tell(
        &self,
        config: &Config,
        cpus: &[CpuId],
        before: &[CpuId],
    ) -> Result<(), AttachError> {
        self.set(map::CONFIG, 0, config.to_words())?;
        let mut was = [0u16; 2 * MAX_CPUS];
        write_list(&mut was, before);
        for queue in 0..MAX_QUEUES {
            self.set(map::BEFORE, queue, was)?;
        }
        self.spread_over(cpus, before.len())
    }

    /// Returns the lists that every queue spreads over, and spread over before, if it is still in use.
    pub(super) fn lists(&self) -> Result<(Vec<CpuId>, Vec<CpuId>), AttachError> {
        let queues = array(map::QUEUES, self.open(map::QUEUES)?)?;
        let mask: [u16; 2 + MAX_CPUS] = queues.get(&0, 0).map_err(in_map(map::QUEUES))?;
        let was = array(map::BEFORE, self.open(map::BEFORE)?)?;
        let was: [u16; 2 * MAX_CPUS] = was.get(&0, 0).map_err(in_map(map::BEFORE))?;
        let was = was.iter().take(usize::from(mask[1])).map(|cpu| CpuId(*cpu));
        Ok((cpus_of(&mask), was.collect()))
    }

    /// Writes the list of CPUs that every queue spreads over; `before` is the length of the other.
    pub(super) fn spread_over(&self, cpus: &[CpuId], before: usize) -> Result<(), AttachError> {
        let mut mask = [0u16; 2 + MAX_CPUS];
        mask[0] = cpus.len() as u16;
        mask[1] = before as u16;
        write_list(&mut mask[2..], cpus);
        (0..MAX_QUEUES).try_for_each(|queue| self.set(map::QUEUES, queue, mask))
    }
}

fn write_list(list: &mut [u16], cpus: &[CpuId]) {
    for (place, cpu) in list.iter_mut().zip(cpus) {
        *place = cpu.0;
    }
}

/// The programs of one generation. Dropped, they hear sockets no more.
pub(super) struct Programs {
    ebpf: Ebpf,
    /// Whether the program on the way out is one of them.
    hears_answers: bool,
}

impl Programs {
    /// Makes the programs and their maps; takes maps of these names over from `before`. `namespace` is
    /// that of the sockets to hear.
    pub(super) fn prepare(
        settings: &Settings,
        namespace: u32,
        before: &MapFds,
        take_over: &[&'static str],
    ) -> Result<Self, AttachError> {
        // Every CPU that there may be has a place, so that it can be asked for later.
        let asked = settings.cpus.last().map_or(1, |cpu| u32::from(cpu.0) + 1);
        let possible = host_cpus().map_or(asked, |host| host.nr_cpu_ids());
        let is_new = |name| !take_over.contains(&name);
        let sizes = Sizes {
            // What is made in vain is made small.
            buckets: if is_new(map::FLOWS) { 2 * settings.buckets() } else { 2 },
            cpus: Some(possible.clamp(asked, MAX_CPUS as u32)),
            sockets: Some(if is_new(map::SOCKETS) { sockets(settings) } else { 512 }),
        };
        let place = [namespace, index_of(&settings.interface).unwrap_or(0)];
        let namespace = if settings.all_namespaces { 0 } else { namespace };
        let ebpf = load::prepare(OBJECT, sizes, load::offsets()?, namespace, place)
            .map_err(|error| AttachError::Object(Box::new(error)))?;
        for name in take_over {
            load::share(&ebpf, name, before.fd(name)?).map_err(in_map(name))?;
        }
        Ok(Self { ebpf, hears_answers: settings.hears_answers() })
    }

    /// Loads the programs into the kernel and returns their maps.
    pub(super) fn load(&mut self) -> Result<MapFds, AttachError> {
        let btf = aya::Btf::from_sys_fs()?;
        let events = program::EVENTS.map(|(name, _)| name);
        let out = self.hears_answers.then_some(program::OUT);
        let always = [program::STEER, program::TAKEN, program::RELEASED];
        for name in always.into_iter().chain(events).chain(out) {
            load::load(self.named(name), name, Some(&btf)).map_err(|source| AttachError::Load {
                name: name.to_owned(),
                source: Box::new(source),
            })?;
        }
        MapFds::of(&self.ebpf).map_err(in_map(map::CONFIG))
    }

    /// Hears the sockets from now on, if the policy wants it; returns whether closing is heard too.
    pub(super) fn hear_sockets(&mut self, policy: LivePolicy) -> Result<bool, AttachError> {
        if policy != LivePolicy::FlowAware {
            return Ok(false);
        }
        for (name, event) in &program::EVENTS[program::BACKLOG_EVENTS..] {
            let attached = match self.named(name) {
                Program::BtfTracePoint(program) => program.attach().map(drop),
                _ => Err(ProgramError::UnexpectedProgramType),
            };
            attached.map_err(|source| AttachError::Event {
                name,
                place: format!("the tracepoint {event}"),
                source: Box::new(source),
            })?;
        }
        self.hear_closing()
    }

    /// Hears of closed sockets; `false` if there is no cgroup that tells of them.
    fn hear_closing(&mut self) -> Result<bool, AttachError> {
        let Some(root) = cgroup_root() else { return Ok(false) };
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| AttachError::Event {
            name: program::RELEASED,
            place: format!("the cgroup {}", root.display()),
            source,
        };
        let cgroup = File::open(&root).map_err(|error| failed(Box::new(error)))?;
        let attached = match self.named(program::RELEASED) {
            // A link takes no mode, and is always one of several.
            Program::CgroupSock(program) => {
                program.attach(cgroup, CgroupAttachMode::Single).map(drop)
            }
            _ => Err(ProgramError::UnexpectedProgramType),
        };
        attached.map_err(|error| failed(Box::new(error)))?;
        Ok(true)
    }

    /// Returns a loaded program.
    pub(super) fn fd(&mut self, name: &str) -> Result<ProgramFd, ProgramError> {
        self.named(name).fd()?.try_clone().map_err(ProgramError::IOError)
    }

    /// Returns the program that steers, to run it over packets of a test.
    #[cfg(test)]
    pub(super) fn steers(&mut self) -> &aya::programs::Xdp {
        match self.named(program::STEER) {
            Program::Xdp(program) => program,
            other => panic!("{other:?}"),
        }
    }

    fn named(&mut self, name: &str) -> &mut Program {
        self.ebpf.program_mut(name).expect("the object of this crate has this program")
    }
}

/// Connected sockets whose flows are kept in mind.
fn sockets(settings: &Settings) -> u32 {
    2 * settings.table_entries.max(512)
}

/// Returns the root of the cgroup hierarchy of version 2, if it is mounted.
pub(super) fn cgroup_root() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (_, place, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(place))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps that each generation has anew.
    const NEW: [&str; 8] = [
        map::ANSWER,
        map::BEFORE,
        map::CONFIG,
        map::FLOW_PORTS,
        map::QUEUES,
        map::SEEN,
        "OUT_SCRATCH",
        "SCRATCH",
    ];

    #[test]
    fn of_every_map_it_is_said_whether_it_goes_on() {
        let object = aya_obj::Object::parse(OBJECT).unwrap();
        // Globals are in sections, which the programs of a generation have to themselves.
        let maps = object.maps.keys().map(String::as_str).filter(|name| !name.starts_with('.'));
        let mut maps: Vec<&str> = maps.collect();
        maps.sort_unstable();
        let mut said: Vec<&str> =
            GOES_ON.into_iter().chain(TABLES).chain(OF_PORTS).chain(NEW).collect();
        said.sort_unstable();
        assert_eq!(maps, said);
    }
}
