//! Counters by class, by reason and by cause of loss.

use rxsteer_core::steer::{Class, Reason};
use serde::Serialize;

/// One counter per class of packet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ByClass {
    /// TCP other than a first SYN.
    pub tcp: u64,
    /// TCP packets that open a connection.
    pub tcp_syn: u64,
    /// UDP and UDP-Lite that is no known tunnel.
    pub udp: u64,
    /// Tunnels over UDP on known ports.
    pub tunnel: u64,
    /// Everything else.
    pub other: u64,
}

impl ByClass {
    /// Returns the counter of a class.
    #[inline]
    pub const fn of(&mut self, class: Class) -> &mut u64 {
        match class {
            Class::Tcp => &mut self.tcp,
            Class::TcpSyn => &mut self.tcp_syn,
            Class::Udp => &mut self.udp,
            Class::Tunnel => &mut self.tunnel,
            Class::Other => &mut self.other,
        }
    }

    /// Returns the sum over all classes.
    pub const fn total(&self) -> u64 {
        self.tcp + self.tcp_syn + self.udp + self.tunnel + self.other
    }

    /// Returns the names and values in a fixed order.
    pub const fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("tcp", self.tcp),
            ("tcp_syn", self.tcp_syn),
            ("udp", self.udp),
            ("tunnel", self.tunnel),
            ("other", self.other),
        ]
    }
}

/// One counter per reason of a decision and class of packet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ByReason {
    /// Steered to the CPU that the flow's entry names.
    pub hit: ByClass,
    /// The table was asked and had nothing; steered by hash.
    pub miss: ByClass,
    /// The table was not asked; steered by hash.
    pub no_flow: ByClass,
    /// The entry names another CPU, but packets of the flow still wait on the old one.
    pub held: ByClass,
    /// Steered beside the consumer, whose CPU is full.
    pub beside: ByClass,
    /// A packet of no flow whose first choice was deep in backlog took its second.
    pub spilled: ByClass,
    /// Refused early, since its socket could not have taken it.
    pub shed: ByClass,
    /// Processed where it arrived.
    pub local: ByClass,
    /// Steered to the one reader of the local port; only a live attachment does that.
    pub port: ByClass,
}

impl ByReason {
    /// Returns the counters of a reason.
    #[inline]
    pub const fn of(&mut self, reason: Reason) -> &mut ByClass {
        match reason {
            Reason::Hit => &mut self.hit,
            Reason::Miss => &mut self.miss,
            Reason::NoFlow => &mut self.no_flow,
            Reason::Held => &mut self.held,
            Reason::Beside => &mut self.beside,
            Reason::Spilled => &mut self.spilled,
            Reason::Shed => &mut self.shed,
            Reason::Local => &mut self.local,
            Reason::Port => &mut self.port,
        }
    }

    /// Returns the names and counters in a fixed order.
    pub const fn named(&self) -> [(&'static str, ByClass); 9] {
        [
            ("hit", self.hit),
            ("miss", self.miss),
            ("no_flow", self.no_flow),
            ("held", self.held),
            ("beside", self.beside),
            ("spilled", self.spilled),
            ("shed", self.shed),
            ("local", self.local),
            ("port", self.port),
        ]
    }

    /// Returns the sum over all reasons and classes.
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, c)| c.total()).sum()
    }
}

/// Lost packets by cause.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Drops {
    /// The ring of the queue was full; no decision was made.
    pub ring: u64,
    /// The backlog of the chosen CPU was full.
    pub backlog: u64,
    /// The backlog of the chosen CPU was half full, mostly of the packet's flow.
    pub flow_limit: u64,
    /// The receive buffer of the socket was full.
    pub receive_buffer: u64,
    /// Shed by the policy before any work.
    pub shed: u64,
    /// The chosen CPU is offline and no CPU took over.
    pub offline: u64,
    /// The limit on packets in flight inside the model was reached.
    pub model_limit: u64,
}

impl Drops {
    /// Returns the names and values in a fixed order.
    pub const fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("ring", self.ring),
            ("backlog", self.backlog),
            ("flow_limit", self.flow_limit),
            ("receive_buffer", self.receive_buffer),
            ("shed", self.shed),
            ("offline", self.offline),
            ("model_limit", self.model_limit),
        ]
    }

    /// Returns the sum over all causes.
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, n)| n).sum()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The keys of a report are the names that the core gives to reasons and classes.
    #[test]
    fn keys_are_spelt_as_everywhere() {
        let mut reasons = ByReason::default();
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            for (offset, class) in Class::ALL.into_iter().enumerate() {
                *reasons.of(reason).of(class) = (10 * place + offset) as u64;
            }
        }
        let json = serde_json::to_value(reasons).unwrap();
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            let (name, by_class) = reasons.named()[place];
            assert_eq!(name, reason.name());
            for (offset, class) in Class::ALL.into_iter().enumerate() {
                let count = (10 * place + offset) as u64;
                assert_eq!(by_class.named()[offset], (class.name(), count));
                assert_eq!(json[name][class.name()], Value::from(count), "{name} {}", class.name());
            }
        }
        assert_eq!(json.as_object().map(serde_json::Map::len), Some(Reason::COUNT));
    }
}
