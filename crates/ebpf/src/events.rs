//! The programs on the kernel's tracepoints and on the CPUMAP entry: argument in, call, 0 out.

use aya_ebpf::bindings::xdp_action::XDP_PASS;
use aya_ebpf::macros::{btf_tracepoint, cgroup_sock, xdp};
use aya_ebpf::programs::{BtfTracePointContext, SockContext, XdpContext};

use crate::backlog;
use crate::sockets::{self, Said};

/// Sees each packet on the CPU that it was sent to.
#[xdp(map = "cpumap")]
pub(crate) fn rxsteer_taken(_ctx: XdpContext) -> u32 {
    backlog::take();
    XDP_PASS
}

/// `sched_switch(preempt, prev, next, prev_state)`.
#[btf_tracepoint(function = "sched_switch")]
pub(crate) fn rxsteer_slept(ctx: BtfTracePointContext) -> i32 {
    // 0 is a thread that could run on.
    if ctx.arg::<u32>(3) != 0 {
        backlog::slept();
    }
    0
}

/// `xdp_cpumap_enqueue(map_id, processed, drops, to_cpu)`.
#[btf_tracepoint(function = "xdp_cpumap_enqueue")]
pub(crate) fn rxsteer_lost_full(ctx: BtfTracePointContext) -> i32 {
    backlog::lost_full(ctx.arg(0), ctx.arg(3), ctx.arg(2));
    0
}

/// `xdp_cpumap_kthread(map_id, processed, drops, sched, xdp_stats)`.
#[btf_tracepoint(function = "xdp_cpumap_kthread")]
pub(crate) fn rxsteer_lost_memory(ctx: BtfTracePointContext) -> i32 {
    backlog::lost_memory(ctx.arg(0), ctx.arg(2));
    0
}

/// `xdp_redirect_err(dev, xdp, tgt, err, map_type, map_id, index)`.
#[btf_tracepoint(function = "xdp_redirect_err")]
pub(crate) fn rxsteer_lost_refused(ctx: BtfTracePointContext) -> i32 {
    backlog::lost_refused(ctx.arg(5), ctx.arg(6));
    0
}

/// `sock_recv_length(sk, ret, flags)`: after each receive, on the CPU of the consumer.
#[btf_tracepoint(function = "sock_recv_length")]
pub(crate) fn rxsteer_received(ctx: BtfTracePointContext) -> i32 {
    /// Reads what went wrong with packets sent: says nothing of who receives. As in Linux.
    const MSG_ERRQUEUE: u32 = 0x2000;
    /// Leaves the packet in the queue.
    const MSG_PEEK: u32 = 0x2;
    let flags: u32 = ctx.arg(2);
    if flags & MSG_ERRQUEUE == 0 {
        let read = flags & MSG_PEEK == 0 && ctx.arg::<i32>(1) >= 0;
        sockets::spoke(ctx.arg(0), if read { Said::Read } else { Said::Asked });
    }
    0
}

/// `sock_send_length(sk, ret, flags)`: after each send.
#[btf_tracepoint(function = "sock_send_length")]
pub(crate) fn rxsteer_sent(ctx: BtfTracePointContext) -> i32 {
    sockets::spoke(ctx.arg(0), Said::Sent);
    0
}

/// `inet_sock_set_state(sk, oldstate, newstate)`: before the state changes.
#[btf_tracepoint(function = "inet_sock_set_state")]
pub(crate) fn rxsteer_state(ctx: BtfTracePointContext) -> i32 {
    const TCP_CLOSE: u32 = 7;
    if ctx.arg::<u32>(2) == TCP_CLOSE {
        sockets::closed(ctx.arg(0));
    }
    0
}

/// `udp_fail_queue_rcv_skb(rc, sk, skb)`: a UDP socket did not take a packet.
#[btf_tracepoint(function = "udp_fail_queue_rcv_skb")]
pub(crate) fn rxsteer_full(ctx: BtfTracePointContext) -> i32 {
    /// The receive buffer is full; other causes are not the socket's.
    const ENOMEM: i32 = 12;
    if ctx.arg::<i32>(0) == -ENOMEM {
        sockets::full(ctx.arg(1), ctx.arg(2));
    }
    0
}

/// Hears of each socket that is closed for good.
#[cgroup_sock(sock_release)]
pub(crate) fn rxsteer_released(ctx: SockContext) -> i32 {
    sockets::released(ctx.sock.cast());
    1
}
