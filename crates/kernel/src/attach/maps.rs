//! The maps of running programs, opened by the process that loaded them or by another one.

use aya::Pod;
use aya::maps::{Array, Map, MapData, PerCpuArray};
use rxsteer_core::CpuId;
use rxsteer_core::steer::{Class, Reason};
use rxsteer_core::table::Recorded;
use rxsteer_ebpf::{Config, MAX_CPUS, cpu_state, map};

use super::counters::{Counters, CpuCounters};
use super::error::AttachError;
use super::memory::FlowMemory;

/// The maps that tell what goes on.
pub(super) struct Maps {
    reasons: PerCpuArray<MapData, u64>,
    records: PerCpuArray<MapData, u64>,
    states: Array<MapData, [u64; cpu_state::WORDS]>,
    flows: FlowMemory,
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
        let per_cpu =
            |name, data| PerCpuArray::try_from(Map::PerCpuArray(data)).map_err(in_map(name));
        Ok(Self {
            reasons: per_cpu(map::REASONS, get(map::REASONS)?)?,
            records: per_cpu(map::RECORDS, get(map::RECORDS)?)?,
            states: array(map::CPU_STATES, get(map::CPU_STATES)?)?,
            flows,
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
        for index in 0..Recorded::COUNT {
            let values = self.records.get(&(index as u32), 0).map_err(in_map(map::RECORDS))?;
            counters.records[index] = values.iter().sum();
        }
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

/// Says in which map something went wrong.
pub(super) fn in_map<E: std::error::Error + Send + Sync + 'static>(
    name: &'static str,
) -> impl Fn(E) -> AttachError {
    move |source| AttachError::Map { name, source: Box::new(source) }
}
