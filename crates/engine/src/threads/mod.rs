//! The executor of real threads: one for each CPU, and one for each reader, over a loopback device.
//!
//! [`run`] starts them, hands the caller a [`Host`] to send frames with, and ends them when all that
//! was sent is processed and read. A CPU's thread polls as [`crate::cpu`] and [`crate::softirq`] say
//! and sleeps when nothing is scheduled; a reader's thread reads until nothing is left and sleeps.
//! Both are pinned to a CPU of the machine, if it lets them ([`pin`](Setup::pin)).
//!
//! | mode | what a thread of a CPU does |
//! | --- | --- |
//! | `inline` | runs of the softirq, one after the other while there is work |
//! | `ksoftirqd` | the same, but lets others run after each run that had to stop |
//! | `threaded` | its instances in turn, and lets others run after each poll |
//!
//! In no mode can it run ahead of a reader that the machine has put on the CPU: no unprivileged thread
//! can. Who comes first is for virtual time to show; here the machine's scheduler shares the CPU.
//!
//! Of the means against overload it has shedding (with fair shares and what is in flight) and spilling.
//! The governor is refused ([`SetupError::Governed`]). Nothing here places flows beside their reader:
//! [`Beside`](crate::overload::Beside) needs to know what each flow's packets and each reader took,
//! which would be a clock read per packet; stages of another make can still bring it.
//!
//! A packet that stays where it was taken is processed at once if nothing waits on that CPU's
//! backlog, unlike in Linux, so that steering costs little where it changes nothing.
//!
//! The device is a ring for each queue, with its interrupt: who puts a frame in and finds it armed
//! wakes the queue's CPU. Rings are [`Backlog`](crate::backlog::Backlog)s, so the same protocol
//! rules both, and its model checks stand for both.
//!
//! CPUs go offline and come back, as in Linux, while nobody is in the middle of a run: then what
//! waits on their backlog is chosen for again, in order, and their queues go to another CPU.
//!
//! [`Single`] is one CPU without threads, for a caller who wants to poll and read by turns.
//!
//! Always true: a thread that sleeps is woken when there is work for it; no packet is taken by two
//! threads; every frame that [`Host::send`] accepted is processed before [`run`] returns.
//! Elsewhere: what happens to a packet ([`crate::Stages`], [`crate::udp`]).

mod host;
mod pin;
mod run;
mod seat;
mod single;
#[cfg(all(test, not(loom)))]
mod tests;
mod world;

pub use host::Host;
pub use run::{Finished, Setup, SetupError, run};
pub use seat::Seated;
pub use single::Single;
