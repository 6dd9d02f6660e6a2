//! Who holds how much of one socket's room, and who may have more.
//!
//! A tree of shares: the room is divided by class, a class by source prefix, a prefix by flow.
//!
//! While less than half of the room is used, everybody is let in. From then on a packet is let in
//! if with it nobody on its way up the tree holds more than its limit, where somebody who holds
//! nothing may always have one packet of a limit that is not 0:
//!
//! ```text
//! usable = 7/8 of the room, shrinking in line to 0 while the last eighth of the room fills up
//! class  = usable × weight / sum of the weights of the classes that hold anything, itself included
//! prefix = class × 7/8 / number of prefixes of the class that hold anything, itself included
//! flow   = prefix × 7/8 / number of flows of the prefix that hold anything, itself included
//! ```
//!
//! The eighths are kept for those that come later: without them, who is at his limit takes each
//! place that a read frees, and a newcomer finds none. That a class does not use its share leaves no
//! reader idle: somebody is refused only while half of the room is used.
//!
//! What each holds is not counted by credits that could be lost but follows from a log: the queue
//! is first in, first out, so what has left are the oldest entries. The log never holds more
//! entries than there are packets in the queue and on their way; whatever error a lost packet makes is
//! gone when the packets behind it have left.
//!
//! Always true: the sum of what the children of a node hold is at most what the node holds; a node is
//! in use exactly while it holds something.
//! Limits: 512 prefixes and flows of those who are known, and 504 of strangers, have nodes at one
//! time. Those that find their bucket of eight full share the node of a sibling there, or have
//! their parent's share only.
//! Source: the shrinking limit is the idea of Choudhury and Hahne, "Dynamic queue length thresholds
//! for shared-memory packet switches", 1998.

use super::room::ROOM;

/// Levels of the tree below the room.
pub const LEVELS: usize = 3;
/// Number of classes.
pub const CLASSES: usize = 3;

const WAYS: usize = 8;
const NODES: usize = 1024;
const BUCKETS: u64 = (NODES / WAYS) as u64;

/// What a packet is to the socket that it is for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Standing {
    /// Of a flow that comes back, from a prefix that does too, or of a connected socket's.
    Flow,
    /// From a prefix that comes back.
    Regular,
    /// From a prefix that was not seen often enough, or a connection request.
    Stranger,
}

impl Standing {
    /// All of them, in the order of [`index`](Self::index).
    pub const ALL: [Self; CLASSES] = [Self::Flow, Self::Regular, Self::Stranger];

    /// Returns the place of its counter.
    pub const fn index(self) -> usize {
        match self {
            Self::Flow => 0,
            Self::Regular => 1,
            Self::Stranger => 2,
        }
    }

    /// Returns the name in outputs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Regular => "regular",
            Self::Stranger => "stranger",
        }
    }
}

/// At which level somebody has had its share.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Level {
    /// The class.
    Class,
    /// The prefix.
    Prefix,
    /// The flow.
    Flow,
}

/// One node of the tree. 16 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    tag: u32,
    /// Parts held by it and all below it; 0: not in use.
    held: u32,
    /// When it was last refused, in ticks of the caller; 0: never.
    refused: u32,
    parent: u16,
    /// Nodes right below it that are in use.
    children: u16,
}

/// The nodes of one packet, from its class down.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    nodes: [u16; LEVELS],
    tags: [u32; LEVELS],
    depth: usize,
}

/// The shares of one socket.
#[derive(Clone, Debug)]
pub struct Shares {
    nodes: Box<[Node; NODES]>,
    weights: [u32; CLASSES],
    /// A ring: leaf in the upper 10 bits, charge in the lower 22.
    log: Vec<u32>,
    first: usize,
    count: usize,
}

const CHARGE_BITS: u32 = 22;
const _: () = assert!(NODES <= 1 << (32 - CHARGE_BITS) && ROOM < 1 << CHARGE_BITS);

impl Shares {
    /// Makes the shares of an empty room whose log holds `log` packets (rounded up to a power of
    /// two); weights are at least 1.
    pub fn new(log: u32, weights: [u8; CLASSES]) -> Self {
        let log = log.clamp(1, 1 << 24).next_power_of_two() as usize;
        Self {
            nodes: Box::new([Node::default(); NODES]),
            weights: weights.map(|weight| u32::from(weight.max(1))),
            log: vec![0; log],
            first: 0,
            count: 0,
        }
    }

    /// Returns the bytes of the tree and the log.
    pub fn memory_bytes(&self) -> usize {
        NODES * size_of::<Node>() + self.log.len() * 4
    }

    /// Returns the packets that the log holds.
    pub fn logged(&self) -> usize {
        self.count
    }

    /// Returns the parts that a class holds.
    pub fn held(&self, standing: Standing) -> u32 {
        self.nodes[standing.index()].held
    }

    /// Forgets everybody.
    pub fn clear(&mut self) {
        self.nodes.fill(Node::default());
        (self.first, self.count) = (0, 0);
    }

    /// Takes off the oldest until no more are held than `packets`, in queue and on the way.
    #[inline]
    pub fn settle(&mut self, packets: u64) {
        while self.count as u64 > packets {
            self.leave_oldest();
        }
    }

    /// Returns the nodes of a packet: its class and, by keyed hashes, its prefix and its flow.
    #[inline]
    pub fn path(&self, standing: Standing, prefix: u64, flow: Option<u64>) -> Path {
        let class = standing.index() as u16;
        let mut path = Path { nodes: [class; LEVELS], tags: [0; LEVELS], depth: 1 };
        for (depth, hash) in [(1, Some(prefix)), (2, flow)] {
            let parent = path.nodes[depth - 1];
            let found = hash.and_then(|hash| Some((self.find(standing, parent, hash)?, hash)));
            let Some((node, hash)) = found else { break };
            (path.nodes[depth], path.tags[depth]) = (node, hash as u32);
            path.depth = depth + 1;
        }
        path
    }

    /// Returns at which level, if any, a packet of this charge is too much while `used` parts of
    /// the room are in use.
    #[inline]
    pub fn over(&self, path: &Path, charge: u32, used: u32) -> Option<Level> {
        let free = ROOM.saturating_sub(used);
        let usable = u64::from(7 * free.min(ROOM / 8));
        let [class_at, prefix_at, flow_at] = path.nodes.map(usize::from);
        let class = &self.nodes[class_at % NODES];
        let weight = self.weights[class_at % CLASSES];
        let others = self.nodes.iter().zip(self.weights).enumerate();
        let others = others.filter(|(at, (node, _))| *at != class_at && node.held > 0);
        let weights = weight + others.map(|(_, (_, weight))| weight).sum::<u32>();
        let mut limit = usable * u64::from(weight) / u64::from(weights);
        if class.exceeds(charge, limit) {
            return Some(Level::Class);
        }
        let mut parent = class;
        for (level, at) in [(Level::Prefix, prefix_at), (Level::Flow, flow_at)] {
            if path.depth <= level as usize {
                break;
            }
            let node = &self.nodes[at % NODES];
            let siblings = u64::from(parent.children) + u64::from(node.held == 0);
            limit = limit * 7 / 8 / siblings.max(1);
            if node.exceeds(charge, limit) {
                return Some(level);
            }
            parent = node;
        }
        None
    }

    /// Lets a packet in: its nodes hold `charge` more until it has left.
    #[inline]
    pub fn enter(&mut self, path: &Path, charge: u32) {
        if self.count == self.log.len() {
            self.leave_oldest();
        }
        // The oldest may have been the last of a node of the path; a node that is not in use is
        // anybody's, so it is set up anew.
        for depth in 0..path.depth {
            let at = usize::from(path.nodes[depth]) % NODES;
            if self.nodes[at].held == 0 {
                let parent = if depth == 0 { at as u16 } else { path.nodes[depth - 1] };
                let fresh = Node { tag: path.tags[depth], parent, ..Node::default() };
                // A class keeps its memory.
                let refused = if depth == 0 { self.nodes[at].refused } else { 0 };
                self.nodes[at] = Node { refused, ..fresh };
                if depth > 0 {
                    self.nodes[usize::from(parent) % NODES].children += 1;
                }
            }
            self.nodes[at].held = self.nodes[at].held.saturating_add(charge);
        }
        let entry = u32::from(path.leaf()) << CHARGE_BITS | charge;
        let last = (self.first + self.count) & (self.log.len() - 1);
        self.log[last] = entry;
        self.count += 1;
    }

    /// Remembers that a packet was refused at a tick other than 0.
    #[inline]
    pub fn refuse(&mut self, path: &Path, tick: u32) {
        let at = usize::from(path.leaf()) % NODES;
        if at < CLASSES || self.nodes[at].held > 0 {
            self.nodes[at].refused = tick;
        }
    }

    /// Returns whether a packet's own node was refused in the last `ticks`.
    #[inline]
    pub fn was_refused(&self, path: &Path, tick: u32, ticks: u32) -> bool {
        let at = usize::from(path.leaf()) % NODES;
        let node = &self.nodes[at];
        let live = at < CLASSES || node.held > 0;
        live && node.refused != 0 && tick.wrapping_sub(node.refused) <= ticks
    }

    /// Returns the node of a hash below a parent: its own, a free one, or one that it shares.
    #[inline]
    fn find(&self, standing: Standing, parent: u16, hash: u64) -> Option<u16> {
        // The first bucket is that of the classes. Strangers have half of the others, so that they
        // cannot take the nodes of those who are known.
        let (first, count) = match standing {
            Standing::Stranger => (1, BUCKETS / 2 - 1),
            Standing::Flow | Standing::Regular => (BUCKETS / 2, BUCKETS / 2),
        };
        let bucket = (first + (((hash >> 32) * count) >> 32)) as usize;
        let nodes = self.nodes.get(bucket * WAYS..bucket * WAYS + WAYS)?;
        let tag = hash as u32;
        let (mut free, mut shared) = (None, None);
        for (way, node) in nodes.iter().enumerate() {
            let at = (bucket * WAYS + way) as u16;
            if node.held == 0 {
                // The parent may be a free node that this packet would be the first to use.
                if at != parent {
                    free = Some(at);
                }
            } else if node.parent == parent {
                if node.tag == tag {
                    return Some(at);
                }
                shared = Some(at);
            }
        }
        free.or(shared)
    }

    fn leave_oldest(&mut self) {
        if self.count == 0 {
            return;
        }
        let entry = self.log[self.first];
        self.first = (self.first + 1) & (self.log.len() - 1);
        self.count -= 1;
        let charge = entry & ((1 << CHARGE_BITS) - 1);
        let mut at = (entry >> CHARGE_BITS) as usize % NODES;
        for _ in 0..LEVELS {
            let node = &mut self.nodes[at];
            let parent = usize::from(node.parent) % NODES;
            node.held = node.held.saturating_sub(charge);
            let gone = node.held == 0;
            if at < CLASSES {
                return;
            }
            if gone {
                let siblings = &mut self.nodes[parent].children;
                *siblings = siblings.saturating_sub(1);
            }
            at = parent;
        }
    }
}

impl Path {
    fn leaf(&self) -> u16 {
        self.nodes.get(self.depth.wrapping_sub(1)).copied().unwrap_or(0)
    }
}

impl Node {
    #[inline]
    fn exceeds(&self, charge: u32, limit: u64) -> bool {
        limit == 0 || (self.held > 0 && u64::from(self.held) + u64::from(charge) > limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Each node holds what its children and the packets that end at it hold, knows how many of its
    /// children are in use, and is in use only below one that is.
    fn check(shares: &Shares) {
        let mut own = vec![0u64; NODES];
        for n in 0..shares.count {
            let entry = shares.log[(shares.first + n) & (shares.log.len() - 1)];
            own[(entry >> CHARGE_BITS) as usize] += u64::from(entry & ((1 << CHARGE_BITS) - 1));
        }
        let mut children = vec![0usize; NODES];
        for node in shares.nodes.iter().skip(CLASSES).filter(|node| node.held > 0) {
            own[usize::from(node.parent)] += u64::from(node.held);
            children[usize::from(node.parent)] += 1;
        }
        for (at, node) in shares.nodes.iter().enumerate() {
            assert_eq!(u64::from(node.held), own[at], "node {at}");
            if at < CLASSES || node.held > 0 {
                assert_eq!(usize::from(node.children), children[at], "node {at}");
            } else {
                assert_eq!(children[at], 0, "node {at}");
            }
        }
    }

    fn hash(n: u32) -> u64 {
        u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_tree_holds_what_the_log_says(
            ops in prop::collection::vec((0usize..3, 0u32..60, 0u32..60, 1u32..ROOM, 0u64..40), 0..120),
            // All hashes in one bucket, so that nodes are shared and paths are cut short.
            crowded in any::<bool>(),
        ) {
            let mut shares = Shares::new(32, [4, 2, 1]);
            for (class, prefix, flow, charge, packets) in ops {
                let spread = |n: u32| if crowded { u64::from(n) } else { hash(n) };
                let flow = (flow > 0).then(|| spread(prefix * 64 + flow));
                let path = shares.path(Standing::ALL[class], spread(prefix), flow);
                shares.enter(&path, charge);
                check(&shares);
                shares.settle(packets);
                prop_assert!(shares.logged() as u64 <= packets);
                check(&shares);
            }
        }
    }

    #[test]
    fn a_class_alone_has_seven_eighths_and_two_share_by_weight() {
        let fill = |shares: &mut Shares, standing, mut used| {
            let path = shares.path(standing, hash(standing.index() as u32), None);
            while shares.over(&path, ROOM / 1024, used).is_none() {
                shares.enter(&path, ROOM / 1024);
                used += ROOM / 1024;
            }
            used
        };
        let mut shares = Shares::new(4096, [4, 2, 1]);
        let used = fill(&mut shares, Standing::Stranger, 0);
        // 7/8 for the class, 7/8 of that for its only prefix.
        assert_eq!(used, ROOM / 64 * 49);
        // A regular has two thirds of 7/8, of which his prefix has 7/8; the end of the room narrows it.
        fill(&mut shares, Standing::Regular, used);
        let held = shares.held(Standing::Regular);
        assert!(held > ROOM / 16 && held < ROOM - used, "{held}");
        // The strangers are over their share now.
        let path = shares.path(Standing::Stranger, hash(2), None);
        assert_eq!(shares.over(&path, 1, used), Some(Level::Class));
    }
}
