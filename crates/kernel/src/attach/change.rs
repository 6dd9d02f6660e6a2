//! Changing an attachment while packets flow: other settings, tables of another size, other CPUs.
//!
//! One way for all of them, and for taking over from another process ([`super::handover`]): another
//! generation of the programs is loaded and told everything, and then the link of the interface is
//! given the new program in one step, so that each packet meets the one or the other.
//!
//! What keeps the order of a flow's packets over that step:
//!
//! * The queues of the CPUs, and what is counted of them, stay the same ones, so positions stay true.
//! * Tables of another size get what the old ones hold while both generations hear the sockets. In that
//!   time no flow moves from CPU to CPU, so that where a flow is stays true too.
//! * A hash that another list of CPUs spreads elsewhere goes on by the list of before until its CPU of
//!   before has nothing waiting.
//! * A CPU that is taken out of use works off what waits there before it goes.
//!
//! Where that is not enough ([`Change::may_overtake`]), the packets that are concerned are counted.
//! Always true: after an error everything is as it was, but for queues that already have another length.

use std::os::fd::OwnedFd;

use aya::maps::{HashMap, Map, MapData, PerCpuArray};
use rxsteer_core::table::{Epoch, Recorded};
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_ebpf::{Config, map, program};

use super::answers;
use super::cpus::{Turnover, turnover, usable};
use super::generation::{GOES_ON, MapFds, OF_PORTS, Programs, TABLES};
use super::maps::{Maps, in_map};
use super::{
    AttachError, Attachment, LivePolicy, Settings, check, list_of, monotonic_ns, online_cpus,
};
use crate::link;

/// What came of a change.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Change {
    /// Flows that were taken along to tables of another size, of TCP and of UDP. Tables that keep
    /// their size go on as they are.
    pub copied: [usize; 2],
    /// Packets that later ones of their flow may overtake; `None` if that cannot be told, because
    /// another version counted differently.
    ///
    /// 0 when the size of the tables, the CPUs or the settings of the decision change. Another length
    /// of the queues, another policy, or a CPU that goes offline counts what waits at that moment,
    /// after waiting for one in which that is nothing.
    pub may_overtake: Option<u64>,
}

impl Attachment {
    /// Changes to other settings while packets flow; no packet is lost by it. To be called in the network
    /// namespace of the interface.
    ///
    /// Loads the programs anew, which takes about as long as attaching.
    ///
    /// # Errors
    /// [`AttachError::Fixed`] for the interface and the mode, which cannot change; else
    /// [`AttachError`], with the step that failed. Everything is as it was then.
    pub fn change(&mut self, settings: Settings) -> Result<Change, AttachError> {
        check(&settings)?;
        if settings.interface != self.settings.interface {
            return Err(AttachError::Fixed("the interface"));
        }
        if settings.mode != self.settings.mode {
            return Err(AttachError::Fixed("the mode"));
        }
        let online = online_cpus(&settings.cpus);
        if usable(&settings.cpus, &online).is_empty() {
            return Err(AttachError::NoCpu);
        }
        self.succeed(settings, &online)
    }

    /// Takes CPUs out that are not online any more, and lets those in again that came back, of the CPUs
    /// that were asked for. To be called from time to time, with what
    /// [`host_cpus`](crate::host_cpus) says; the kernel tells nobody else.
    ///
    /// Returns what it did, if there was anything to do. While none of the CPUs is online, packets stay
    /// where they come in.
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn follow_cpus(&mut self, online: &CpuSet) -> Result<Option<Change>, AttachError> {
        if usable(&self.settings.cpus, online) == self.backlogs.open {
            return Ok(None);
        }
        self.succeed(self.settings.clone(), online).map(Some)
    }

    /// Lets another generation follow; its settings are checked.
    pub(super) fn succeed(
        &mut self,
        settings: Settings,
        online: &CpuSet,
    ) -> Result<Change, AttachError> {
        let mut may_overtake = self.end_change_before();
        let then = usable(&settings.cpus, online);
        let list = list_of(settings.policy, &then);
        let hear =
            [self.settings.policy, settings.policy].map(|policy| policy == LivePolicy::FlowAware);
        let old = self.fds.config()?;
        let (tcp_buckets, udp_buckets) = (settings.buckets(), settings.buckets());
        let config = Config { hasher: old.hasher, tcp_buckets, udp_buckets, aware: settings.aware };
        let is_same_size = (old.tcp_buckets, old.udp_buckets) == (tcp_buckets, udp_buckets);
        let mut goes_on = GOES_ON.to_vec();
        if hear == [true; 2] {
            goes_on.extend(OF_PORTS);
            goes_on.extend(TABLES.into_iter().filter(|_| is_same_size));
        }
        let mut programs = Programs::prepare(&settings, self.namespace, &self.fds, &goes_on)?;
        let fds = programs.load()?;
        let before = if list == self.list { Vec::new() } else { self.list.clone() };
        fds.tell(&config, &list, &before)?;
        if !is_same_size || hear != [true; 2] {
            copy_records(&self.fds, &fds)?;
        }
        let mut maps = fds.maps()?;
        maps.begin(&settings)?;

        // Nothing is different up to here, but for switches that both share.
        let turn = turnover(&self.backlogs.open, &then, online);
        let mut next = Next { programs, fds, maps, hears_close: false, answers: None };
        let swapped = self.swap(&mut next, &settings, &turn, hear == [true; 2] && !is_same_size);
        self.backlogs.hold(false);
        let copied = match swapped {
            Ok((copied, waiting)) => {
                may_overtake += waiting;
                copied
            }
            Err(error) => {
                for cpu in turn.come.iter() {
                    self.backlogs.let_out(cpu);
                }
                // The old programs share the switches with those that do not follow.
                let _ = self.maps.begin(&self.settings);
                return Err(error);
            }
        };
        self.pending = before.iter().map(|cpu| (*cpu, false)).collect();
        self.list = list;
        for cpu in turn.leave.iter() {
            self.backlogs.let_out(cpu);
        }
        for cpu in turn.gone.iter() {
            may_overtake += self.backlogs.waiting(cpu);
            self.backlogs.cut_off(cpu);
        }
        // The old programs, if they are of this process, hear sockets no more.
        self.programs = Some(next.programs);
        (self.fds, self.maps, self.hears_close) = (next.fds, next.maps, next.hears_close);
        self.answers = next.answers;
        let packets = settings.queue_packets;
        let is_other_length = packets != self.settings.queue_packets;
        self.settings = settings;
        if is_other_length && let Some(programs) = &mut self.programs {
            for cpu in then.difference(&turn.come).iter() {
                may_overtake += self.backlogs.resize(programs, cpu, packets)?;
            }
        }
        Ok(Change { copied, may_overtake: Some(may_overtake) })
    }

    /// Everything up to the step to the new program, and that step. Returns the flows that were copied,
    /// and the packets that may be overtaken.
    fn swap(
        &mut self,
        next: &mut Next,
        settings: &Settings,
        turn: &Turnover,
        copy: bool,
    ) -> Result<([usize; 2], u64), AttachError> {
        self.backlogs.let_in(&mut next.programs, &turn.come, settings.queue_packets)?;
        if settings.policy != LivePolicy::None {
            self.backlogs.hear(&mut next.programs)?;
        }
        next.hears_close = next.programs.hear_sockets(settings.policy)?;
        next.answers = answers::hear(&mut next.programs, &next.fds, settings, self.index)?;
        let mut copied = [0; 2];
        if copy {
            copy_sockets(&self.fds, &next.fds)?;
            self.backlogs.hold(true);
            copied = copy_flows(&self.maps, &next.maps);
        }
        let is_other_policy = settings.policy != self.settings.policy;
        if is_other_policy {
            self.backlogs.rest(|backlogs| backlogs.open.iter().all(|cpu| backlogs.rests(cpu)));
        }
        let program = next.programs.fd(program::STEER).map_err(in_map(map::CONFIG))?;
        link::update(&self.link(), &program).map_err(AttachError::Update)?;
        let waiting = |cpu: CpuId| self.backlogs.waiting(cpu);
        let may = if is_other_policy { self.backlogs.open.iter().map(waiting).sum() } else { 0 };
        Ok((copied, may))
    }

    /// Ends what the change before has begun: no hash goes by the list of before that. Returns how many
    /// packets may be overtaken because their CPU has no rest.
    fn end_change_before(&mut self) -> u64 {
        let mut may_overtake = 0;
        for (cpu, _) in std::mem::take(&mut self.pending) {
            if !self.backlogs.rest(|backlogs| backlogs.rests(cpu)) {
                may_overtake += self.backlogs.waiting(cpu);
            }
        }
        may_overtake
    }

    /// Does the part of a change that comes after it: takes the list of before out of use, and CPUs that
    /// have worked off what waited. See [`maintain`](Self::maintain).
    pub(super) fn settle(&mut self) {
        self.backlogs.settle();
        if self.pending.is_empty() {
            return;
        }
        // Seen at rest in two turns: each queue has had time to see it too.
        let backlogs = &self.backlogs;
        self.pending.retain_mut(|(cpu, was_at_rest)| {
            let rests = backlogs.rests(*cpu);
            !(std::mem::replace(was_at_rest, *was_at_rest || rests) && rests)
        });
        if self.pending.is_empty() {
            // If that fails, the list of before only costs a look at each packet.
            let _ = self.fds.spread_over(&self.list, 0);
        }
    }
}

/// A generation that is not in use yet.
struct Next {
    programs: Programs,
    fds: MapFds,
    maps: Maps,
    hears_close: bool,
    answers: Option<OwnedFd>,
}

/// Lets the counters of another generation go on from those of this one.
fn copy_records(from: &MapFds, to: &MapFds) -> Result<(), AttachError> {
    let open = |fds: &MapFds| {
        let map = Map::PerCpuArray(fds.open(map::RECORDS)?);
        PerCpuArray::<_, u64>::try_from(map).map_err(in_map(map::RECORDS))
    };
    let (from, mut to) = (open(from)?, open(to)?);
    for index in 0..Recorded::COUNT as u32 {
        let values = from.get(&index, 0).map_err(in_map(map::RECORDS))?;
        to.set(index, values, 0).map_err(in_map(map::RECORDS))?;
    }
    Ok(())
}

/// Copies which socket is responsible for which flow. What the other map knows already is newer.
fn copy_sockets(from: &MapFds, to: &MapFds) -> Result<(), AttachError> {
    /// `BPF_NOEXIST` of bpf(2).
    const IF_NEW: u64 = 1;
    let open = |fds: &MapFds| -> Result<HashMap<MapData, u64, u64>, AttachError> {
        HashMap::try_from(Map::LruHashMap(fds.open(map::SOCKETS)?)).map_err(in_map(map::SOCKETS))
    };
    let room = from.open(map::SOCKETS)?.info().map_err(in_map(map::SOCKETS))?.max_entries();
    let (from, mut to) = (open(from)?, open(to)?);
    // Keys that go while the kernel walks over them make it begin again; so there is an end.
    for entry in from.iter().take(2 * room as usize) {
        let Ok((cookie, flow)) = entry else { continue };
        // It is there already, or there is no room: then the flow grows old instead.
        let _ = to.insert(cookie, flow, IF_NEW);
        if from.get(&cookie, 0).is_err() {
            let _ = to.remove(&cookie);
        }
    }
    Ok(())
}

/// Copies the flows and returns how many.
fn copy_flows(from: &Maps, to: &Maps) -> [usize; 2] {
    let now = Epoch::from_ns(monotonic_ns());
    let (Some([tcp, udp]), Some([new_tcp, new_udp])) = (from.flows().tables(), to.flows().tables())
    else {
        return [0; 2];
    };
    [tcp.copy_to(&new_tcp, now), udp.copy_to(&new_udp, now)]
}
