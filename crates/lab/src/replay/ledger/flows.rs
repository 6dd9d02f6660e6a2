//! The flows of a policy: where each went last, in which order its packets finished, and how they
//! ended.

use rxsteer_core::CpuId;
use rxsteer_engine::{Choice, Cpus};

use super::Ledger;
use super::books::name;
use crate::replay::job::Job;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlowState {
    pub(super) flow_use: u32,
    pub(super) max_seq: u32,
    pub(super) last_tail: u32,
    pub(super) last_cpu: u16,
    pub(super) flags: u16,
}

const FLOW_PLACED: u16 = 1;
pub(super) const FLOW_QUEUED: u16 = 2;
const FLOW_REORDERED: u16 = 4;
const FLOW_LOST: u16 = 8;

/// The end of a packet, for a workload that waits for it.
#[derive(Clone, Copy, Debug)]
pub(in crate::replay) struct Ended {
    pub(in crate::replay) flow: u32,
    /// When: for a packet that was read, when its reader is through with it.
    pub(in crate::replay) ns: u64,
    pub(in crate::replay) read: bool,
}

impl Ledger {
    /// Keeps the ends of packets from now on.
    pub(in crate::replay) fn keep_ends(&mut self) {
        self.ends = Some(Vec::new());
    }

    /// Takes the ends of packets since the last time.
    pub(in crate::replay) fn take_ends(&mut self, into: &mut Vec<Ended>) {
        if let Some(ends) = &mut self.ends {
            into.append(ends);
        }
    }

    #[inline]
    pub(super) fn note_end(&mut self, job: &Job, ns: u64, read: bool) {
        if !read
            && let Some(flow) = self.flow_state(job.flow, job.flow_use)
            && flow.flags & FLOW_LOST == 0
        {
            flow.flags |= FLOW_LOST;
            self.counts.lossy_flows += 1;
        }
        if let Some(ends) = &mut self.ends {
            ends.push(Ended { flow: job.flow, ns, read });
        }
    }

    /// Returns the flow's state, begun anew if the place has a new occupant; `None` if the place
    /// has been given to a later flow.
    #[inline]
    pub(super) fn flow_state(&mut self, place: u32, flow_use: u32) -> Option<&mut FlowState> {
        let place = place as usize;
        if place >= self.flows.len() {
            self.flows.resize(place + 1, FlowState::default());
        }
        let flow = &mut self.flows[place];
        if flow.flow_use != flow_use {
            if flow.flow_use.wrapping_sub(flow_use) as i32 > 0 {
                return None;
            }
            *flow = FlowState { flow_use, ..FlowState::default() };
        }
        Some(flow)
    }

    /// Follows a flow to its CPU and counts how it got there.
    #[inline]
    pub(super) fn follow<C: Cpus>(&mut self, job: &Job, choice: &Choice, cpus: &C) {
        let cpu = choice.decision.cpu;
        let inline = choice.is_inline();
        let Some(flow) = self.flow_state(job.flow, job.flow_use) else { return };
        let mut moved = false;
        let mut unsafe_move = false;
        if flow.flags & FLOW_PLACED != 0 && flow.last_cpu != cpu.0 {
            moved = true;
            let old = CpuId(flow.last_cpu);
            unsafe_move = flow.flags & FLOW_QUEUED != 0
                && cpus.is_online(old)
                && (cpus.head(old).wrapping_sub(flow.last_tail) as i32) < 0;
        }
        flow.last_cpu = cpu.0;
        flow.flags |= FLOW_PLACED;
        if inline {
            flow.flags &= !FLOW_QUEUED;
        }
        if moved {
            self.counts.moves.moved += 1;
            name(&mut self.counts.moved_packets, job.number);
        }
        if unsafe_move {
            self.counts.moves.unsafe_moves += 1;
            name(&mut self.counts.unsafe_packets, job.number);
        }
    }

    /// Counts a packet that is processed after a later one of its flow.
    #[inline]
    pub(super) fn note_order(&mut self, job: &Job, now_ns: u64) {
        let Some(flow) = self.flow_state(job.flow, job.flow_use) else { return };
        if job.seq >= flow.max_seq {
            flow.max_seq = job.seq;
            return;
        }
        let first = flow.flags & FLOW_REORDERED == 0;
        flow.flags |= FLOW_REORDERED;
        self.counts.reordered_flows += u64::from(first);
        self.note_reordered(job, now_ns);
    }

    fn note_reordered(&mut self, job: &Job, now_ns: u64) {
        self.counts.reordered += 1;
        name(&mut self.counts.reordered_packets, job.number);
        self.point(now_ns).reordered += 1;
    }
}
