//! The stages of one thread.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rxsteer_core::dissect::{Dissected, Start, dissect};
use rxsteer_core::steer::{self, Class, Decision};
use rxsteer_core::table::Epoch;
use rxsteer_core::{CpuId, FlowHash};
use rxsteer_sockets::queue::{Burst, Datagram, PushError};
use rxsteer_sockets::{Cast, DeviceId, Event, Found, IpVersion, Packet, SocketId};

use super::frame::{Checked, Ends, Frame};
use super::message::{Message, Piece};
use super::order::OrderWatch;
use super::plane::{Masks, Plane};
use super::socket::{Socket, Sockets};
use super::tally::Tally;
use crate::gro::{Segment, Train};
use crate::overload::shed::refusal;
use crate::{At, Choice, Cpus, Drop, Read, ReaderId, Reading, Stages};

/// A reader's turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Turn {
    /// The reader.
    pub reader: ReaderId,
    /// The CPU on which it runs.
    pub on: CpuId,
    /// Time.
    pub now_ns: u64,
}

/// What the application does with a message.
pub trait Consume {
    /// Takes a message that was read from a socket; returns the work that this is in ns, which
    /// counts in virtual time only.
    fn consume(&mut self, turn: Turn, socket: &Socket, message: Datagram<Message>) -> u64;
}

impl<F: FnMut(Turn, &Socket, Datagram<Message>)> Consume for F {
    fn consume(&mut self, turn: Turn, socket: &Socket, message: Datagram<Message>) -> u64 {
        self(turn, socket, message);
        0
    }
}

/// The stages of one thread, over sockets and steering that all threads share.
#[derive(Debug)]
pub struct UdpStages<C> {
    sockets: Arc<Sockets>,
    plane: Arc<Plane>,
    masks: Masks,
    seen: Dissected,
    own: Own<C>,
}

/// What no other thread sees.
#[derive(Debug)]
struct Own<C> {
    consume: C,
    /// Packets since one taught shedding.
    lesson: u32,
    /// Time of the delivery under way.
    now_ns: u64,
    /// Key of the identities of flows for merging.
    identity: (u64, u64),
    order: Option<OrderWatch>,
    tally: Tally,
    /// Room for messages on their way to a socket.
    burst: Vec<Datagram<Message>>,
}

/// The device by which all frames come.
const DEVICE: DeviceId = DeviceId(1);

/// Look-ups for one packet while sockets close under its hands.
const MOST_LOOKUPS: usize = 4;

impl<C: Consume> UdpStages<C> {
    /// Makes the stages of a thread; `consume` gets what its reader reads.
    pub fn new(sockets: &Arc<Sockets>, consume: C) -> Self {
        let plane = Arc::clone(sockets.plane());
        let own = Own {
            consume,
            lesson: 0,
            now_ns: 0,
            // Another key than that of the hash, though made of it: no flow's hash tells it.
            identity: (!plane.hasher.k0, plane.hasher.k1.rotate_left(1)),
            order: None,
            tally: Tally::new(),
            burst: Vec::new(),
        };
        let masks = plane.masks();
        Self { sockets: Arc::clone(sockets), plane, masks, seen: Dissected::EMPTY, own }
    }

    /// Watches that each flow's datagrams are read in the order of their arrivals, which costs a
    /// look at a map per datagram. Up to 1,048,576 flows.
    #[must_use]
    pub fn watching_order(mut self) -> Self {
        self.own.order = Some(OrderWatch::default());
        self
    }

    /// Returns what was counted.
    pub const fn tally(&self) -> &Tally {
        &self.own.tally
    }

    /// Returns who gets what is read.
    pub const fn consumer_mut(&mut self) -> &mut C {
        &mut self.own.consume
    }

    /// Returns who got what was read.
    pub fn into_consumer(self) -> C {
        self.own.consume
    }
}

impl<C: Consume> Own<C> {
    /// Ends packets that reach no queue.
    fn end(&mut self, sockets: &Sockets, frame: &Frame, event: Event, packets: u64) {
        sockets.counters().count(frame.version(), event, packets);
        self.tally.ended[event.index()] += packets;
    }

    /// Delivers to the one socket that a look-up found.
    #[inline]
    fn deliver_one(
        &mut self,
        sockets: &Sockets,
        train: Train<Frame>,
        checked: &Checked,
        ends: &Ends,
        found: Found,
        on: CpuId,
    ) -> Option<Reading> {
        let (hash, segment_len) = (train.first().hash, train.segment_len());
        let packets = train.count() as u64;
        let make = |first: Piece, rest: Vec<Piece>| {
            let (timestamp_ns, merged) = (first.arrived_ns, !rest.is_empty());
            let message = Message::new(first, rest, on);
            let mut datagram = Datagram::new(ends.src, ends.dst.ip(), message);
            datagram.timestamp_ns = timestamp_ns;
            datagram.flow_hash = hash;
            datagram.segment_len = if merged { segment_len } else { 0 };
            datagram.checksum = checked.checksum;
            datagram
        };
        let train = match train.into_single() {
            Ok(frame) => {
                let mut message = Some(make(frame.into_piece(checked), Vec::new()));
                return self.offer(sockets, ends, found, packets, on, |own, socket| {
                    own.push(sockets, socket, &mut message, 1)
                });
            }
            Err(train) => train,
        };
        let mut pieces = train.into_iter().map(|frame| {
            let own = *frame.checked().expect("it was merged, so it is sound");
            frame.into_piece(&own)
        });
        // Cut up, or one of all: which one the first socket that is found says.
        let gro = sockets.with(found.socket, |socket| socket.gro).unwrap_or_default();
        if gro {
            let first = pieces.next().expect("a train has a packet");
            let mut message = Some(make(first, pieces.collect()));
            return self.offer(sockets, ends, found, packets, on, |own, socket| {
                own.push(sockets, socket, &mut message, packets)
            });
        }
        let mut burst = std::mem::take(&mut self.burst);
        burst.extend(pieces.map(|piece| make(piece, Vec::new())));
        let reading = self.offer(sockets, ends, found, packets, on, |own, socket| {
            let result = socket.queue.push_burst(&mut burst);
            if result.closed { Err(()) } else { Ok(own.pushed(sockets, socket, result, 1)) }
        });
        // Empty, unless nobody took it.
        burst.clear();
        self.burst = burst;
        reading
    }

    /// Offers packets to the socket that was found, and if that is closed meanwhile, to the one that
    /// a new look-up finds; ends them if there is none.
    #[inline]
    fn offer(
        &mut self,
        sockets: &Sockets,
        ends: &Ends,
        found: Found,
        packets: u64,
        on: CpuId,
        mut push: impl FnMut(&mut Self, &Arc<Socket>) -> Result<Option<Reading>, ()>,
    ) -> Option<Reading> {
        let mut found = Some(found);
        for _ in 0..MOST_LOOKUPS {
            let Some(Found { socket, connected, .. }) = found else { break };
            match sockets.with(socket, |socket| push(self, socket)) {
                Some(Ok(reading)) => {
                    if connected {
                        sockets.namespace().note_cpu(socket, on);
                    }
                    return reading;
                }
                Some(Err(())) | None => {
                    found = sockets.namespace().lookup(&packet(ends, on, &[]));
                }
            }
        }
        let version = IpVersion::of(&ends.src);
        sockets.counters().count(version, Event::NoPort, packets);
        self.tally.ended[Event::NoPort.index()] += packets;
        None
    }

    /// Puts a message of so many packets on a socket's queue; an error if that is closed, and the
    /// message is back.
    #[inline]
    fn push(
        &mut self,
        sockets: &Sockets,
        socket: &Arc<Socket>,
        message: &mut Option<Datagram<Message>>,
        packets: u64,
    ) -> Result<Option<Reading>, ()> {
        let datagram = message.take().expect("it is back from a socket that is closed");
        let result = match socket.queue.push(datagram) {
            Ok(()) => Burst { admitted: 1, ..Burst::default() },
            Err(PushError::BufferFull) => Burst { buffer_full: 1, ..Burst::default() },
            Err(PushError::NoMemory) => Burst { no_memory: 1, ..Burst::default() },
            Err(PushError::Closed(datagram)) => {
                *message = Some(datagram);
                return Err(());
            }
        };
        Ok(self.pushed(sockets, socket, result, packets))
    }

    /// Counts what came of messages of so many packets each, and tells the socket's reader.
    #[inline]
    fn pushed(
        &mut self,
        sockets: &Sockets,
        socket: &Arc<Socket>,
        result: Burst,
        packets: u64,
    ) -> Option<Reading> {
        if let Some(shedding) = &sockets.shedding {
            shedding.delivered(socket.queue.credit(), self.now_ns);
        }
        self.tally.queued += result.admitted * packets;
        self.tally.ended[Event::BufferFull.index()] += result.buffer_full * packets;
        self.tally.ended[Event::NoMemory.index()] += result.no_memory * packets;
        if result.admitted == 0 {
            return None;
        }
        sockets.note_ready(socket);
        let reader = socket.reader;
        Some(Reading { reader, cpu: sockets.reader(reader).cpu() })
    }

    /// Delivers a copy to each socket that takes a multicast or broadcast packet.
    fn flood(
        &mut self,
        sockets: &Sockets,
        frame: &Frame,
        checked: &Checked,
        on: CpuId,
    ) -> Option<Reading> {
        let mut takers: Vec<SocketId> = Vec::new();
        let ends = frame.ends(checked);
        let payload = frame.payload(checked);
        sockets.namespace().deliver(&packet(&ends, on, payload), |found| takers.push(found.socket));
        if takers.is_empty() {
            self.end(sockets, frame, Event::MulticastIgnored, 1);
            return None;
        }
        self.tally.copies += takers.len() as u64 - 1;
        let mut reading = None;
        for taker in takers {
            let Some(buffer) = sockets.pool.copy(payload) else {
                self.end(sockets, frame, Event::NoMemory, 1);
                continue;
            };
            let len = payload.len() as u16;
            let piece = Piece { buffer, at: 0, len, arrived_ns: frame.arrived_ns() };
            let message = Message::new(piece, Vec::new(), on);
            let mut datagram = Datagram::new(ends.src, ends.dst.ip(), message);
            datagram.timestamp_ns = frame.arrived_ns();
            datagram.flow_hash = frame.hash;
            datagram.checksum = checked.checksum;
            let mut datagram = Some(datagram);
            match sockets.with(taker, |socket| self.push(sockets, socket, &mut datagram, 1)) {
                Some(Ok(taken)) => reading = reading.or(taken),
                Some(Err(())) | None => {
                    self.end(sockets, frame, Event::MulticastIgnored, 1);
                }
            }
        }
        reading
    }

    /// Hears what a reader read, and tells steering.
    fn read_messages(
        &mut self,
        plane: &Plane,
        turn: Turn,
        socket: &Socket,
        most: usize,
        read: &mut Read,
    ) {
        let Ok(batch) = socket.queue.try_recv_batch(most) else { return };
        let epoch = Epoch::from_ns(turn.now_ns);
        let connected = socket.is_connected();
        let mut last = FlowHash::NONE;
        for message in batch {
            read.messages += 1;
            let count = message.payload.count() as u32;
            read.packets += count;
            read.bytes += rxsteer_sockets::queue::Payload::len(&message.payload) as u64;
            if message.payload.cpu() != turn.on {
                read.near += count;
            }
            if let Some(order) = &mut self.order {
                let late = |arrived_ns: &u64| order.saw(socket.id(), message.peer, *arrived_ns);
                self.tally.reordered += message.payload.arrivals().filter(late).count() as u64;
            }
            last = message.flow_hash;
            if !connected {
                let rule = plane.rule(socket.local().port());
                plane.steering.received_unconnected(last, Class::Udp, rule, turn.on, epoch);
            }
            read.work_ns += self.consume.consume(turn, socket, message);
        }
        if connected {
            plane.steering.record(&mut socket.flow(), last, turn.on, epoch);
        }
    }
}

impl<C: Consume> Stages for UdpStages<C> {
    type Packet = Frame;
    type Flow = FlowHash;

    #[inline]
    fn flow(&self, packet: &Frame) -> FlowHash {
        packet.hash
    }

    #[inline]
    fn hash(&self, packet: &Frame) -> FlowHash {
        packet.hash
    }

    #[inline]
    fn class(&self, packet: &Frame) -> Class {
        packet.class
    }

    fn segment(&self, packet: &Frame) -> Option<Segment> {
        packet.segment(self.own.identity)
    }

    fn choose<H: Cpus>(&mut self, frame: &mut Frame, at: At, cpus: &H) -> Choice {
        let queue = self.plane.queue(&mut self.masks, at.queue);
        let mut rule = steer::PortRule::default();
        // Without a mask and a table nobody needs the hash (scaling.rst: RPS is off).
        let steers = !(queue.map.is_empty() && queue.slots.is_empty());
        let shedding = self.sockets.shedding.as_ref().filter(|_| !at.again);
        let shedding = shedding.filter(|hook| hook.wants(at.now_ns, &mut self.own.lesson));
        let mut refused = false;
        if steers || shedding.is_some() {
            let seen = &mut self.seen;
            // What was read before an error is the flow, as in Linux.
            let _ = dissect(frame.bytes(), Start::Ethernet, &self.plane.options, seen);
            let mut hash = frame.hash;
            if hash.is_none() && seen.has_key() {
                hash = self.plane.hasher.hash_symmetric(&seen.key);
            }
            let class = Class::new(seen.key.protocol, seen.tcp_flags, false);
            if steers {
                (frame.hash, frame.class) = (hash, class);
                rule = self.plane.rule(seen.key.dst_port);
            }
            if let Some(hook) = shedding.filter(|_| class == Class::Udp) {
                let (sockets, lesson) = (&*self.sockets, &mut self.own.lesson);
                refused = hook.refuses(sockets, frame, seen, hash, at, lesson);
            }
        }
        let packet = steer::Packet {
            hash: frame.hash,
            class: frame.class,
            rule,
            arrived_on: at.on,
            refused,
        };
        let now = Epoch::from_ns(at.now_ns);
        let decision = if refused {
            refusal(at.on)
        } else {
            self.plane.steering.steer(&queue, &packet, cpus, now)
        };
        if at.again {
            self.own.tally.again += 1;
        } else {
            self.own.tally.decided[decision.reason.index()][frame.class.index()] += 1;
        }
        self.own.tally.moved += u64::from(decision.moved);
        Choice { decision, cost_ns: 0 }
    }

    #[inline]
    fn queued(&mut self, flow: FlowHash, at: At, choice: &Choice, tail: u32) {
        let decision: &Decision = &choice.decision;
        let queue = self.plane.queue(&mut self.masks, at.queue);
        self.plane.steering.enqueued(&queue, flow, decision, tail);
    }

    fn protects(&self, packet: &Frame) -> bool {
        packet.protected
    }

    fn deliver(&mut self, train: Train<Frame>, on: CpuId, now_ns: u64) -> Option<Reading> {
        self.own.tally.trains += 1;
        self.own.now_ns = now_ns;
        if let Some(shedding) = &self.sockets.shedding {
            shedding.reached(train.packets());
        }
        let frame = train.first();
        let checked = match frame.checked() {
            Ok(checked) => *checked,
            Err(fault) => {
                self.own.end(&self.sockets, frame, fault.into(), train.count() as u64);
                return None;
            }
        };
        let ends = frame.ends(&checked);
        let packet = packet(&ends, on, frame.payload(&checked));
        if packet.cast != Cast::Unicast {
            // Datagrams to a group are merged as others are, so cut them up first.
            let mut reading = None;
            for frame in train {
                let own = match frame.checked() {
                    Ok(own) => *own,
                    Err(fault) => {
                        self.own.end(&self.sockets, &frame, fault.into(), 1);
                        continue;
                    }
                };
                reading = reading.or(self.own.flood(&self.sockets, &frame, &own, on));
            }
            return reading;
        }
        match self.sockets.namespace().lookup(&packet) {
            Some(found) => self.own.deliver_one(&self.sockets, train, &checked, &ends, found, on),
            None => {
                self.own.end(&self.sockets, frame, Event::NoPort, train.count() as u64);
                None
            }
        }
    }

    fn read(&mut self, reader: ReaderId, on: CpuId, now_ns: u64, most: u32) -> Read {
        let sockets = &self.sockets;
        let at = sockets.reader(reader);
        at.runs_on(on);
        let turn = Turn { reader, on, now_ns };
        let mut read = Read::default();
        while read.messages < most {
            let Some(socket) = at.ready.take() else { break };
            let left = (most - read.messages) as usize;
            self.own.read_messages(&self.plane, turn, &socket, left, &mut read);
            if socket.has_datagrams() {
                at.ready.put_back(socket);
            } else {
                at.ready.leave(&socket.mark, || Arc::clone(&socket), || socket.has_datagrams());
            }
        }
        read.more = !at.ready.is_empty();
        self.own.tally.read += u64::from(read.packets);
        self.own.tally.messages += u64::from(read.messages);
        read
    }

    fn dropped(&mut self, packet: Frame, cause: Drop, _now_ns: u64) {
        if let Some(shedding) = &self.sockets.shedding {
            shedding.lost(packet.ticket);
        }
        self.own.tally.count_drop(cause);
    }
}

fn packet<'a>(ends: &Ends, cpu: CpuId, payload: &'a [u8]) -> Packet<'a> {
    let cast = match ends.dst.ip() {
        dst if dst.is_multicast() => Cast::Multicast,
        IpAddr::V4(Ipv4Addr::BROADCAST) => Cast::Broadcast,
        _ => Cast::Unicast,
    };
    Packet {
        src: ends.src.ip(),
        src_port: ends.src.port(),
        dst: ends.dst.ip(),
        dst_port: ends.dst.port(),
        device: DEVICE,
        cpu,
        cast,
        from_this_host: false,
        payload,
    }
}
