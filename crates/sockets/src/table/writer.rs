//! What operations do to sockets: lists, groups and 4-tuples follow.
//!
//! Every operation first changes the state here, noting the sockets and groups that it touched,
//! and then publishes these in one go ([`Published::publish`]).
//!
//! Always true: an operation that returns an error has changed nothing, but that a refused connect
//! may have bound the socket to a port; a bound socket is on the list of its port and on that of
//! its address.
//! Source: spec of the receive path, "UDP tables and bind", "UDP connect, disconnect, rehash",
//! "Reuseport groups".

mod bind;
mod connect;
mod groups;
mod options;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::events::flow_key;
use crate::profile::Quirks;
use crate::{Config, Family, FlowEvents, Owner, SocketError, SocketId};

use super::bind::{Chain, FreePorts};
#[cfg(feature = "hash4")]
use super::four::Records;
use super::publish::{Published, Touched};
use super::ranked::Ranked;
use super::sock::{GroupKey, Sock};
use groups::Group;

/// Room for a socket.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    sock: Option<Box<Sock>>,
}

/// All sockets of a namespace.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(super) quirks: Quirks,
    pub(super) port_range: (u16, u16),
    most_sockets: usize,
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    open: usize,
    pub(super) ports: BTreeMap<u16, Chain>,
    pub(super) addresses: HashMap<(u128, u16), Chain, RandomState>,
    pub(super) free_ports: FreePorts,
    /// Sockets with `SO_REUSEPORT` on by what groups have in common, in the order of their port.
    by_key: HashMap<GroupKey, Ranked, RandomState>,
    groups: HashMap<u32, Group, RandomState>,
    last_group: u32,
    /// Ranks given at the head and at the tail of lists.
    lowest: i64,
    highest: i64,
    filings: u64,
    random: u64,
    events: Option<Arc<dyn FlowEvents>>,
    #[cfg(feature = "hash4")]
    pub(super) records: Records,
}

impl Writer {
    pub(crate) fn new(config: &Config) -> Self {
        let mut free_ports = FreePorts::new();
        free_ports.set(0, false);
        Self {
            quirks: config.profile.quirks(),
            port_range: config.port_range,
            most_sockets: config.most_sockets,
            slots: Vec::new(),
            vacant: Vec::new(),
            open: 0,
            ports: BTreeMap::new(),
            addresses: HashMap::default(),
            free_ports,
            by_key: HashMap::default(),
            groups: HashMap::default(),
            last_group: 0,
            lowest: 0,
            highest: 0,
            filings: 0,
            random: config.key.0 ^ config.key.1.rotate_left(32),
            events: config.events.clone(),
            #[cfg(feature = "hash4")]
            records: Records::default(),
        }
    }

    /// Returns the number of open sockets.
    pub(crate) fn open_sockets(&self) -> usize {
        self.open
    }

    pub(crate) fn open(
        &mut self,
        published: &Published,
        family: Family,
        owner: Owner,
    ) -> Result<SocketId, SocketError> {
        if self.open >= self.most_sockets || self.slots.len() >= u32::MAX as usize >> 1 {
            return Err(SocketError::NoBuffers);
        }
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        self.open += 1;
        let slot = &mut self.slots[index as usize];
        slot.sock = Some(Box::new(Sock::new(family, owner)));
        published.set_cpu(index, None);
        Ok(SocketId { index, generation: slot.generation })
    }

    pub(crate) fn close(&mut self, published: &Published, id: SocketId) -> Result<(), SocketError> {
        let i = self.index(id)?;
        let mut touched = Touched::new(published);
        self.unhash(i, &mut touched);
        let sock = self.sock_mut(i);
        sock.options.joined.clear();
        sock.connected = false;
        touched.socket(i);
        touched.publish(self);
        published.set_joined(i, &[]);
        let slot = &mut self.slots[i as usize];
        slot.sock = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.open -= 1;
        self.vacant.push(i);
        Ok(())
    }

    /// Returns the socket of an id.
    pub(crate) fn get(&self, id: SocketId) -> Result<&Sock, SocketError> {
        Ok(self.sock(self.index(id)?))
    }

    /// Tells of the flow that a socket has or no longer has.
    pub(super) fn tell_flow(&mut self, i: u32) {
        let Some(events) = self.events.clone() else { return };
        let id = self.id(i);
        let sock = self.sock_mut(i);
        let flow = sock.connected.then(|| sock.tuple());
        if sock.flow.as_deref() == flow.as_ref() {
            return;
        }
        if let Some(old) = std::mem::replace(&mut sock.flow, flow.map(Box::new)) {
            events.withdrawn(id, &flow_key(&old));
        }
        if let Some(flow) = flow {
            events.connected(id, &flow_key(&flow));
        }
    }

    fn head_rank(&mut self) -> i64 {
        self.lowest -= 1;
        self.lowest
    }

    fn tail_rank(&mut self) -> i64 {
        self.highest += 1;
        self.highest
    }

    /// Returns the next of a series of numbers that look random (SplitMix64).
    pub(super) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(super) fn id(&self, i: u32) -> SocketId {
        SocketId { index: i, generation: self.slots[i as usize].generation }
    }

    pub(super) fn sock(&self, i: u32) -> &Sock {
        self.slots[i as usize].sock.as_deref().expect("lists hold open sockets only")
    }

    pub(super) fn sock_mut(&mut self, i: u32) -> &mut Sock {
        self.slots[i as usize].sock.as_deref_mut().expect("lists hold open sockets only")
    }

    fn index(&self, id: SocketId) -> Result<u32, SocketError> {
        let slot = self.slots.get(id.index as usize).ok_or(SocketError::Closed)?;
        let open = slot.sock.is_some() && slot.generation == id.generation;
        if open { Ok(id.index) } else { Err(SocketError::Closed) }
    }
}
