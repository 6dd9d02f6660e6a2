//! Where tshark's view is another than that of a host that has to steer the packet.
//!
//! Each rule says in which packets it holds and which differences it explains; everything else is
//! a mismatch. Rules are general: they look at the packet and at what tshark shows of it, never at
//! the name of a capture.

use rxsteer_core::dissect::{DissectError, Layer};

use super::table::Row;
use super::view::Seen;

/// A packet with both views of it.
pub(crate) struct Case<'a> {
    pub(crate) row: &'a Row<'a>,
    pub(crate) seen: &'a Seen<'a>,
    /// Why our dissector stopped.
    pub(crate) stop: Option<DissectError>,
    /// Whether the link header names a network protocol.
    pub(crate) has_network: bool,
}

/// A difference that is explained.
pub(crate) struct Rule {
    /// Short name for the summary.
    pub(crate) name: &'static str,
    /// Why the oracle, not the dissector, is off.
    pub(crate) reason: &'static str,
    applies: fn(&Case<'_>) -> bool,
    covers: fn(&Case<'_>, &str, &str, &str) -> bool,
}

/// All rules; the first that explains a difference counts.
pub(crate) const RULES: [Rule; 19] = [
    Rule {
        name: "cut header",
        reason: "tshark shows the fields of a header that are there before the bytes end; we take \
                 a header whole or not at all, except that ports need only their own four bytes",
        applies: |case| {
            matches!(case.stop, Some(DissectError::Truncated(_))) && case.row.get("t_note") != "-"
        },
        covers: |case, column, ours, theirs| {
            deeper(case, column, ours, theirs)
                || (is_field(column) && (ours == "-" || theirs == "-"))
                || column == "icmp"
        },
    },
    Rule {
        name: "cut port",
        reason: "the length field ends inside the transport header: tshark shows no ports then",
        applies: |case| matches!(case.stop, Some(DissectError::Truncated(_))),
        covers: |_, column, _, theirs| column.ends_with("port") && theirs == "-",
    },
    Rule {
        name: "refused header",
        reason: "tshark reads on behind a header of a version or shape that does not exist, or \
                 whose version is not the one announced",
        applies: |case| {
            matches!(
                case.stop,
                Some(
                    DissectError::BadPptp(_)
                        | DissectError::GreRouting(_)
                        | DissectError::BadGreVersion(_)
                        | DissectError::BadPppoe(_)
                        | DissectError::BadVersion(_)
                        | DissectError::BadTunnel(_)
                )
            )
        },
        covers: deeper,
    },
    Rule {
        name: "depth bound",
        reason: "more headers, or more tags, than the documented bound",
        applies: |case| {
            matches!(case.stop, Some(DissectError::TooDeep(_) | DissectError::TooManyTags(_)))
        },
        covers: |case, column, ours, theirs| {
            deeper(case, column, ours, theirs)
                || column == "icmp"
                || column.ends_with("proto")
                || (column.ends_with("port") && ours == "-")
        },
    },
    Rule {
        name: "bad length",
        reason: "an IPv4 total length below the header's own size: tshark shows nothing of it",
        applies: |case| {
            matches!(case.stop, Some(DissectError::BadLength(_) | DissectError::BadIhl(_)))
        },
        covers: |_, column, _, theirs| is_field(column) && theirs == "-",
    },
    Rule {
        name: "no reader",
        reason: "on the way to its next IP header tshark passes a protocol that the dissector does \
                 not look into",
        applies: |case| passed_on_the_way(case).any(|layer| !READ.contains(&layer)),
        covers: |case, column, ours, theirs| deeper(case, column, ours, theirs) || column == "icmp",
    },
    Rule {
        name: "no such tunnel",
        reason: "a tunnel that the dissector does not know, with no IP header in it",
        applies: |_| true,
        covers: |_, column, ours, theirs| {
            let is_known = |entry: &&str| {
                let name = entry.split('/').next().unwrap_or("");
                READ.contains(&name) || matches!(name, "4in4" | "6in4" | "4in6" | "6in6")
            };
            let known: Vec<&str> = theirs.split(',').filter(is_known).collect();
            column == "tunnel"
                && (if known.is_empty() { "-".into() } else { known.join(",") }) == ours
        },
    },
    Rule {
        name: "content",
        reason: "tshark knows WireGuard by its content on any port; here the port decides",
        applies: |case| case.seen.layers.last() == Some(&Layer::Udp),
        covers: |_, column, ours, theirs| {
            let added = if ours == "-" { Some(theirs) } else { theirs.strip_prefix(ours) };
            column == "tunnel" && matches!(added, Some("wg" | ",wg"))
        },
    },
    Rule {
        name: "source port",
        reason: "tshark also takes the source port for that of a tunnel in which it is entropy",
        applies: |case| case.seen.layers.last() == Some(&Layer::Udp),
        covers: |case, column, ours, theirs| {
            let ports = case.seen.ips.last().and_then(|ip| ip.ports);
            ports.is_some_and(|(src, _)| ENTROPY_SOURCE.contains(&src))
                && (deeper(case, column, ours, theirs) || column == "icmp")
        },
    },
    Rule {
        name: "no network header",
        reason: "the link header names no network protocol; tshark guesses",
        applies: |case| !case.has_network,
        covers: |_, _, ours, _| ours == "-",
    },
    Rule {
        name: "source route",
        reason: "tshark's destination is the last address of an IPv4 source route",
        applies: |_| true,
        covers: |case, column, _, theirs| {
            let ip = match column {
                "o_dst" => case.seen.ips.first(),
                "i_dst" => case.seen.ips.last(),
                _ => None,
            };
            ip.is_some_and(|ip| ip.route_end.as_deref() == Some(theirs))
        },
    },
    Rule {
        name: "quoted identifier",
        reason: "an ICMP error has no identifier; tshark shows that of the quoted packet",
        applies: |_| true,
        covers: |_, column, ours, theirs| {
            column == "icmp"
                && ours.ends_with(":-")
                && theirs.rsplit_once(':').map(|parts| parts.0)
                    == ours.rsplit_once(':').map(|parts| parts.0)
        },
    },
    Rule {
        name: "short icmp",
        reason: "an ICMP header of which not all eight bytes are there is malformed for tshark",
        applies: |case| case.row.get("t_note") != "-",
        covers: |_, column, _, _| column == "icmp",
    },
    Rule {
        name: "v6 extension behind v4",
        reason: "tshark follows IPv6 extension headers behind IPv4, where they do not exist",
        applies: |case| {
            let mut behind_v4 = false;
            layers(case).any(|layer| {
                let found = behind_v4 && layer.starts_with("ipv6.");
                behind_v4 = layer == "ip";
                found
            })
        },
        covers: |_, column, _, _| column == "icmp",
    },
    Rule {
        name: "below a label",
        reason: "nothing says what is below an MPLS label: other than IP, tshark guesses by the \
                 bytes whether there is a control word",
        applies: |case| {
            case.seen.layers.contains(&Layer::PwControl)
                || case.row.get("tunnel").contains("pwethcw")
        },
        covers: |_, _, _, _| true,
    },
    Rule {
        name: "wrong payload for its port",
        reason: "tshark names a tunnel by its port although the header is not that of the tunnel",
        applies: |case| {
            case.row.get("t_note").contains("malformed")
                && case.seen.layers.last() == Some(&Layer::Udp)
        },
        covers: |case, column, ours, theirs| {
            column == "tunnel" && deeper(case, column, ours, theirs)
        },
    },
    Rule {
        name: "jumbogram",
        reason: "tshark shows nothing of an IPv6 header of payload length 0 whose jumbo option it \
                 finds malformed",
        applies: |case| {
            case.row.get("t_note").contains("malformed")
                && case.seen.layers.contains(&Layer::HopByHop)
        },
        covers: |_, column, _, theirs| is_field(column) && theirs == "-",
    },
    Rule {
        name: "cut macsec",
        reason: "tshark shows no MACsec where the frame was cut in front of its check value",
        applies: |case| {
            case.seen.layers.last() == Some(&Layer::Macsec)
                && case.row.get("caplen") != case.row.get("wirelen")
        },
        covers: |_, column, _, theirs| column == "tunnel" && theirs == "-",
    },
    Rule {
        name: "compressed payload",
        reason: "tshark decompresses payloads",
        applies: |case| case.seen.layers.contains(&Layer::IpComp),
        covers: deeper,
    },
];

/// Tshark's names of the headers that the dissector reads.
const READ: [&str; 47] = [
    "ah",
    "ayiya",
    "batadv",
    "capwap.data",
    "cfp",
    "cmd",
    "data",
    "erspan",
    "esp",
    "etag",
    "eth",
    "etherip",
    "geneve",
    "gre",
    "gtp",
    "hsr",
    "ipcomp",
    "ieee8021ad",
    "ieee8021ah",
    "ip",
    "ipv6",
    "ipv6.dstopts",
    "ipv6.fraghdr",
    "ipv6.hopopts",
    "ipv6.routing",
    "l2tp",
    "lisp-data",
    "llc",
    "macsec",
    "mpls",
    "nsh",
    "null",
    "ppp",
    "pppoes",
    "pwethcw",
    "raw",
    "shim6",
    "sll",
    "tcp",
    "teredo",
    "trill",
    "udp",
    "udpencap",
    "vlan",
    "vntag",
    "vxlan",
    "wg",
];

/// Tunnels whose source port stands for the inner flow.
const ENTROPY_SOURCE: [u16; 5] = [4341, 4789, 4790, 6081, 6635];

/// Returns the headers that tshark shows between the last IP header that both saw and the first
/// that only tshark saw; none if it saw no more than we.
fn passed_on_the_way<'a>(case: &Case<'a>) -> impl Iterator<Item = &'a str> {
    let both = case.seen.ips.len();
    let more = their_ips(case) > both;
    let mut ips = 0;
    layers(case).filter(move |layer| {
        ips += usize::from(matches!(*layer, "ip" | "ipv6"));
        more && ips == both
    })
}

/// Returns whether tshark shows the same as we do up to where we stopped, and more behind.
fn deeper(case: &Case<'_>, column: &str, ours: &str, theirs: &str) -> bool {
    match column {
        "vlan" | "vlan_in" | "tunnel" => is_prefix(ours, theirs),
        _ if column.starts_with("i_") => their_ips(case) > case.seen.ips.len(),
        _ if column.starts_with("o_") => case.seen.ips.is_empty(),
        _ => false,
    }
}

/// Returns whether a list begins with another; of its last entry the number may be missing.
fn is_prefix(ours: &str, theirs: &str) -> bool {
    if ours == "-" {
        return true;
    }
    let ours: Vec<&str> = ours.split(',').collect();
    let theirs: Vec<&str> = theirs.split(',').collect();
    let name = |entry: &str| entry.split('/').next().unwrap_or("").to_owned();
    ours.len() <= theirs.len()
        && ours.iter().zip(&theirs).enumerate().all(|(index, (ours_at, theirs_at))| {
            ours_at == theirs_at || (index + 1 == ours.len() && name(ours_at) == name(theirs_at))
        })
}

/// Returns the number of IP headers that tshark saw.
fn their_ips(case: &Case<'_>) -> usize {
    layers(case).filter(|layer| matches!(*layer, "ip" | "ipv6")).count()
}

fn layers<'a>(case: &Case<'a>) -> impl Iterator<Item = &'a str> {
    case.row.get("layers").split(':')
}

/// Returns whether a column is a field of an IP header or of the transport behind it.
fn is_field(column: &str) -> bool {
    column.starts_with("o_") || column.starts_with("i_")
}

impl Rule {
    /// Returns the rule that explains a difference.
    pub(crate) fn find(
        case: &Case<'_>,
        column: &str,
        ours: &str,
        theirs: &str,
    ) -> Option<&'static Self> {
        const ALL: &[Rule] = &RULES;
        ALL.iter().find(|rule| (rule.applies)(case) && (rule.covers)(case, column, ours, theirs))
    }
}
