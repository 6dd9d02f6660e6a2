//! The room of a socket as the hook sees it, and one unit for bytes and packets.
//!
//! A socket may limit bytes, packets or both. [`Scale`] turns either into *parts*: 2^20 parts are
//! the whole room. A packet charges the larger of its share of the bytes and its share of the
//! packets, rounded up to one part, so a sum of charges never says "fits" where a limit says no
//! by more than the rounding; the exact limits of the credit line are asked as well.

use rxsteer_sockets::queue::Credit;

/// Parts in the whole room of a socket.
pub const ROOM: u32 = 1 << 20;

/// What a socket's credit line says at one moment.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Room {
    /// Bytes of true size that wait in the queue.
    pub used_bytes: u64,
    /// Packets that wait in the queue.
    pub used_packets: u64,
    /// Most bytes; `u64::MAX`: no limit.
    pub limit_bytes: u64,
    /// Most packets; `u64::MAX`: no limit.
    pub limit_packets: u64,
}

impl Room {
    /// Reads a socket's credit line: one cache line, nothing is written.
    pub fn of(credit: &Credit) -> Self {
        let (used, limits) = (credit.in_use(), credit.limits());
        let no_limit = |limit: u32| if limit == u32::MAX { u64::MAX } else { u64::from(limit) };
        Self {
            used_bytes: used.bytes,
            used_packets: used.packets,
            limit_bytes: no_limit(limits.bytes),
            limit_packets: no_limit(limits.packets),
        }
    }

    /// Makes a room that is limited in packets only.
    pub const fn packets(used: u64, limit: u64) -> Self {
        Self { used_bytes: 0, used_packets: used, limit_bytes: u64::MAX, limit_packets: limit }
    }

    /// Returns whether nothing waits in the queue.
    pub const fn is_empty(&self) -> bool {
        self.used_packets == 0
    }

    /// Returns whether half of the room or more is in use.
    #[inline]
    pub fn is_half_full(&self) -> bool {
        let half = |used: u64, limit: u64| limit != u64::MAX && used >= limit.div_ceil(2);
        half(self.used_bytes, self.limit_bytes) || half(self.used_packets, self.limit_packets)
    }

    /// Returns whether the queue would take a packet of this true size, as its own check has it:
    /// an empty queue takes anything.
    #[inline]
    pub const fn takes(&self, true_size: u32) -> bool {
        let bytes = self.used_bytes.saturating_add(true_size as u64);
        self.is_empty() || (bytes <= self.limit_bytes && self.used_packets < self.limit_packets)
    }
}

/// How bytes and packets of one socket turn into parts of its room.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Scale {
    limits: (u64, u64),
    /// Parts per byte, times 2^24.
    per_byte: u64,
    /// Parts per packet, times 2^24.
    per_packet: u64,
}

impl Scale {
    const SHIFT: u32 = 24;

    /// Makes the scale of a room; divides twice, so it is kept as long as the limits stay.
    pub fn of(room: &Room) -> Self {
        let per = |limit: u64| match limit {
            u64::MAX => 0,
            limit => (u64::from(ROOM) << Self::SHIFT).div_ceil(limit.max(1)),
        };
        Self {
            limits: (room.limit_bytes, room.limit_packets),
            per_byte: per(room.limit_bytes),
            per_packet: per(room.limit_packets),
        }
    }

    /// Returns whether the scale is that of this room.
    #[inline]
    pub const fn fits(&self, room: &Room) -> bool {
        self.limits.0 == room.limit_bytes && self.limits.1 == room.limit_packets
    }

    /// Returns the parts that a packet charges: 1 to [`ROOM`].
    #[inline]
    pub fn charge(&self, true_size: u32) -> u32 {
        self.parts(u64::from(true_size), 1).max(1)
    }

    /// Returns the parts in use: 0 to [`ROOM`].
    #[inline]
    pub fn used(&self, room: &Room) -> u32 {
        self.parts(room.used_bytes, room.used_packets)
    }

    #[inline]
    fn parts(&self, bytes: u64, packets: u64) -> u32 {
        let part = |count: u64, per: u64| count.saturating_mul(per) >> Self::SHIFT;
        let parts = part(bytes, self.per_byte).max(part(packets, self.per_packet));
        parts.min(u64::from(ROOM)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_tighter_of_two_limits_makes_the_charge() {
        let room = Room { limit_bytes: 1 << 20, limit_packets: 1024, ..Room::packets(0, 0) };
        let scale = Scale::of(&room);
        // 64 bytes of 1 MiB are 64 parts; one packet of 1,024 is 1,024 parts.
        assert_eq!(scale.charge(64), 1024);
        assert_eq!(scale.charge(2048), 2048);
        assert_eq!(scale.used(&Room { used_packets: 512, ..room }), ROOM / 2);
        assert_eq!(scale.used(&Room { used_bytes: 1 << 30, ..room }), ROOM);
    }

    #[test]
    fn no_limit_charges_one_part_and_no_room_charges_all() {
        let free = Room::packets(7, u64::MAX);
        assert_eq!(Scale::of(&free).charge(u32::MAX), 1);
        assert!(!free.is_half_full() && free.takes(u32::MAX));
        let none = Room { limit_bytes: 0, limit_packets: 0, ..Room::packets(0, 0) };
        assert_eq!(Scale::of(&none).charge(1), ROOM);
        // As the queue itself: empty, it takes one.
        assert!(none.takes(u32::MAX));
        assert!(!Room { used_packets: 1, ..none }.takes(1));
    }

    proptest! {
        /// Packets whose charges fit also fit the limits, but for the rounding.
        #[test]
        fn charges_that_fit_fit_the_limits(
            limit_bytes in 1u64..1 << 33,
            limit_packets in 1u64..1 << 20,
            sizes in prop::collection::vec(1u32..70_000, 1..200),
        ) {
            let room = Room { limit_bytes, limit_packets, ..Room::packets(0, 0) };
            let scale = Scale::of(&room);
            let mut parts = 0u64;
            let (mut bytes, mut packets) = (0u64, 0u64);
            for size in sizes {
                parts += u64::from(scale.charge(size));
                if parts > u64::from(ROOM) { break; }
                bytes += u64::from(size);
                packets += 1;
                // Each charge is rounded down by less than one part.
                let slack = packets * limit_bytes.div_ceil(u64::from(ROOM));
                prop_assert!(bytes <= limit_bytes + slack && packets <= limit_packets);
            }
        }
    }
}
