//! One CPU that the caller's thread drives.

use rxsteer_core::cpu::CpuStates;
use rxsteer_core::{CpuId, QueueId};

use super::run::{Setup, SetupError, check};
use super::seat::{Ran, Seat};
use super::world::{Bell, World};
use crate::backlog::Refused;
use crate::cpu::CpuCounts;
use crate::virtual_time::Topology;
use crate::{Read, ReaderId, Settings, Stages};

/// A host of one CPU without threads: who has the frames polls and reads, in turns of its choice.
///
/// The way of a packet is the same as on threads; nobody is ever woken.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use rxsteer_core::{CpuId, QueueId};
/// use rxsteer_engine::threads::Single;
/// use rxsteer_engine::udp::{Frame, Plane, PlaneSettings, SocketSettings, Sockets, UdpStages};
/// use rxsteer_engine::{ReaderId, Settings};
/// use rxsteer_sockets::Config;
/// use rxsteer_sockets::queue::BufferPool;
/// # fn request() -> Vec<u8> {
/// #     // Ethernet, IPv4, UDP to port 53 without checksum.
/// #     let mut frame = vec![0; 42];
/// #     frame[12] = 8;
/// #     frame[14..34].copy_from_slice(&[
/// #         0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0xf6, 0xcd, 192, 0, 2, 2, 192, 0, 2, 1,
/// #     ]);
/// #     frame[34..42].copy_from_slice(&[0x13, 0x88, 0, 53, 0, 8, 0, 0]);
/// #     frame
/// # }
///
/// let plane = Arc::new(Plane::new(&PlaneSettings::default()));
/// let pool = BufferPool::new(1 << 20, 1 << 16);
/// let sockets = Arc::new(Sockets::new(Config::default(), &plane, &[CpuId(0)], pool.clone()));
/// sockets.open(&SocketSettings::bound("192.0.2.1:53".parse()?))?;
/// let mut senders = Vec::new();
/// let stages = UdpStages::new(&sockets, |_, _: &_, message: rxsteer_sockets::queue::Datagram<_>| {
///     senders.push(message.peer);
/// });
/// let mut host = Single::new(&Settings::default(), 1, stages)?;
/// let frame = Frame::new(pool.copy(&request()).expect("there is room"), 0);
/// assert!(host.send(QueueId(0), frame).is_ok());
/// while host.poll() {}
/// assert_eq!(host.read(ReaderId(0), 64).messages, 1);
/// drop(host);
/// assert_eq!(senders, ["192.0.2.2:5000".parse()?]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Single<P, S> {
    world: World<P>,
    seat: Seat<P, S>,
}

const CPU: CpuId = CpuId(0);

impl<P, S: Stages<Packet = P>> Single<P, S> {
    /// Makes a CPU with so many queues.
    ///
    /// # Errors
    /// As for [`run`](super::run).
    pub fn new(settings: &Settings, queues: u16, stages: S) -> Result<Self, SetupError> {
        let topology = Topology {
            cpus: CpuStates::all(1),
            cache_numbers: vec![0],
            irq_cpus: vec![CPU; usize::from(queues)],
        };
        check(&Setup {
            topology: topology.clone(),
            settings: *settings,
            readers: Vec::new(),
            pin: false,
        })?;
        let mut seat = Seat::new(CPU, settings, usize::from(queues), stages);
        (0..queues).for_each(|queue| seat.add_queue(QueueId(queue)));
        Ok(Self { world: World::new(&topology, settings, &[]), seat })
    }

    /// Puts a frame in the ring of a queue.
    ///
    /// # Errors
    /// The frame comes back if the ring is full, which is counted.
    ///
    /// # Panics
    /// If there is no such queue.
    #[inline]
    pub fn send(&mut self, queue: QueueId, frame: P) -> Result<(), P> {
        match self.world.rings[queue.index()].frames.enqueue(frame) {
            Ok(enqueued) => {
                if enqueued.signal {
                    self.world.cpus[CPU.index()].bell.ring(Bell::queue(queue));
                }
                Ok(())
            }
            Err(Refused::Full(frame) | Refused::Closed(frame)) => Err(frame),
        }
    }

    /// Does what there is to do, up to the limits of one run of the softirq; `false`: nothing.
    /// Packets that are held until a timeout wait for a call after it.
    #[inline]
    pub fn poll(&mut self) -> bool {
        self.seat.run(&self.world) != Ran::Idle
    }

    /// A reader takes up to `most` messages.
    #[inline]
    pub fn read(&mut self, reader: ReaderId, most: u32) -> Read {
        self.seat.stages.read(reader, CPU, self.world.now_ns(), most)
    }

    /// Returns the frames that a queue's ring had no room for.
    pub fn ring_dropped(&self, queue: QueueId) -> u64 {
        self.world.rings[queue.index()].frames.dropped()
    }

    /// Returns what the receive path did.
    pub fn counts(&self) -> CpuCounts {
        self.seat.cpu.counts()
    }

    /// Returns the stages.
    pub const fn stages(&self) -> &S {
        &self.seat.stages
    }

    /// Ends the CPU and returns its stages. What waits is dropped.
    pub fn into_stages(self) -> S {
        self.seat.stages
    }
}
