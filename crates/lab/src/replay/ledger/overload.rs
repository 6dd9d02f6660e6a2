//! The means of `flow-aware` against overload, where a host switches them one by one.

use rxsteer_core::steer::Class;
use rxsteer_engine::overload::{
    BesideSettings, Control, GovernorSettings, Key, Offer, Room, ShedSettings, Verdict,
};
use rxsteer_engine::{At, Cpus, Train};

use super::Ledger;
use crate::host::{Host, Means};
use crate::replay::job::Job;

pub(super) fn control(host: &Host, means: Means) -> Control {
    let cpus = host.cpus.nr_cpu_ids();
    // The key is fixed, so that a run repeats.
    let key = Key { k0: 0x6f76_6572, k1: 0x6c6f_6164 };
    Control::new(means, ShedSettings::default(), BesideSettings::default(), cpus, key)
}

impl Ledger {
    /// Returns the governor that the executor is to have.
    pub(in crate::replay) fn govern(&self) -> Option<GovernorSettings> {
        self.control.as_ref()?.govern(GovernorSettings::default())
    }

    /// Asks the means against overload; returns whether the packet is to be shed.
    #[inline]
    pub(super) fn judge<C: Cpus>(&mut self, job: &mut Job, charge: u64, at: At, cpus: &C) -> bool {
        let Some(control) = &mut self.control else { return false };
        control.tick(at.now_ns, cpus);
        let socket = self.sockets.get(job.socket as usize);
        let Some(socket) = socket.filter(|s| s.socket_use == job.socket_use && s.open && !s.tcp)
        else {
            return false;
        };
        if !job.wants_reader || at.again {
            return false;
        }
        let room = Room {
            used_bytes: socket.queued_bytes,
            used_packets: u64::from(socket.waiting),
            limit_bytes: self.limits.udp_receive_buffer,
            limit_packets: u64::MAX,
        };
        let offer = Offer {
            socket: job.socket,
            hash: job.hash,
            source: job.source,
            class: job.class,
            known_flow: job.connected,
            true_size: charge as u32,
        };
        match control.judge(&offer, &room, socket.cpu, at.now_ns) {
            Verdict::Admit { ticket, protected } => {
                (job.ticket, job.protected) = (ticket, protected);
                false
            }
            Verdict::Shed(_) => true,
        }
    }

    /// Tells the means against overload that packets reached their socket.
    #[inline]
    pub(super) fn reached(&mut self, train: &Train<Job>) {
        let Some(control) = &mut self.control else { return };
        let first = train.first();
        let work_ns = match first.class {
            Class::Tcp | Class::TcpSyn => self.costs.protocol_tcp,
            Class::Udp | Class::Tunnel => self.costs.protocol_udp,
            Class::Other => self.costs.protocol_other,
        };
        for job in train.packets() {
            control.reached(job.ticket);
        }
        if let Some(socket) = self.sockets.get(first.socket as usize) {
            control.worked(socket.cpu, first.hash, work_ns);
        }
    }
}
