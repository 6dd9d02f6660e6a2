//! The maps of running programs, opened by the process that loaded them or by another one.

use aya::Pod;
use aya::maps::{Array, Map, MapData, PerCpuArray};
use rxsteer_core::CpuId;
use rxsteer_core::steer::{Class, Reason};
use rxsteer_core::table::Recorded;
use rxsteer_ebpf::{Config, MAX_CPUS, PORT_BUCKETS, answer, cpu_state, credit, live, map};

use super::counters::{Answers, Counters, CpuCounters};
use super::error::AttachError;
use super::local::LocalAddresses;
use super::memory::FlowMemory;
use super::settings::Settings;

/// The maps that tell what goes on.
pub(super) struct Maps {
    reasons: PerCpuArray<MapData, u64>,
    records: PerCpuArray<MapData, u64>,
    answers: PerCpuArray<MapData, u64>,
    states: Array<MapData, [u64; cpu_state::WORDS]>,
    flows: FlowMemory,
    ports: FlowMemory,
    live: Array<MapData, [u64; live::WORDS]>,
    credits: Array<MapData, [u64; credit::WORDS]>,
    local: LocalAddresses,
}

impl Maps {
    /// Opens the maps; `get` returns a map by its name.
    pub(super) fn open(
        mut get: impl FnMut(&'static str) -> Result<MapData, AttachError>,
    ) -> Result<Self, AttachError> {
        let config: Array<_, [u64; Config::WORDS]> = array(map::CONFIG, get(map::CONFIG)?)?;
        let config = Config::from_words(&config.get(&0, 0).map_err(in_map(map::CONFIG))?);
        let flows = get(map::FLOWS)?;
        let buckets = config.tcp_buckets + config.udp_buckets;
        let flows =
            FlowMemory::map(flows.fd(), config.tcp_buckets, buckets).map_err(in_map(map::FLOWS))?;
        let ports = get(map::PORTS)?;
        let ports = FlowMemory::map(ports.fd(), 0, PORT_BUCKETS).map_err(in_map(map::PORTS))?;
        let per_cpu =
            |name, data| PerCpuArray::try_from(Map::PerCpuArray(data)).map_err(in_map(name));
        Ok(Self {
            reasons: per_cpu(map::REASONS, get(map::REASONS)?)?,
            records: per_cpu(map::RECORDS, get(map::RECORDS)?)?,
            answers: per_cpu(map::ANSWERS, get(map::ANSWERS)?)?,
            states: array(map::CPU_STATES, get(map::CPU_STATES)?)?,
            flows,
            ports,
            live: array(map::LIVE, get(map::LIVE)?)?,
            credits: array(map::CREDITS, get(map::CREDITS)?)?,
            local: LocalAddresses::new(get(map::LOCAL)?)?,
        })
    }

    /// Returns what was counted.
    pub(super) fn counters(&self) -> Result<Counters, AttachError> {
        let mut counters = Counters::default();
        let mut arrived = Vec::new();
        for class in Class::ALL {
            for reason in Reason::ALL {
                let index = rxsteer_ebpf::reason_index(class, reason) as u32;
                let values = self.reasons.get(&index, 0).map_err(in_map(map::REASONS))?;
                arrived.resize(values.len(), 0);
                for (sum, count) in arrived.iter_mut().zip(values.iter()) {
                    *sum += count;
                }
                counters.packets[class.index()][reason.index()] = values.iter().sum();
            }
        }
        let arrived = arrived.into_iter().enumerate().filter(|(_, count)| *count > 0);
        counters.arrived = arrived.map(|(cpu, count)| (CpuId(cpu as u16), count)).collect();
        for (index, count) in counters.records.iter_mut().enumerate() {
            *count = sum(&self.records, map::RECORDS, index as u32)?;
        }
        let answers = |place| sum(&self.answers, map::ANSWERS, place);
        counters.answers = Answers {
            // What is counted later is there already: so no sum is larger than the first.
            known: answers(answer::KNOWN)?,
            entered: answers(answer::ENTERED)?,
            strange: answers(answer::STRANGE)?,
            full: answers(answer::FULL)?,
            unread: answers(answer::UNREAD)?,
            heard: answers(answer::HEARD)?,
        };
        for cpu in 0..MAX_CPUS as u32 {
            let state = self.states.get(&cpu, 0).map_err(in_map(map::CPU_STATES))?;
            if state[cpu_state::ONLINE] == 0 && state[cpu_state::TAKEN] == 0 {
                continue;
            }
            let of_cpu = CpuCounters {
                sent: state[cpu_state::TAIL],
                taken: state[cpu_state::TAKEN],
                done: state[cpu_state::HEAD],
                lost_full: state[cpu_state::LOST_FULL],
                lost_refused: state[cpu_state::LOST_REFUSED],
                lost_memory: state[cpu_state::LOST_MEMORY],
            };
            counters.cpus.push((CpuId(cpu as u16), of_cpu));
        }
        Ok(counters)
    }

    /// Returns how often sockets were heard since start: their reads and sends.
    pub(super) fn heard(&self) -> Result<u64, AttachError> {
        (0..Recorded::COUNT as u32).map(|index| sum(&self.records, map::RECORDS, index)).sum()
    }

    /// Returns how many packets were dropped early since start.
    pub(super) fn shed(&self) -> Result<u64, AttachError> {
        let of = |class| rxsteer_ebpf::reason_index(class, Reason::Shed) as u32;
        Class::ALL.into_iter().map(|class| sum(&self.reasons, map::REASONS, of(class))).sum()
    }

    /// Tells the programs what sockets are served how, before the first packet.
    pub(super) fn begin(&mut self, settings: &Settings) -> Result<(), AttachError> {
        let mut words = self.live.get(&0, 0).map_err(in_map(map::LIVE))?;
        let switch = |is_on, flag| if is_on { flag } else { 0 };
        words[live::SWITCHES] = switch(settings.shed, live::SHED)
            | switch(settings.ports, live::PORTS)
            | switch(settings.hears_answers(), live::FLOW_PORTS);
        self.live.set(0, words, 0).map_err(in_map(map::LIVE))?;
        self.tell_addresses()
    }

    /// Tells the programs the addresses of the network namespace of the calling thread.
    pub(super) fn tell_addresses(&mut self) -> Result<(), AttachError> {
        self.local.tell()
    }

    /// Takes back the flags of what is no longer there, so that packets are not asked about it.
    ///
    /// Should the programs set one at this very moment, it is set again with the next word of its socket.
    pub(super) fn tidy(&mut self) {
        let Ok(mut words) = self.live.get(&0, 0) else { return };
        let mut gone = 0;
        if self.ports.table().is_some_and(|table| table.count() == 0) {
            gone |= live::WILD | live::BOUND;
        }
        let now = credit::units(super::monotonic_ns());
        let is_used =
            |slot: u32| self.credits.get(&slot, 0).map_or(true, |slot| credit::is_used(&slot, now));
        if words[live::PRESENT] & live::PRESSED != 0 && !(0..credit::SLOTS as u32).any(is_used) {
            gone |= live::PRESSED;
        }
        if words[live::PRESENT] & gone != 0 {
            words[live::PRESENT] &= !gone;
            // Without it packets are asked about in vain, no more.
            let _ = self.live.set(0, words, 0);
        }
    }

    /// Returns the table of ports.
    pub(super) fn ports(&self) -> &FlowMemory {
        &self.ports
    }

    /// Returns the flow tables.
    pub(super) fn flows(&self) -> &FlowMemory {
        &self.flows
    }
}

/// Opens an array.
pub(super) fn array<V: Pod>(
    name: &'static str,
    data: MapData,
) -> Result<Array<MapData, V>, AttachError> {
    Array::try_from(Map::Array(data)).map_err(in_map(name))
}

/// Returns a count of all CPUs.
fn sum(
    map: &PerCpuArray<MapData, u64>,
    name: &'static str,
    index: u32,
) -> Result<u64, AttachError> {
    Ok(map.get(&index, 0).map_err(in_map(name))?.iter().sum())
}

/// Says in which map something went wrong.
pub(super) fn in_map<E: std::error::Error + Send + Sync + 'static>(
    name: &'static str,
) -> impl Fn(E) -> AttachError {
    move |source| AttachError::Map { name, source: Box::new(source) }
}
