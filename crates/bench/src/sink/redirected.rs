//! Field reports: packets that an XDP program redirects from one veth pair to another, and what the
//! account says of those that are lost. Needs root; without it each test says so and ends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rxsteer_testbed::{Namespace, Offloads, Testbed, TestbedError, VethEnd, VethSpec};

use super::{Account, SinkReport, SinkSpec, read_all};
use crate::{GenReport, Kind, Watch};

const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 1, 1));
const TO: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 1, 2));
const PORT: u16 = 9999;

/// A sender, a redirect in the middle, a receiver.
struct Chain {
    left: Namespace,
    middle: Namespace,
    right: Namespace,
}

impl Chain {
    fn new(test: &str) -> Option<Self> {
        let testbed = match Testbed::new() {
            Err(TestbedError::Privilege(missing)) => {
                eprintln!("skipped {test}: {missing}");
                return None;
            }
            testbed => testbed.unwrap(),
        };
        let [left, middle, right] = [(); 3].map(|()| testbed.namespace().unwrap());
        let spec = |here: &str, there: &str| VethSpec {
            here: VethEnd::new(here),
            there: VethEnd::new(there),
            mtu: 1500,
        };
        left.add_veth(&middle, &spec("a0", "b0")).unwrap();
        middle.add_veth(&right, &spec("b1", "c0")).unwrap();
        left.add_address("a0", FROM, 24).unwrap();
        right.add_address("c0", TO, 24).unwrap();
        left.add_neighbour("a0", TO, right.device("c0").unwrap().mac).unwrap();
        Some(Self { left, middle, right })
    }

    /// Sends 100 datagrams and returns what became of them.
    fn send(&self) -> (Account, SinkReport) {
        let to = self.middle.device("b1").unwrap().index;
        let _program = self.middle.run(|| crate::source::live::redirect("b0", to)).unwrap();
        let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let watch = Watch { stop: &stop, on_second: &|_| {} };
        let spec = SinkSpec::new(SocketAddr::new(TO, PORT));
        let sender = self.left.run(|| UdpSocket::bind((FROM, 0)).unwrap()).unwrap();
        let send = |_: &AtomicBool| {
            for _ in 0..100 {
                sender.send_to(&[7; 64], (TO, PORT)).unwrap();
            }
            Ok(())
        };
        let read = self.right.run(|| read_all(&spec, &watch, &over, send)).unwrap();
        let sink = read.unwrap().0;
        let source = GenReport {
            by: crate::Means::Send,
            means: String::new(),
            sent: 100,
            bytes: 6400,
            refusals: 0,
            returned: 0,
            behind: 0,
            elapsed: Duration::from_secs(1),
            cpu: Duration::ZERO,
        };
        (Account::new((Kind::Udp, false), &source, &sink, 0), sink)
    }
}

/// xdp-project/xdp-tutorial#357: the sender leaves checksums to its device, the redirect loses the note
/// that they are missing, and the receiver drops every datagram. All 100 pass once the sender writes
/// them.
#[test]
fn a_checksum_left_to_the_device_is_lost_on_a_redirect_and_explained() {
    let test = "a_checksum_left_to_the_device_is_lost_on_a_redirect_and_explained";
    let Some(chain) = Chain::new(test) else { return };
    chain.right.set_offloads("c0", Offloads { gro: true, ..Offloads::NONE }).unwrap();
    let (account, _) = chain.send();
    assert_eq!((account.received, account.unexplained), (100, 0), "{account:?}");
    assert!(account.findings.is_empty());

    chain.left.set_offloads("a0", Offloads { tx_checksum: true, ..Offloads::NONE }).unwrap();
    let (account, sink) = chain.send();
    assert_eq!((account.received, account.checksum), (0, 100), "{account:?} {sink:?}");
    assert!(account.is_complete());
    assert_eq!(account.findings[0].code, "checksum-incomplete");
    assert!(account.findings[0].text.contains("tx-checksum-ip-generic off"), "{account:?}");
}

/// xdp-project/xdp-tutorial#167: the far end of the device that frames are redirected to does not poll,
/// and has no program: all are lost, and no counter of the receiver moves. The account says so.
#[test]
fn frames_redirected_to_a_peer_that_does_not_poll_are_missed_and_explained() {
    let test = "frames_redirected_to_a_peer_that_does_not_poll_are_missed_and_explained";
    let Some(chain) = Chain::new(test) else { return };
    let (account, _) = chain.send();
    assert_eq!((account.received, account.unexplained), (0, 100), "{account:?}");
    assert_eq!(account.findings[0].code, "unexplained");
    assert!(account.findings[0].text.contains("neither polls (GRO) nor has an XDP program"));
    chain.right.set_offloads("c0", Offloads { gro: true, ..Offloads::NONE }).unwrap();
    assert_eq!(chain.send().0.received, 100);
}
