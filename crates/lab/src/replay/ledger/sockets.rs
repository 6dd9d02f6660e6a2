//! The sockets of a policy: what waits in them, and the flows that they speak of.
//!
//! Always true: what is charged to a socket is given back when the packet is read or lost; nothing
//! is charged to a socket that is closed, or to a later occupant of its place.

use rxsteer_core::steer::{Class, PolicyKind, SocketFlow};
use rxsteer_core::table::Recorded;
use rxsteer_core::{CpuId, FlowHash};
use rxsteer_engine::{ReaderId, Reading};

use super::Ledger;
use crate::consumer::Opened;
use crate::replay::job::Job;

/// Memory that the kernel charges to a socket for one packet besides its bytes (the usual
/// `truesize` of a small packet: buffer head and shared info).
const PACKET_OVERHEAD: u32 = 768;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SocketState {
    pub(super) flow: SocketFlow,
    /// Which occupant of the place this is; 0 for none.
    pub(super) socket_use: u32,
    /// Bytes in the receive buffer.
    pub(super) queued_bytes: u64,
    /// Bytes of packets that were admitted and are not read yet, wherever they are.
    pub(super) admitted_bytes: u64,
    /// Packets in the receive buffer.
    pub(super) waiting: u32,
    pub(super) work_ns: u32,
    pub(super) cpu: CpuId,
    pub(super) tcp: bool,
    pub(super) tcp_table: bool,
    pub(super) connected: bool,
    pub(super) open: bool,
}

/// Bytes that a packet takes of a receive buffer.
pub(super) fn charge_of(job: &Job) -> u64 {
    u64::from(job.len) + u64::from(PACKET_OVERHEAD)
}

impl Ledger {
    pub(in crate::replay) fn opened(&mut self, opened: &Opened) {
        let place = opened.socket as usize;
        if place >= self.sockets.len() {
            self.sockets.resize(place + 1, SocketState::default());
        }
        let class = if opened.tcp_table { Class::Tcp } else { Class::Udp };
        self.sockets[place] = SocketState {
            flow: SocketFlow::new(FlowHash::NONE, class),
            socket_use: opened.socket_use,
            work_ns: opened.work_ns,
            cpu: opened.cpu,
            tcp: opened.tcp,
            tcp_table: opened.tcp_table,
            connected: opened.connected,
            open: true,
            ..SocketState::default()
        };
    }

    pub(in crate::replay) fn connected(&mut self, socket: u32) {
        if let Some(state) = self.sockets.get_mut(socket as usize) {
            state.connected = true;
        }
    }

    /// The thread that reads a socket goes to another CPU, with what waits for it; returns whom to
    /// wake, and for how many messages.
    pub(in crate::replay) fn placed(&mut self, socket: u32, cpu: CpuId) -> Option<(Reading, u32)> {
        let state = self.sockets.get_mut(socket as usize)?;
        let from = std::mem::replace(&mut state.cpu, cpu);
        if from == cpu {
            return None;
        }
        let messages = self.readers.move_socket(socket, from, cpu);
        (messages > 0).then_some((Reading { reader: ReaderId(cpu.0.into()), cpu }, messages))
    }

    pub(in crate::replay) fn disconnected(&mut self, socket: u32) {
        let Some(state) = self.sockets.get_mut(socket as usize) else { return };
        state.connected = false;
        let (hash, tcp) = (state.flow.hash(), state.tcp_table);
        let recorded = self.tables.steering.disconnect(&mut state.flow);
        self.withdrawn(hash, tcp, recorded);
    }

    pub(in crate::replay) fn closed(&mut self, socket: u32) {
        let Some(state) = self.sockets.get_mut(socket as usize) else { return };
        state.open = false;
        if let Some(control) = &mut self.control {
            control.forget(socket, self.now_ns);
        }
        let (hash, tcp) = (state.flow.hash(), state.tcp_table);
        // Linux has nothing to delete for a socket that is not connected: it saved no hash.
        let recorded = self.tables.steering.close(&mut state.flow);
        self.withdrawn(hash, tcp, recorded);
    }

    fn withdrawn(&mut self, hash: FlowHash, tcp: bool, recorded: Recorded) {
        if recorded != Recorded::Cleared {
            return;
        }
        match self.tables.writer(hash, tcp) {
            Some(writer) if writer != hash && !writer.is_none() => {
                self.counts.writes.wiped_others += 1;
            }
            _ => self.counts.writes.withdrawn += 1,
        }
        self.tables.set_writer(hash, tcp, FlowHash::NONE);
    }

    /// The user of a connected socket sends: the flow of its last packet is recorded.
    pub(in crate::replay) fn sent(&mut self, socket: u32, socket_use: u32) {
        let Some(state) = self.sockets.get(socket as usize) else { return };
        if state.socket_use == socket_use && state.connected && !state.flow.hash().is_none() {
            self.record(socket as usize, state.flow.hash(), state.cpu);
        }
    }

    fn record(&mut self, socket: usize, hash: FlowHash, cpu: CpuId) {
        let state = &mut self.sockets[socket];
        let recorded = self.tables.steering.record(&mut state.flow, hash, cpu, self.epoch);
        let tcp = state.tcp_table;
        self.recorded(hash, tcp, recorded);
    }

    fn recorded(&mut self, hash: FlowHash, tcp: bool, recorded: Recorded) {
        let writes = &mut self.counts.writes;
        let before = self.tables.writer(hash, tcp);
        match recorded {
            Recorded::NotAFlow | Recorded::Contended => return,
            Recorded::Muted => {
                writes.refused += 1;
                return;
            }
            Recorded::Unchanged | Recorded::Refreshed => writes.unchanged += 1,
            Recorded::Moved | Recorded::Inserted | Recorded::Evicted(_) => writes.by_flows += 1,
            Recorded::Cleared => return,
        }
        let took_a_place = match before {
            Some(writer) => recorded.wrote() && writer != hash && !writer.is_none(),
            None => matches!(recorded, Recorded::Evicted(_)),
        };
        writes.evictions += u64::from(took_a_place);
        self.tables.set_writer(hash, tcp, hash);
    }

    pub(super) fn socket(&mut self, job: &Job) -> Option<&mut SocketState> {
        let state = self.sockets.get_mut(job.socket as usize)?;
        (state.socket_use == job.socket_use && state.open).then_some(state)
    }

    #[inline]
    pub(super) fn read_one(&mut self, job: &Job, on: CpuId, now_ns: u64) {
        self.counts.read += 1;
        self.finished(job, now_ns);
        let charge = charge_of(job);
        let epoch = self.epoch;
        let Some(socket) = self.socket(job) else { return };
        socket.queued_bytes = socket.queued_bytes.saturating_sub(charge);
        socket.waiting = socket.waiting.saturating_sub(1);
        socket.admitted_bytes = socket.admitted_bytes.saturating_sub(charge);
        let tcp = socket.tcp_table;
        if socket.connected {
            self.record(job.socket as usize, job.hash, on);
        } else {
            let recorded =
                self.tables.steering.received_unconnected(job.hash, job.class, job.rule, on, epoch);
            if self.kind == PolicyKind::RfsClear {
                let stores = matches!(recorded, Recorded::Cleared | Recorded::Unchanged);
                self.counts.writes.clears += u64::from(stores);
            }
            if recorded == Recorded::Cleared {
                self.counts.writes.by_non_flows += 1;
                self.tables.set_writer(job.hash, tcp, FlowHash::NONE);
            } else if recorded.wrote() {
                self.recorded(job.hash, tcp, recorded);
            }
        }
    }
}
