//! All means behind their switches, as the stages of a receive path use them.
//!
//! | when | what to call |
//! | --- | --- |
//! | a packet is chosen for | [`judge`](Control::judge), then decide with [`for_flow`](Control::for_flow) |
//! | it reached its socket | [`reached`](Control::reached), [`worked`](Control::worked), and [`refused`](Control::refused) if it had no room |
//! | it was lost before | [`lost`](Control::lost) |
//! | now and then | [`tick`](Control::tick), at least once in a window of [`BesideSettings`] |
//! | a socket is closed | [`forget`](Control::forget) |
//!
//! A means that is off does nothing here: all packets are let in, no CPU is beside.

use rxsteer_core::steer::{Aware, Host};
use rxsteer_core::{CpuId, FlowHash};

use super::beside::{Beside, BesideSettings, ForFlow, Moves, Sample};
use super::governor::GovernorSettings;
use super::in_flight::Ticket;
use super::room::Room;
use super::shed::{Counts, Offer, ShedSettings, Shedder, Verdict};
use super::source::Key;
use super::{Means, spill};
use crate::Cpus;

/// The means against overload of one host.
#[derive(Clone, Debug)]
pub struct Control {
    means: Means,
    shedder: Option<Shedder>,
    beside: Beside,
    /// Packets refused for the readers of each CPU.
    refused: Vec<u64>,
    audit_due_ns: u64,
    audit_ns: u64,
}

impl Control {
    /// Makes the means that are on, for CPUs of ids below `cpus`.
    ///
    /// The switches `fair` and `in_flight` of `means` and of `shed` must both be on.
    pub fn new(
        means: Means,
        shed: ShedSettings,
        beside: BesideSettings,
        cpus: u32,
        key: Key,
    ) -> Self {
        let fair = shed.fair && means.fair;
        let in_flight = shed.in_flight && means.in_flight;
        let audit_ns = shed.longest_ns.max(1);
        let shed = ShedSettings { fair, in_flight, ..shed };
        Self {
            means,
            shedder: means.shed.then(|| Shedder::new(shed, key)),
            beside: Beside::new(beside, cpus),
            refused: vec![0; cpus.min(1 << 16) as usize],
            audit_due_ns: audit_ns,
            audit_ns,
        }
    }

    /// Returns the switches.
    pub const fn means(&self) -> &Means {
        &self.means
    }

    /// Returns the settings of the policy with spilling as its switch says.
    pub const fn aware(&self, aware: Aware) -> Aware {
        spill::switched(self.means.spill, aware)
    }

    /// Returns the setting of the engine's governor as its switch says.
    pub const fn govern(&self, settings: GovernorSettings) -> Option<GovernorSettings> {
        if self.means.govern { Some(settings) } else { None }
    }

    /// Decides whether a packet is let in to a socket with this room, whose reader is on `home`.
    #[inline]
    pub fn judge(&mut self, offer: &Offer, room: &Room, home: CpuId, now_ns: u64) -> Verdict {
        let Some(shedder) = &mut self.shedder else {
            return Verdict::Admit { ticket: Ticket::NONE, protected: false };
        };
        let verdict = shedder.judge(offer, room, now_ns);
        if let Verdict::Shed(_) = verdict {
            self.refused(home);
        }
        verdict
    }

    /// Returns the host for the decision about a packet of this flow.
    #[inline]
    pub fn for_flow<'a, H: Host + ?Sized>(&'a self, host: &'a H, hash: FlowHash) -> ForFlow<'a, H> {
        self.beside.for_flow(host, hash)
    }

    /// Hears that a packet was refused for a reader on `home`.
    #[inline]
    pub fn refused(&mut self, home: CpuId) {
        if let Some(refused) = self.refused.get_mut(home.index()) {
            *refused += 1;
        }
    }

    /// Hears that an admitted packet reached its socket.
    #[inline]
    pub fn reached(&mut self, ticket: Ticket) {
        if let Some(shedder) = &mut self.shedder {
            shedder.reached(ticket);
        }
    }

    /// Hears that an admitted packet was lost on its way.
    #[inline]
    pub fn lost(&mut self, ticket: Ticket) {
        if let Some(shedder) = &mut self.shedder {
            shedder.lost(ticket);
        }
    }

    /// Hears of packet work, in ns, for a reader on `home`, wherever it was done.
    #[inline]
    pub fn worked(&mut self, home: CpuId, hash: FlowHash, work_ns: u32) {
        if self.means.beside {
            self.beside.worked(home, hash, work_ns);
        }
    }

    /// Does what is due; one comparison or two if nothing is.
    #[inline]
    pub fn tick<C: Cpus + ?Sized>(&mut self, now_ns: u64, cpus: &C) {
        if self.means.beside && now_ns >= self.beside.due_ns() {
            let refused = &self.refused;
            self.beside.window(now_ns, cpus, |cpu| {
                let readers_ns = cpus.readers_ns(cpu);
                Sample {
                    packets_ns: cpus.busy_ns(cpu).saturating_sub(readers_ns),
                    readers_ns,
                    refused: refused.get(cpu.index()).copied().unwrap_or(0),
                    depth: cpus.waiting(cpu),
                }
            });
        }
        if now_ns >= self.audit_due_ns {
            self.audit_due_ns = now_ns.saturating_add(self.audit_ns);
            if let Some(shedder) = &mut self.shedder {
                shedder.audit(now_ns);
            }
        }
    }

    /// Forgets a socket that is gone.
    pub fn forget(&mut self, socket: u32, now_ns: u64) {
        if let Some(shedder) = &mut self.shedder {
            shedder.forget(socket, now_ns);
        }
    }

    /// Returns what shedding did; `None` if it is off.
    pub fn counts(&self) -> Option<&Counts> {
        self.shedder.as_ref().map(Shedder::counts)
    }

    /// Returns how often flows were moved.
    pub fn moves(&self) -> Moves {
        self.beside.moves()
    }

    /// Returns the CPU beside `home` that a flow's packets go to.
    pub fn target(&self, home: CpuId, hash: FlowHash) -> Option<CpuId> {
        self.beside.target(home, hash)
    }
}
