//! What an attachment would meet, said beforehand and in plain words; nothing is attached.
//!
//! Elsewhere: the kernel's own steering beside ours ([`super::own`]); errors of the steps of an
//! attachment, in the same words ([`super::error`]).
//! Source: Documentation/networking/scaling.rst; Documentation/networking/netdev-features.rst; for
//! the MTU the sizes that drivers state when they refuse.

use std::fs;

use aya::Btf;
use aya_obj::btf::BtfKind;
use rxsteer_core::CpuSet;
use rxsteer_core::cpu::CpuStates;
use rxsteer_ebpf::program;
use rxsteer_netlink::{Netlink, Protocol, XdpFeatures, xdp_features};

use super::answers;
use super::interface::{Link, all_links, index_of};
use super::own::{KernelSteering, is_at_least};
use super::peer::peer_of;
use super::{LivePolicy, MapFds, Mode, Programs, Settings, cgroup_root, check, free_interface};
use crate::{host_cpus, missing_capabilities};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Weight {
    /// As it should be.
    Fine,
    /// It will work, but something is worth knowing.
    Note,
    /// It will work, and lose packets unless something is done.
    Warns,
    /// It will not work.
    Blocks,
}

impl Weight {
    /// Returns a stable word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Note => "note",
            Self::Warns => "warns",
            Self::Blocks => "blocks",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// How bad it is.
    pub weight: Weight,
    /// What was looked at, in a word or two.
    pub about: &'static str,
    /// What was found.
    pub text: String,
}

/// Most bytes of an IP packet that fit in a page with all that native XDP needs beside them, on
/// machines with pages of 4096 bytes.
const MTU_OF_A_PAGE: u32 = 3498;
/// Offloads, by the names that ethtool has for them.
const LRO: &str = "rx-lro";
const HARDWARE_GRO: &str = "rx-gro-hw";
const GRO: &str = "rx-gro";
const STRIPS_VLAN: &str = "rx-vlan-hw-parse";
const LEAVES_CHECKSUMS: &str = "tx-checksum-ip-generic";

/// Takes findings.
type Say<'a> = &'a mut dyn FnMut(Weight, &'static str, String);

/// Looks at what costs no more than asking for it: the interface, and the kernel's own steering.
/// For saying it when an attachment begins.
pub fn look_at_interface(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let own = KernelSteering::of(&settings.interface);
    interface(settings, &own, &mut |weight, about, text| {
        findings.push(Finding { weight, about, text });
    });
    if index_of(&settings.interface).is_some() {
        findings.extend(own.fights(settings.policy));
    }
    findings
}

/// Looks at all that an attachment with these settings needs.
///
/// Loads the programs, which asks the verifier, and throws them away. Whether a driver takes a
/// program shows only when it is attached.
pub fn check_attachment(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |weight, about, text: String| findings.push(Finding { weight, about, text });
    let missing = missing_capabilities();
    if missing.is_empty() {
        say(Weight::Fine, "rights", "this process may load and attach programs".into());
    } else {
        let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
        say(Weight::Blocks, "rights", format!("this process lacks {}", names.join(", ")));
    }
    let own = KernelSteering::of(&settings.interface);
    kernel(&own.release, settings.policy, &mut say);
    match free_interface(&settings.interface) {
        Ok(index) => {
            let text = format!("{} is there (index {index}), without XDP", settings.interface);
            say(Weight::Fine, "interface", text);
        }
        Err(error) => say(Weight::Blocks, "interface", error.to_string()),
    }
    interface(settings, &own, &mut say);
    match host_cpus() {
        Ok(host) => cpus(&settings.cpus, &host, &mut say),
        Err(error) => say(Weight::Note, "CPUs", format!("the kernel does not list them: {error}")),
    }
    types(settings.policy, &mut say);
    if let Some((weight, text)) = answers::check(settings, &own.release) {
        say(weight, "flow ports", text);
    }
    match cgroup_root() {
        _ if settings.policy != LivePolicy::FlowAware => {}
        Some(root) => say(Weight::Fine, "closed sockets", format!("heard at {}", root.display())),
        None => say(
            Weight::Note,
            "closed sockets",
            "no cgroup hierarchy of version 2 is mounted: flows of closed UDP sockets grow old in the \
             table, for four minutes, instead of being withdrawn"
                .into(),
        ),
    }
    // Of an interface that is not there nothing can be said, and that it is not was said.
    if index_of(&settings.interface).is_some() {
        findings.extend(own.fights(settings.policy));
    }
    let mut say = |weight, about, text: String| findings.push(Finding { weight, about, text });
    if missing.is_empty() {
        let loaded = check(settings)
            .and_then(|()| Programs::prepare(settings, 0, &MapFds::default(), &[]))
            .and_then(|mut programs| programs.load());
        match loaded {
            Ok(_) => say(Weight::Fine, "verifier", "this kernel accepts all programs".into()),
            Err(error) => say(Weight::Blocks, "verifier", error.to_string()),
        }
    }
    findings
}

/// The kernel's version, and what of it this needs.
fn kernel(release: &str, policy: LivePolicy, say: Say<'_>) {
    if release.is_empty() {
        say(Weight::Note, "kernel", "its version cannot be read".into());
    } else if !is_at_least(release, (5, 9)) {
        let text = format!(
            "Linux {release} is too old: 5.9 is the first with links for XDP and programs in a CPUMAP"
        );
        say(Weight::Blocks, "kernel", text);
    } else if policy == LivePolicy::FlowAware && !is_at_least(release, (6, 3)) {
        let text = format!(
            "Linux {release} is older than 6.3, the first that tells of reads and writes of sockets \
             (sock_recv_length, sock_send_length), unless its maker has put them in; --policy rps needs \
             none of it"
        );
        say(Weight::Note, "kernel", text);
    } else {
        say(Weight::Fine, "kernel", format!("Linux {release}"));
    }
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[confidentiality]") {
        let text = "the kernel is locked down to confidentiality; these programs use nothing that it \
                    refuses then";
        say(Weight::Fine, "lockdown", text.into());
    }
}

/// What the kernel tells of its types and tracepoints.
fn types(policy: LivePolicy, say: Say<'_>) {
    let events = match policy {
        LivePolicy::FlowAware => program::EVENTS.as_slice(),
        LivePolicy::Rps | LivePolicy::None => &program::EVENTS[..program::BACKLOG_EVENTS],
    };
    match Btf::from_sys_fs() {
        Ok(btf) => {
            let is_there = |event: &str| {
                let name = format!("btf_trace_{event}");
                btf.id_by_type_name_kind(&name, BtfKind::Typedef).is_ok()
            };
            let gone = events.iter().filter(|(_, event)| !is_there(event));
            let gone: Vec<&str> = gone.map(|(_, event)| *event).collect();
            if gone.is_empty() {
                let text = "the kernel tells its types and has all tracepoints that are needed";
                say(Weight::Fine, "BTF", text.into());
            } else {
                let text = format!("this kernel has no tracepoint {}", gone.join(", "));
                say(Weight::Blocks, "tracepoints", text);
            }
        }
        Err(error) => {
            let text = format!(
                "the kernel tells no types (/sys/kernel/btf/vmlinux): {error}. It must be built with \
                 CONFIG_DEBUG_INFO_BTF, and a container must be shown /sys"
            );
            say(Weight::Blocks, "BTF", text);
        }
    }
}

/// The CPUs that may take packets, and those that may not.
fn cpus(wanted: &CpuSet, host: &CpuStates, say: Say<'_>) {
    for cpu in wanted.iter() {
        match host.refusal(cpu) {
            // Who asks for all means the isolated ones too.
            Some(refusal) if !host.online.contains(cpu) => {
                say(Weight::Blocks, "CPUs", refusal.to_string());
            }
            _ => {}
        }
    }
    let mut text = format!("packets may go to {}", wanted.list());
    let offline = host.possible.difference(&host.online);
    if !offline.is_empty() {
        text += &format!("; {} offline", are(&offline));
    }
    let isolated = host.isolated.difference(wanted);
    if !isolated.is_empty() {
        text += &format!("; {} isolated and left alone", are(&isolated));
    }
    say(Weight::Fine, "CPUs", text);
    let isolated = host.isolated.intersection(wanted);
    if !isolated.is_empty() {
        let text = format!(
            "{} isolated: packet work would disturb what they are kept free for; --cpus housekeeping \
             leaves them out",
            are(&isolated)
        );
        say(Weight::Note, "CPUs", text);
    }
}

fn are(cpus: &CpuSet) -> String {
    format!("{} {}", cpus.list(), if cpus.count() == 1 { "is" } else { "are" })
}

fn interface(settings: &Settings, own: &KernelSteering, say: Say<'_>) {
    let Ok(links) = all_links() else { return };
    let Some(link) = links.iter().find(|link| link.name == settings.interface) else { return };
    let features = features(link.index);
    driver(settings.mode, link, features, say);
    if !link.is_up {
        say(Weight::Note, "interface", format!("{} is down: no packet comes in", link.name));
    }
    if settings.mode != Mode::Skb && link.mtu > MTU_OF_A_PAGE {
        say(weight_of_native(settings.mode), "MTU", mtu_text(link.mtu));
    }
    queues(settings, link, say);
    merging(settings.mode, link, own, say);
    if settings.mode != Mode::Skb && link.kind != "veth" && own.has(STRIPS_VLAN) {
        let above =
            links.iter().filter(|above| above.kind == "vlan" && above.peer == Some(link.index));
        let above: Vec<&str> = above.map(|above| above.name.as_str()).collect();
        if !above.is_empty() {
            let text = format!(
                "the device takes VLAN tags off, and a CPUMAP does not carry them on: packets for {} would \
                 be LOST in native mode. Do `ethtool -K {} rxvlan off`, or use --mode skb",
                above.join(", "),
                link.name
            );
            say(Weight::Warns, "VLAN", text);
        }
    }
    if link.kind == "veth" {
        other_end(settings.mode, link, say);
    }
    if link.kind == "bond" {
        let text = "a bond: attached to its members instead, each by itself, packets are steered before \
                    they are put together";
        say(Weight::Note, "bond", text.into());
    }
}

fn features(index: u32) -> Option<XdpFeatures> {
    let mut netlink = Netlink::open(Protocol::Generic).ok()?;
    xdp_features(&mut netlink, index).ok().flatten()
}

fn weight_of_native(mode: Mode) -> Weight {
    if mode == Mode::Native { Weight::Blocks } else { Weight::Note }
}

/// What is said of an MTU too large for native XDP, beforehand and when a driver refuses.
pub(super) fn mtu_text(mtu: u32) -> String {
    format!(
        "an MTU of {mtu} is more than the {MTU_OF_A_PAGE} bytes that native XDP has room for on most \
         drivers: lower it, or use --mode skb, which takes it"
    )
}

/// The driver, and whether it says that it has native XDP.
fn driver(mode: Mode, link: &Link, features: Option<XdpFeatures>, say: Say<'_>) {
    let name = driver_name(link);
    match features {
        None => {
            let text = format!(
                "{name}; this kernel does not tell what XDP its drivers have (6.3 and later do): attaching \
                 will show it"
            );
            say(Weight::Note, "driver", text);
        }
        Some(features) if mode == Mode::Skb => {
            let has = if features.is_native() { "; it has native XDP as well" } else { "" };
            say(Weight::Fine, "driver", format!("{name}, steered in skb mode as asked{has}"));
        }
        Some(features) if !features.is_native() => {
            let text = format!(
                "{name} has no native XDP: --mode skb works with every driver, later and dearer, in the \
                 network stack"
            );
            say(weight_of_native(mode), "driver", text);
        }
        Some(features) if !features.redirects() => {
            let text = format!("{name} has native XDP, but no redirect: use --mode skb");
            say(Weight::Blocks, "driver", text);
        }
        Some(_) => say(Weight::Fine, "driver", format!("{name} has native XDP and redirect")),
    }
}

/// Returns the name of the driver: of the device behind the interface, or its kind.
fn driver_name(link: &Link) -> String {
    let of_device = link.device.as_ref().and_then(|(bus, device)| {
        // Not below /sys/class/net, which shows the interfaces of one namespace only.
        let driver = fs::read_link(format!("/sys/bus/{bus}/devices/{device}/driver")).ok()?;
        Some(driver.file_name()?.to_string_lossy().into_owned())
    });
    match of_device {
        Some(driver) => driver,
        None if !link.kind.is_empty() => link.kind.clone(),
        None if link.name == "lo" => "loopback".into(),
        None => "a driver without a name".into(),
    }
}

fn queues(settings: &Settings, link: &Link, say: Say<'_>) {
    if link.rx_queues > rxsteer_ebpf::MAX_QUEUES {
        let text = format!(
            "{} receive queues; packets of those from {} on stay where they come in",
            link.rx_queues,
            rxsteer_ebpf::MAX_QUEUES
        );
        say(Weight::Note, "queues", text);
    } else {
        let text = match link.rx_queues {
            1 => "one receive queue: packets come in on one CPU, and are spread from there"
                .to_owned(),
            count => format!("{count} receive queues"),
        };
        say(Weight::Fine, "queues", text);
    }
    let is_virtio = link.device.as_ref().is_some_and(|(bus, _)| bus == "virtio");
    let spare = link.tx_queues.saturating_sub(link.rx_queues);
    if is_virtio && settings.mode != Mode::Skb && spare < settings.cpus.count() as u32 {
        let text = "virtio wants a spare transmit queue for each CPU in native mode; without them CPUs take \
                    turns at a lock when they send from XDP, which steering does not: older kernels refuse";
        say(Weight::Note, "queues", text.into());
    }
}

/// Receive offloads that put packets together.
fn merging(mode: Mode, link: &Link, own: &KernelSteering, say: Say<'_>) {
    let on: Vec<&str> = [LRO, HARDWARE_GRO].into_iter().filter(|name| own.has(name)).collect();
    if !on.is_empty() {
        let names = on.join(" and ").replace(LRO, "lro").replace(HARDWARE_GRO, "rx-gro-hw");
        let text = match mode {
            Mode::Skb => format!(
                "the device merges packets ({names}); attaching in skb mode turns that off, and it stays off"
            ),
            Mode::Auto | Mode::Native => format!(
                "the device merges packets ({names}), which drivers refuse beside native XDP, or turn off \
                 by themselves: `ethtool -K {} {}`",
                link.name,
                names.replace(" and ", " off ") + " off"
            ),
        };
        say(if mode == Mode::Native { Weight::Warns } else { Weight::Note }, "merging", text);
    } else if own.has(GRO) {
        let now = if mode == Mode::Skb || own.merges_in_cpumap() {
            "GRO is on, and works on packets that are steered as well"
        } else {
            "GRO is on"
        };
        say(Weight::Fine, "merging", now.into());
    } else {
        say(Weight::Fine, "merging", "off: no GRO, no LRO".into());
    }
}

/// What the other end of a veth pair leaves to be done here.
fn other_end(mode: Mode, link: &Link, say: Say<'_>) {
    if mode == Mode::Skb {
        let text = "checksums that the other end leaves unwritten are kept track of in skb mode";
        say(Weight::Fine, "veth", text.into());
        return;
    }
    let why = "TCP and UDP packets from there will be LOST as wrong checksums: XDP cannot tell the CPU that \
               it moves them to that nobody wrote these. The losses are InCsumErrors of `nstat -az` here";
    match peer_of(link) {
        Some(peer) if peer.offloads.iter().any(|on| on == LEAVES_CHECKSUMS) => {
            let text = format!(
                "the other end, {}, leaves checksums to its device, as is usual for veth; {why}. Do \
                 `{}ethtool -K {} tx off`",
                peer.name, peer.enter, peer.name
            );
            say(Weight::Warns, "veth", text);
        }
        Some(peer) => {
            let text = format!("the other end, {}, writes its checksums", peer.name);
            say(Weight::Fine, "veth", text);
        }
        None => {
            let text = format!(
                "the other end cannot be seen from here. If it leaves checksums to its device, which is \
                 the default of veth, {why}. Do `ethtool -K PEER tx off` at the other end"
            );
            say(Weight::Warns, "veth", text);
        }
    }
}

#[cfg(test)]
mod tests {
    use rxsteer_core::CpuId;

    use super::*;

    type Told = Vec<(Weight, &'static str, String)>;

    fn told(look: impl FnOnce(Say<'_>)) -> Told {
        let mut told = Vec::new();
        look(&mut |weight, about, text| told.push((weight, about, text)));
        told
    }

    #[test]
    fn a_kernel_too_old_is_told_with_the_first_that_is_not() {
        let weight = |release, policy| told(|say| kernel(release, policy, say))[0].0;
        assert_eq!(weight("5.4.0-200-generic", LivePolicy::Rps), Weight::Blocks);
        assert_eq!(weight("5.15.0", LivePolicy::Rps), Weight::Fine);
        // A maker of distributions may have put the tracepoints in.
        assert_eq!(weight("5.15.0", LivePolicy::FlowAware), Weight::Note);
        assert_eq!(weight("6.3.0", LivePolicy::FlowAware), Weight::Fine);
    }

    #[test]
    fn cpus_offline_block_and_isolated_ones_are_named() {
        // openshift/cluster-node-tuning-operator#518, microsoft/msquic#2988
        let mut host = CpuStates::all(6);
        host.online = CpuSet::from_list("0,3-5").unwrap();
        host.isolated.insert(CpuId(5));
        let wanted = |list| CpuSet::from_list(list).unwrap();
        let fine = told(|say| cpus(&wanted("0,3-4"), &host, say));
        assert_eq!(
            fine,
            [(
                Weight::Fine,
                "CPUs",
                "packets may go to 0,3-4; 1-2 are offline; 5 is isolated and left alone".to_owned()
            )]
        );
        let offline = told(|say| cpus(&wanted("1"), &host, say));
        assert_eq!((offline[0].0, offline[0].2.as_str()), (Weight::Blocks, "CPU 1 is offline"));
        let isolated = told(|say| cpus(&wanted("4-5"), &host, say));
        assert_eq!(isolated[1].0, Weight::Note);
    }

    #[test]
    fn a_driver_without_native_xdp_blocks_only_who_insists() {
        let link = Link { kind: "dummy".into(), ..Link::default() };
        let weight = |mode, features| told(|say| driver(mode, &link, features, say))[0].0;
        let none = Some(XdpFeatures(0));
        assert_eq!(weight(Mode::Native, none), Weight::Blocks);
        assert_eq!(weight(Mode::Auto, none), Weight::Note);
        assert_eq!(weight(Mode::Skb, none), Weight::Fine);
        assert_eq!(weight(Mode::Auto, Some(XdpFeatures(1))), Weight::Blocks);
        assert_eq!(weight(Mode::Native, Some(XdpFeatures(3))), Weight::Fine);
        assert_eq!(weight(Mode::Native, None), Weight::Note);
    }

    #[test]
    fn merging_by_the_device_is_a_warning_where_drivers_refuse_it() {
        let link = Link { name: "eth0".into(), ..Link::default() };
        let lro = KernelSteering { offloads: vec![LRO.into()], ..KernelSteering::default() };
        let found =
            |mode, own: &KernelSteering| told(|say| merging(mode, &link, own, say)).remove(0);
        let (weight, _, text) = found(Mode::Native, &lro);
        assert_eq!(weight, Weight::Warns);
        assert!(text.ends_with("`ethtool -K eth0 lro off`"), "{text}");
        assert_eq!(found(Mode::Auto, &lro).0, Weight::Note);
        assert_eq!(found(Mode::Native, &KernelSteering::default()).0, Weight::Fine);
    }
}
