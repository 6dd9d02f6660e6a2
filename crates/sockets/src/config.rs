//! What a namespace is made with.

use std::fmt;
use std::sync::Arc;

use crate::{FlowEvents, Profile};

/// What a namespace is made with.
#[derive(Clone)]
pub struct Config {
    /// Whose rules it follows.
    pub profile: Profile,
    /// Lowest and highest automatic port (`net.ipv4.ip_local_port_range`).
    pub port_range: (u16, u16),
    /// Key of the hashes: where connected sockets are filed and which member of a group gets a
    /// 4-tuple. Live, 128 random bits; a fixed key repeats a run exactly.
    pub key: (u64, u64),
    /// Connected sockets to make room for at first; tables grow when it is exceeded.
    pub connected_capacity: usize,
    /// Most sockets that may be open at a time; one more is refused with
    /// [`SocketError::NoBuffers`](crate::SocketError::NoBuffers).
    pub most_sockets: usize,
    /// Who hears of the flows of connected sockets.
    pub events: Option<Arc<dyn FlowEvents>>,
}

impl Default for Config {
    /// The profile `Rxsteer`, ports 32768 to 60999 as Linux, a key of 0, and 16 M sockets at most.
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            port_range: (32_768, 60_999),
            key: (0, 0),
            connected_capacity: 64,
            most_sockets: 1 << 24,
            events: None,
        }
    }
}

impl fmt::Debug for Config {
    /// Leaves the key out: whoever reads it in a log could choose its socket of a group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("profile", &self.profile)
            .field("port_range", &self.port_range)
            .field("connected_capacity", &self.connected_capacity)
            .field("most_sockets", &self.most_sockets)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}
