//! Why the lab is wrong where it is: shown beside a case whose error is above the bound.

/// Error from which a case is explained, as a share of what was measured.
pub(super) const BOUND: f64 = 0.25;

/// Returns the cause for a case, whether or not it is needed.
pub(super) fn cause(group: &str, case: &str) -> &'static str {
    match (group, case) {
        ("tcp-rr" | "udp-rr", "none") => {
            "both ends work at the same time, and each waits for cache lines of sockets and of the \
             allocator that the other one has; the costs were measured in turns, one end at a time. The \
             clock and the histogram of the client are in no cost either."
        }
        ("tcp-rr" | "udp-rr", _) => {
            "signals are the dearest step of this path (`signal_send` and `signal_take` below, against the \
             work of a packet), and how many packets share one hangs on what both CPUs do within a few \
             microseconds. The lab gives each signal its whole cost; a kernel whose CPU is signalled while \
             it sends or polls takes part of it in passing."
        }
        (_, case) if case.ends_with("beside") => {
            "the reader's loop of work is measured before anything runs beside it; with the other CPU \
             busy on the same socket both the work and the read take longer."
        }
        _ => {
            "the reader gets what packet work and signals leave of its CPU. That is the small difference \
             of two large numbers, so an error of a few per cent in `signal_take` or in the number of \
             packets that share a signal is a large one here."
        }
    }
}
