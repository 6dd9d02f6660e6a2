//! The usual testbed: a sender and a receiver, and one link between them.
//!
//! Addresses are of the networks set aside for benchmarks (RFC 2544 and RFC 5180): each end finds
//! any of them on the link, so a sender may write any source. Both ends know each other's Ethernet
//! address and ask nobody.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::link::Device;
use crate::{Namespace, Offloads, Testbed, TestbedError, VethEnd, VethSpec};

/// What the link of a [`Pair`] is like.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PairSpec {
    /// Queues of both ends, each way.
    pub queues: u32,
    /// Most bytes of a packet without its Ethernet header.
    pub mtu: u32,
    /// Offloads of the sender's end.
    pub source: Offloads,
    /// Offloads of the receiver's end.
    pub sink: Offloads,
}

impl Default for PairSpec {
    /// One queue, 1,500 bytes, no offload.
    fn default() -> Self {
        Self { queues: 1, mtu: 1500, source: Offloads::NONE, sink: Offloads::NONE }
    }
}

/// Two namespaces with a veth pair between them.
#[derive(Debug)]
pub struct Pair {
    /// Where packets are sent; its device is [`Self::SOURCE_DEVICE`].
    pub source: Namespace,
    /// Where packets are received; its device is [`Self::SINK_DEVICE`].
    pub sink: Namespace,
    /// The sender's device.
    pub source_device: Device,
    /// The receiver's device.
    pub sink_device: Device,
}

impl Pair {
    /// Name of the sender's device.
    pub const SOURCE_DEVICE: &str = "tx0";
    /// Name of the receiver's device.
    pub const SINK_DEVICE: &str = "rx0";
    /// IPv4 address of the sender.
    pub const SOURCE_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
    /// IPv4 address of the receiver.
    pub const SINK_V4: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 254);
    /// Bits of the IPv4 network that both are in: 198.18.0.0/15.
    pub const PREFIX_V4: u8 = 15;
    /// IPv6 address of the sender.
    pub const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);
    /// IPv6 address of the receiver.
    pub const SINK_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0xffff, 0, 0, 2);
    /// Bits of the IPv6 network that both are in: 2001:2::/48.
    pub const PREFIX_V6: u8 = 48;

    /// Makes the namespaces and the link.
    ///
    /// # Errors
    /// [`TestbedError`], with the step that failed.
    pub fn new(testbed: &Testbed, spec: &PairSpec) -> Result<Self, TestbedError> {
        let source = testbed.namespace()?;
        let sink = testbed.namespace()?;
        for namespace in [&source, &sink] {
            quiet(namespace)?;
        }
        source.add_veth(
            &sink,
            &VethSpec {
                here: VethEnd::new(Self::SOURCE_DEVICE).queues(spec.queues).offloads(spec.source),
                there: VethEnd::new(Self::SINK_DEVICE).queues(spec.queues).offloads(spec.sink),
                mtu: spec.mtu,
            },
        )?;
        // Nobody asks or announces anything, so that what is counted is what was sent.
        source.set_no_arp(Self::SOURCE_DEVICE)?;
        sink.set_no_arp(Self::SINK_DEVICE)?;
        let source_device = source.device(Self::SOURCE_DEVICE)?;
        let sink_device = sink.device(Self::SINK_DEVICE)?;
        let v4 = [IpAddr::V4(Self::SOURCE_V4), IpAddr::V4(Self::SINK_V4)];
        let v6 = [IpAddr::V6(Self::SOURCE_V6), IpAddr::V6(Self::SINK_V6)];
        let networks = if has_ipv6() { vec![v4, v6] } else { vec![v4] };
        for [from, to] in networks {
            let prefix_len = if from.is_ipv4() { Self::PREFIX_V4 } else { Self::PREFIX_V6 };
            source.add_address(Self::SOURCE_DEVICE, from, prefix_len)?;
            sink.add_address(Self::SINK_DEVICE, to, prefix_len)?;
            source.add_neighbour(Self::SOURCE_DEVICE, to, sink_device.mac)?;
            sink.add_neighbour(Self::SINK_DEVICE, from, source_device.mac)?;
        }
        Ok(Self { source, sink, source_device, sink_device })
    }
}

/// Lets a namespace send nothing of its own accord, and take packets whatever their source.
fn quiet(namespace: &Namespace) -> Result<(), TestbedError> {
    for which in ["all", "default"] {
        namespace.set_sysctl(&format!("net.ipv4.conf.{which}.rp_filter"), "0")?;
        if has_ipv6() {
            let name = |setting| format!("net.ipv6.conf.{which}.{setting}");
            // No link-local address, no router asked for.
            namespace.set_sysctl(&name("addr_gen_mode"), "1")?;
            namespace.set_sysctl(&name("accept_ra"), "0")?;
        }
    }
    Ok(())
}

fn has_ipv6() -> bool {
    std::path::Path::new("/proc/sys/net/ipv6").exists()
}
