//! How many packets a UDP socket without room may be sent: [`map::CREDITS`](crate::map).
//!
//! A slot of eight words, in a cache line of its own, for each socket that dropped a packet for want of
//! room and was not at ease since. Its name is the hash of the flow if the socket is connected, else
//! that of its port.
//!
//! | word | what |
//! | --- | --- |
//! | [`NAME`] | the name, 0 in a free slot; above it the most packets that may be out |
//! | [`LEFT`] | packets that may still be let in, signed |
//! | [`HEARD`] | when the socket last read or dropped a packet |
//! | [`SHED_AT`] | when a packet was last refused for it |
//! | [`MENDED`] | when the credit was last compared with the queue, or given to try |
//! | [`TRUE_SIZE`] | memory that one of its packets takes in the queue, in bytes |
//!
//! Times are in units of 2^20 ns, about a millisecond.

/// Slots; a power of two.
pub const SLOTS: usize = 1024;
/// Words of a slot.
pub const WORDS: usize = 8;
/// See the module.
pub const NAME: usize = 0;
/// See the module.
pub const LEFT: usize = 1;
/// See the module.
pub const HEARD: usize = 2;
/// See the module.
pub const SHED_AT: usize = 3;
/// See the module.
pub const MENDED: usize = 4;
/// See the module.
pub const TRUE_SIZE: usize = 5;

/// Time without a word of the socket after which packets are let in to see what happens.
pub const PATIENCE: u64 = 16;
/// Packets that are let in then.
pub const TRIAL: i64 = 8;
/// Time between two comparisons of the credit with the queue.
pub const MEND: u64 = 10;
/// Time without a word of the socket after which its slot means nothing any more.
pub const FORGOTTEN: u64 = 1000;
/// Time without a refused packet after which a socket that reads is at ease.
pub const AT_EASE: u64 = 200;

/// Returns the most packets that may be out for a socket: let in, and not read yet.
///
/// Three quarters of what its buffer holds: the kernel takes what is read off its account in
/// quarters, so until then the queue counts as fuller than it is.
#[inline(always)]
pub const fn most_out(buffer_bytes: u32, true_size: u32) -> u32 {
    let true_size = if true_size == 0 { 1 } else { true_size };
    let out = (buffer_bytes / true_size) as u64 * 3 / 4;
    if out < 4 { 4 } else { out as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_buffer_holds_few_packets_that_came_in_pages() {
        assert_eq!(most_out(212_992, 4352), 36);
        assert_eq!(most_out(212_992, 768), 207);
        assert_eq!(most_out(2304, 4352), 4);
        assert_eq!(most_out(u32::MAX, 0), 0xbfff_ffff);
    }
}
