//! Where each packet went, stage by stage, and each in one place.
//!
//! The stages are those of the receive path: the link and the backlogs, IP, the UDP socket, the
//! reader. What a stage lost is read from the kernel's counters, never taken as a difference, so that
//! the sum is a proof: what no counter explains is shown as `unexplained`.
//!
//! Source: RFC 4113 (`udpInErrors`, `udpNoPorts`) and the names of `/proc/net/snmp`; the drop column
//! of `/proc/net/udp`; veth's counters, which see a packet that the other end's backlog or ring
//! refused as dropped by the sender's device.

use rxsteer_testbed::DeviceCounters;
use serde::Serialize;

use super::SinkReport;
use crate::{GenReport, Kind};

/// Most datagrams that the kernel merges into one (`UDP_GRO_CNT_MAX`).
const MOST_MERGED: i64 = 64;

/// Where the packets of a run went.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Account {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets whose datagrams were read.
    pub received: u64,
    /// Dropped before IP: no room in the ring of the device or in a backlog, or the flow limit.
    pub backlog: u64,
    /// Dropped by IP: damaged, not for this host, no memory.
    pub ip: u64,
    /// Fragments that were not put together.
    pub reassembly: u64,
    /// For a port that nobody reads.
    pub no_port: u64,
    /// Dropped by the socket for a wrong checksum.
    pub checksum: u64,
    /// Dropped by the socket for want of room: the reader was too slow.
    ///
    /// Of datagrams that the kernel merged it counts messages, not datagrams. Then this is what is
    /// missing, as long as so many messages of 1 to 64 datagrams can explain it.
    pub socket: u64,
    /// What is left: 0, or the counters and the sender disagree.
    pub unexplained: i64,
    /// What a person should know about it.
    pub findings: Vec<Finding>,
}

/// Something that went wrong, and why.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// Stable name.
    pub code: &'static str,
    /// In words, with the remedy.
    pub text: String,
}

impl Account {
    pub(super) fn new(
        (kind, merges): (Kind, bool),
        source: &GenReport,
        sink: &SinkReport,
        backlog: u64,
    ) -> Self {
        let counter = |name: &str| -> u64 {
            let six = name.replacen("Ip.", "Ip6.", 1).replacen("Udp.", "Udp6.", 1);
            [name, six.as_str()]
                .iter()
                .map(|name| sink.protocol.get(*name).copied().unwrap_or(0))
                .sum()
        };
        let sum = |names: &[&str]| -> u64 { names.iter().map(|name| counter(name)).sum() };
        // A datagram in two fragments is two packets.
        let parts = if kind == Kind::Fragments { 2 } else { 1 };
        let checksum = counter("Udp.InCsumErrors");
        let put_together = parts * counter("Ip.ReasmOKs");
        let mut account = Self {
            sent: source.sent,
            received: sink.received * parts,
            backlog,
            ip: sum(&[
                "Ip.InHdrErrors",
                "Ip.InAddrErrors",
                "Ip.InUnknownProtos",
                "Ip.InDiscards",
                "Ip.InTruncatedPkts",
            ]),
            reassembly: counter("Ip.ReasmReqds").saturating_sub(put_together),
            no_port: counter("Udp.NoPorts") * parts,
            checksum: checksum * parts,
            socket: sink.socket_drops * parts,
            unexplained: 0,
            findings: Vec::new(),
        };
        account.unexplained = account.sent as i64 - account.explained() as i64;
        // A socket that filters checks before it queues, and counts a wrong checksum as a drop too.
        let twice = account.checksum.min(account.socket) as i64;
        if (-twice..0).contains(&account.unexplained) {
            account.socket -= account.unexplained.unsigned_abs();
            account.unexplained = 0;
        }
        let most = (MOST_MERGED - 1) * account.socket as i64;
        if merges && (0..=most).contains(&account.unexplained) {
            account.socket += account.unexplained as u64;
            account.unexplained = 0;
        }
        account.findings = account.find();
        account
    }

    /// Returns the sum of all places in which a packet may be.
    fn explained(&self) -> u64 {
        self.received
            + self.backlog
            + self.ip
            + self.reassembly
            + self.no_port
            + self.checksum
            + self.socket
    }

    /// Returns whether every packet was found in one place.
    pub fn is_complete(&self) -> bool {
        self.unexplained == 0
    }

    fn find(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.checksum > 0 {
            let text = format!(
                "{} packets have an unfinished checksum: the sender left it to its device (transmit \
                 checksum offload), and on the way XDP or CPUMAP lost the note that it is missing. \
                 Switch it off at the sender: ethtool -K DEV tx-checksum-ip-generic off",
                self.checksum
            );
            findings.push(Finding { code: "checksum-incomplete", text });
        }
        if self.unexplained != 0 {
            let text = format!(
                "{} packets were sent that no counter tells of; frames redirected to a veth device \
                 are lost so where its peer neither polls (GRO) nor has an XDP program",
                self.unexplained
            );
            findings.push(Finding { code: "unexplained", text });
        }
        findings
    }
}

/// Returns the packets that a veth pair and the backlogs lost, from the counters of both ends before
/// and after.
///
/// A backlog that refuses a packet of the sender's CPU is seen by both ends, one that refuses a packet
/// which RPS sent to another CPU by the receiver's end alone. An end that polls has a ring before its
/// backlog; where `has_ring`, packets go through it, and its refusals only the sender's end sees (those of
/// frames that XDP redirects both do). Those that the sender was told of, and sent
/// again, are `returned`.
pub(super) fn lost_on_link(
    source: (&DeviceCounters, &DeviceCounters),
    sink: (&DeviceCounters, &DeviceCounters),
    returned: u64,
    has_ring: bool,
) -> u64 {
    let at_source = source.1.tx_dropped.wrapping_sub(source.0.tx_dropped).saturating_sub(returned);
    let at_sink = sink.1.rx_dropped.wrapping_sub(sink.0.rx_dropped);
    if has_ring { at_source + at_sink } else { at_source.max(at_sink) }
}
