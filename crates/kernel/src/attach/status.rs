//! What is attached now, asked of the kernel, whichever process holds it.

use std::collections::BTreeMap;

use aya::maps::{MapData, MapInfo};
use aya::programs::ProgramInfo;
use rxsteer_core::steer::Aware;
use rxsteer_core::{CpuId, PortSet};
use rxsteer_ebpf::{Config, MAX_CPUS, map};

use super::answers;
use super::error::AttachError;
use super::maps::{Maps, array, in_map};
use super::{Counters, OnInterface, cpus_of, programs_on_interfaces};

/// An interface whose packets are steered, by this process or another.
#[derive(Debug)]
pub struct Status {
    /// The interface and the program on it.
    pub on: OnInterface,
    /// CPUs of the mask; empty under the policy `none`.
    pub cpus: Vec<CpuId>,
    /// Flows that each of the two tables can hold.
    pub table_entries: u32,
    /// Ports that were declared for flows.
    pub flow_ports: PortSet,
    /// Settings of the decision.
    pub aware: Aware,
    /// Flows in the tables, of TCP and of UDP.
    pub flows: [usize; 2],
    /// What was counted.
    pub counters: Counters,
}

/// Why the status is not known.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The kernel does not tell of its programs.
    #[error("cannot ask the kernel about program {id} on {interface}: {source}")]
    Program {
        /// Number of the program.
        id: u32,
        /// Name of the interface.
        interface: String,
        /// What the kernel said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// As for an attachment.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Returns what is attached to the interfaces of the network namespace of the calling thread.
///
/// # Errors
/// [`StatusError`]; asking needs `CAP_SYS_ADMIN`.
pub fn status() -> Result<Vec<Status>, StatusError> {
    let there = programs_on_interfaces().map_err(AttachError::Netlink)?;
    there.into_iter().filter(OnInterface::is_ours).map(of).collect()
}

fn of(on: OnInterface) -> Result<Status, StatusError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| StatusError::Program {
        id: on.id,
        interface: on.interface.clone(),
        source,
    };
    // Not every map is one of the program that steers: the others have their own, and share some.
    let loaded: Vec<_> = aya::programs::loaded_programs().flatten().collect();
    let maps = |program: &ProgramInfo| program.map_ids().ok().flatten().unwrap_or_default();
    let own = loaded.iter().find(|program| program.id() == on.id).map(maps);
    let own = own.ok_or_else(|| failed("it is gone".into()))?;
    let named = |id: u32| -> Result<(String, u32), StatusError> {
        let info = MapInfo::from_id(id).map_err(|error| failed(Box::new(error)))?;
        Ok((info.name_as_str().unwrap_or_default().to_owned(), id))
    };
    let mut by_name = own.into_iter().map(named).collect::<Result<BTreeMap<_, _>, _>>()?;
    let Some(shared) = by_name.get(map::CONFIG).copied() else {
        return Err(failed("it is of another version".into()));
    };
    for program in &loaded {
        let ids = maps(program);
        if program.id() != on.id && ids.contains(&shared) {
            for id in ids {
                let (name, id) = named(id)?;
                by_name.entry(name).or_insert(id);
            }
        }
    }
    let get = |name: &'static str| {
        let id = by_name
            .get(name)
            .ok_or_else(|| in_map(name)(std::io::Error::from(std::io::ErrorKind::NotFound)))?;
        MapData::from_id(*id).map_err(in_map(name))
    };
    let config = array(map::CONFIG, get(map::CONFIG)?)?;
    let config: [u64; Config::WORDS] = config.get(&0, 0).map_err(in_map(map::CONFIG))?;
    let config = Config::from_words(&config);
    let queues = array(map::QUEUES, get(map::QUEUES)?)?;
    let mask: [u16; 2 + MAX_CPUS] = queues.get(&0, 0).map_err(in_map(map::QUEUES))?;
    // Nobody has that map unless ports were declared.
    let flow_ports = if by_name.contains_key(map::FLOW_PORTS) {
        let map = array(map::FLOW_PORTS, get(map::FLOW_PORTS)?)?;
        answers::declared(|place| map.get(&place, 0)).map_err(in_map(map::FLOW_PORTS))?
    } else {
        PortSet::EMPTY
    };
    let maps = Maps::open(get)?;
    let flows = maps.flows().tables().map_or([0; 2], |tables| tables.map(|table| table.count()));
    let ways = rxsteer_core::table::WAYS as u32;
    Ok(Status {
        counters: maps.counters()?,
        cpus: cpus_of(&mask),
        table_entries: config.tcp_buckets * ways,
        flow_ports,
        aware: config.aware,
        flows,
        on,
    })
}
