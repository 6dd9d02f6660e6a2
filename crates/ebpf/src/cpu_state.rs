//! What the programs keep for each CPU that takes packets: [`map::CPU_STATES`](crate::map).
//!
//! Words of 64 bits in three cache lines: what only the loader writes, what the CPUs that send
//! packets there write, and what only the CPU itself writes.
//!
//! | word | what |
//! | --- | --- |
//! | [`ONLINE`] | 0 if no packets may go there, else [`TAKES`] or [`LEAVES`], and perhaps [`HOLDS`] |
//! | [`BESIDE`] | 1 more than the CPU to which the packets of its readers go instead, or 0 |
//! | [`TAIL`] | packets sent there, less those that were then lost on the way |
//! | [`LOST_FULL`] | packets lost because its queue was full |
//! | [`LOST_REFUSED`] | packets that the kernel did not take after the program had sent them there |
//! | [`HEAD`] | packets that are done, at least; behind [`TAKEN`] by those that may still be in hand |
//! | [`TAKEN`] | packets taken from its queue |
//! | [`CONSUMER`] | the thread that takes them: the address of its task, for comparison only |
//! | [`MARK`], [`MARK_TIME`], [`MARK_TICK`] | see the program on the CPUMAP entry |
//! | [`LOST_MEMORY`] | packets lost after being taken, for want of memory |

/// Words of one CPU.
pub const WORDS: usize = 24;
/// See the module.
pub const ONLINE: usize = 0;
/// Of [`ONLINE`]: takes all packets.
pub const TAKES: u64 = 1;
/// Of [`ONLINE`]: being taken out of use. Works off what waits there, and takes only what must wait
/// behind it.
pub const LEAVES: u64 = 2;
/// Of [`ONLINE`]: no flow moves away while this is set, whatever was worked off, so that the tables
/// can be copied.
pub const HOLDS: u64 = 4;
/// See the module.
pub const BESIDE: usize = 1;
/// See the module.
pub const TAIL: usize = 8;
/// See the module.
pub const LOST_FULL: usize = 9;
/// See the module.
pub const LOST_REFUSED: usize = 10;
/// See the module.
pub const HEAD: usize = 16;
/// See the module.
pub const TAKEN: usize = 17;
/// See the module.
pub const CONSUMER: usize = 18;
/// See the module.
pub const MARK: usize = 19;
/// See the module.
pub const MARK_TIME: usize = 20;
/// See the module.
pub const MARK_TICK: usize = 21;
/// See the module.
pub const LOST_MEMORY: usize = 22;
