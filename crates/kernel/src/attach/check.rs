//! What an attachment would meet, said beforehand and in plain words; nothing is attached.

use std::fs;

use aya::Btf;
use aya_obj::btf::BtfKind;
use rxsteer_ebpf::program;

use super::interface::link_named;
use super::{LivePolicy, MapFds, Mode, Programs, Settings, cgroup_root, check, free_interface};
use crate::missing_capabilities;

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

/// Looks at what costs no more than asking for it: the interface, and the kernel's own steering.
/// For saying it when an attachment begins.
pub fn look_at_interface(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |weight, about, text: String| findings.push(Finding { weight, about, text });
    interface(settings, &mut say);
    rivals(settings, &mut say);
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
    match free_interface(&settings.interface) {
        Ok(index) => {
            let text = format!("{} is there (index {index}), without XDP", settings.interface);
            say(Weight::Fine, "interface", text);
            interface(settings, &mut say);
        }
        Err(error) => say(Weight::Blocks, "interface", error.to_string()),
    }
    say(Weight::Fine, "CPUs", format!("packets may go to {}", settings.cpus.list()));
    match Btf::from_sys_fs() {
        Ok(btf) => {
            for (name, event) in program::EVENTS {
                let id = btf.id_by_type_name_kind(&format!("btf_trace_{event}"), BtfKind::Typedef);
                if id.is_err() {
                    say(
                        Weight::Blocks,
                        "tracepoints",
                        format!("this kernel has no {event}, for {name}"),
                    );
                }
            }
        }
        Err(error) => say(Weight::Blocks, "BTF", format!("the kernel tells no types: {error}")),
    }
    match cgroup_root() {
        Some(root) => say(Weight::Fine, "closed sockets", format!("heard at {}", root.display())),
        None => say(
            Weight::Note,
            "closed sockets",
            "no cgroup hierarchy of version 2 is mounted: flows of closed UDP sockets grow old in the \
             table, for four minutes, instead of being withdrawn"
                .into(),
        ),
    }
    rivals(settings, &mut say);
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

fn interface(settings: &Settings, say: &mut impl FnMut(Weight, &'static str, String)) {
    let Ok(Some(link)) = link_named(&settings.interface) else { return };
    if settings.mode != Mode::Skb && link.mtu > MTU_OF_A_PAGE {
        let weight = if settings.mode == Mode::Native { Weight::Blocks } else { Weight::Note };
        let text = format!(
            "an MTU of {} is more than the {MTU_OF_A_PAGE} bytes that native XDP has room for on most \
             drivers; skb mode takes it",
            link.mtu
        );
        say(weight, "MTU", text);
    }
    if link.rx_queues > rxsteer_ebpf::MAX_QUEUES {
        let text = format!(
            "{} receive queues; packets of those from {} on stay where they come in",
            link.rx_queues,
            rxsteer_ebpf::MAX_QUEUES
        );
        say(Weight::Note, "queues", text);
    }
    if link.kind == "veth" {
        let text = "if the other end leaves checksums to its device, which is the default of veth, TCP and \
                    UDP packets will be LOST as wrong checksums: XDP cannot tell the CPU that it moves \
                    them to that nobody wrote these. Do `ethtool -K PEER tx off` at the other end; the \
                    losses are InCsumErrors of `nstat -az` here";
        say(Weight::Warns, "veth", text.into());
    }
}

/// The kernel's own steering, which would act on packets a second time.
fn rivals(settings: &Settings, say: &mut impl FnMut(Weight, &'static str, String)) {
    if settings.policy == LivePolicy::None {
        return;
    }
    let entries =
        fs::read_to_string("/proc/sys/net/core/rps_sock_flow_entries").unwrap_or_default();
    let queues = format!("/sys/class/net/{}/queues", settings.interface);
    let masks = fs::read_dir(queues).into_iter().flatten().flatten();
    let is_rps = masks
        .filter_map(|queue| fs::read_to_string(queue.path().join("rps_cpus")).ok())
        .any(|mask| mask.trim().chars().any(|digit| !matches!(digit, '0' | ',')));
    if is_rps {
        let text = "RPS is on for this interface: the kernel would steer packets once more, from the CPU \
                    that was chosen (write 0 to queues/rx-*/rps_cpus)";
        say(Weight::Note, "RPS", text.into());
    } else if !matches!(entries.trim(), "" | "0") {
        let text = format!(
            "rps_sock_flow_entries is {}; without RPS on this interface it does nothing",
            entries.trim()
        );
        say(Weight::Fine, "RFS", text);
    }
}
