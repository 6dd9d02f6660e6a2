//! The receive queue of a UDP socket: what it admits, in which order it is read, who is woken.
//!
//! [`ReceiveQueue`] takes [`Datagram`]s from any number of producers and gives them to any number of
//! readers, one by one or in a [`Batch`]. Producers append to a pile under one short lock; readers
//! have a chain of their own under another, and take the whole pile when their chain has run empty.
//! So a reader meets the producers once per batch, and a producer never waits for a read.
//!
//! Memory is lent: the room for waiting datagrams comes from a pool of the namespace
//! ([`QueueContext`]) when the first one arrives and goes back when the last one is read; payloads
//! may come from a [`BufferPool`]. A queue that is empty holds neither.
//!
//! Readers wait as they like: a blocked thread ([`ReceiveQueue::recv_timeout`]), a future
//! ([`ReceiveQueue::recv`], [`Incoming`]), or readiness as of `poll(2)` ([`Watch`]). All three are a
//! [`Waker`](std::task::Waker) in a list that producers see under their lock: a reader enters it in
//! the step in which it finds the queue empty, so no wake-up is lost. A producer takes one reader out
//! and wakes it, once for a whole [`burst`](ReceiveQueue::push_burst); who was woken and leaves
//! datagrams, or gives up waiting, wakes the next. Dropping any future here loses nothing: it takes
//! a datagram only when it returns it.
//!
//! # How the limits count
//!
//! As in Linux, by *true size*: what a datagram holds in memory, not its payload. A datagram is
//! refused if it would make the sum strictly greater than the limit, unless the queue is empty: that
//! takes one datagram however large. [`Release`] says when a read makes room again.
//!
//! We depart from Linux in three things. A refusal for lack of memory is told to the producer whom
//! it concerns; Linux refuses when a later step moves the packet, after it has reported success.
//! There is one pile, not one for each NUMA node, so the limit is never overshot and the order is
//! that of arrival. And what is left in a closed queue is counted ([`Event::Discarded`]).
//!
//! # Between flows
//!
//! The queue is one line: what is admitted is read in that order, whoever sent it. A flow that sends
//! more than is read fills it, and then every flow loses the share that arrives while it is full, a
//! quiet one too. What is promised is that each drop is counted and stamped on the next datagram
//! ([`Datagram::drops_before`]), and that the credit says so before packets are worked on; limits for
//! single flows or prefixes are for who admits, before the queue.
//!
//! # What adds up
//!
//! Offered = delivered + each cause of a drop + waiting + discarded, at any moment at which nobody
//! is in the middle of an operation. Closed sockets hand the datagram back
//! ([`PushError::Closed`]): it is neither counted nor lost.
//!
//! What producers write, their lock and pile, lies on other cache lines than what readers lock.
//!
//! Always true: order is kept from each producer to whoever reads; every datagram admitted is read
//! once, found bad once or discarded once; [`Credit`] goes back to 0 when the queue is drained; no
//! foreign code runs under a lock but the clone of a waker, checks of a payload and the closure of
//! [`ReceiveQueue::peek`]; locks are taken in the order readers, producers.
//! Elsewhere: header checks ([`crate::datagram`]); the kernel's counters ([`crate::UdpCounters`]);
//! which socket ([`crate`]).
//! Source: spec of the receive path, "UDP receive queue and its accounting".
//!
//! # Examples
//! ```
//! use std::sync::Arc;
//! use rxsteer_sockets::queue::{Datagram, Limits, QueueContext, ReceiveQueue, RecvError};
//!
//! let context = Arc::new(QueueContext::default()); // one for each namespace
//! let queue = ReceiveQueue::new(&context, Limits::default());
//! let peer = "192.0.2.1:4433".parse()?;
//! for text in ["one", "two", "three"] {
//!     queue.push(Datagram::new(peer, "198.51.100.7".parse()?, text.as_bytes().to_vec()))?;
//! }
//! let batch = queue.try_recv_batch(2)?;
//! let texts: Vec<_> = batch.map(|datagram| datagram.payload).collect();
//! assert_eq!(texts, [b"one".to_vec(), b"two".to_vec()]);
//! assert_eq!(queue.try_recv()?.payload, b"three");
//! assert_eq!(queue.try_recv().unwrap_err(), RecvError::Empty);
//! assert_eq!(queue.credit().in_use().bytes, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
#[cfg(not(loom))]
mod blocking;
mod buffer;
mod context;
mod counts;
mod credit;
mod item;
mod limits;
mod memory;
mod peek;
mod read;
mod receive;
mod segment;
mod sync;
mod wait;
mod waiting;

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod model_check;

pub use batch::Batch;
pub use buffer::{Buffer, BufferPool};
pub use context::QueueContext;
pub use credit::{Credit, InUse};
pub use item::{Datagram, Payload, PushError, Simulated};
pub use limits::{Limits, Release};
pub use memory::{MemoryAccount, MemoryLimits, PAGE_BYTES};
pub use read::{Received, RecvError};
pub use receive::{Burst, ReceiveQueue};
pub use waiting::{Incoming, Readiness, Recv, RecvBatch, Watch};

#[cfg(doc)]
use crate::Event;
