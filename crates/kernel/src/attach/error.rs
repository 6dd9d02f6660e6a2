//! Why an attachment cannot be made: the step, and in plain words what may be done.

use std::io;
use std::ops::RangeInclusive;

use aya::programs::ProgramError;

use super::{Holder, OnInterface};
use crate::Capability;
use crate::btf::BtfError;

/// Why an attachment cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// This process may not.
    #[error("this process lacks {}: run it as root, or give it these capabilities", names(.0))]
    Rights(Vec<Capability>),
    /// There is no such interface in this network namespace.
    #[error("there is no interface {0} in this network namespace")]
    NoInterface(String),
    /// Interfaces cannot be asked for.
    #[error("cannot ask for the XDP programs on interfaces: {0}")]
    Netlink(#[source] io::Error),
    /// Another program is there.
    #[error(
        "{} has an XDP program already: {} (number {}, {} mode{}); it is left alone. {}",
        .on.interface, named(&.on.program), .on.id, .on.mode, held_by(.holders), way_out(.on)
    )]
    Occupied {
        /// The program.
        on: OnInterface,
        /// Who holds it, as far as it can be told.
        holders: Vec<Holder>,
    },
    /// No CPU may take packets.
    #[error("no CPU is left that may take packets")]
    NoCpu,
    /// A setting is out of range.
    #[error("{name} is {value}, but must be from {} to {}", .allowed.start(), .allowed.end())]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// What it was.
        value: u32,
        /// What is possible.
        allowed: RangeInclusive<u32>,
    },
    /// The kernel does not tell of its structures.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// The kernel does not tell of its tracepoints.
    #[error("the kernel's BTF: {0}")]
    KernelBtf(#[from] aya::BtfError),
    /// A map cannot be created.
    #[error("cannot prepare the programs: {0}")]
    Object(#[source] Box<aya::EbpfError>),
    /// The kernel refuses a program.
    #[error("the kernel refuses to load the program {name}: {source}")]
    Load {
        /// Name of the program.
        name: String,
        /// What the kernel said.
        source: Box<ProgramError>,
    },
    /// A tracepoint cannot be used.
    #[error("cannot attach {name} to {place}: {source}")]
    Event {
        /// Name of the program.
        name: &'static str,
        /// Where it should go.
        place: String,
        /// What the kernel said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The interface takes no program.
    #[error("cannot attach to {interface} in {mode} mode: {said}{}", advice(.said))]
    Attach {
        /// Name of the interface.
        interface: String,
        /// Mode that was tried last.
        mode: &'static str,
        /// What the kernel said.
        said: io::Error,
    },
    /// The interface does not let a program see what it sends.
    #[error(
        "cannot see the answers that {interface} sends, which flow-ports needs: {said}; Linux 6.6 is the \
         first on which that can be (TCX)"
    )]
    Answers {
        /// Name of the interface.
        interface: String,
        /// What the kernel said.
        said: io::Error,
    },
    /// The interface does not take the new program in the place of the old one.
    #[error("cannot put the new program in the place of the old one: {0}; is the interface gone?")]
    Update(#[source] io::Error),
    /// Something that an attachment keeps for its life.
    #[error("{0} cannot change while packets are steered: detach and attach anew")]
    Fixed(&'static str),
    /// What another process hands over is not what it should be.
    #[error("the attachment of the other process cannot be taken over: {0}")]
    Handover(String),
    /// The kernel is too old to tie an attachment to a process.
    #[error(
        "this kernel knows no links for XDP (it has them from 5.9 on): an attachment would outlive \
         this process"
    )]
    NoLinks,
    /// A map cannot be read or written.
    #[error("map {name}: {source}")]
    Map {
        /// Name of the map.
        name: &'static str,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no source of random numbers.
    #[error("cannot draw the key of the flow hash: {0}")]
    Random(#[source] io::Error),
}

fn names(missing: &[Capability]) -> String {
    missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn named(program: &str) -> &str {
    if program.is_empty() { "one without a name" } else { program }
}

fn held_by(holders: &[Holder]) -> String {
    let holders: Vec<String> = holders.iter().map(ToString::to_string).collect();
    if holders.is_empty() { String::new() } else { format!(", held by {}", holders.join(", ")) }
}

/// Returns what may be done about a program that is there already.
fn way_out(on: &OnInterface) -> String {
    let OnInterface { interface, program, .. } = on;
    if on.is_ours() {
        format!("End that one by `rxsteer detach {interface}`, or take over with --replace")
    } else if program.starts_with("xdp_dispatch") {
        "That is the dispatcher of libxdp, which runs several programs one after the other and stays when \
         their processes end. It is not joined: there, a program stays attached when its process is \
         killed, and those after one that redirects packets see none of them. Unload its programs \
         first (`xdp-loader unload --all` and the interface)"
            .to_owned()
    } else {
        "Remove it first, with what put it there".to_owned()
    }
}

/// Returns what an error of attaching usually means, with a separator in front.
fn advice(said: &io::Error) -> &'static str {
    match said.raw_os_error() {
        Some(libc::EOPNOTSUPP) => "; the driver has no native XDP: --mode skb works with every one",
        Some(libc::EINVAL | libc::ERANGE) => {
            "; drivers refuse an MTU whose packets do not fit in one page, and receive offloads such \
             as LRO: lower the MTU or turn lro off, or use --mode skb (--check looks at both)"
        }
        Some(libc::EBUSY | libc::EEXIST) => "; another program took the interface just now",
        Some(libc::ENOSPC) => {
            "; the device has too few transmit queues for XDP: use fewer receive queues"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::AttachedMode;

    #[test]
    fn errors_say_what_may_be_done() {
        let other = OnInterface {
            interface: "eth0".into(),
            index: 2,
            id: 7,
            mode: AttachedMode::Native,
            program: "xdp_filter".into(),
        };
        let by = |on: &OnInterface, holders| {
            AttachError::Occupied { on: on.clone(), holders }.to_string()
        };
        assert_eq!(
            by(&other, Vec::new()),
            "eth0 has an XDP program already: xdp_filter (number 7, native mode); it is left alone. Remove \
             it first, with what put it there"
        );
        let ours = OnInterface { program: "rxsteer_steer".into(), ..other.clone() };
        let said = by(&ours, vec![Holder { pid: 12, command: "rxsteer".into() }]);
        assert!(said.contains("native mode, held by process 12 (rxsteer)); "), "{said}");
        assert!(said.ends_with("`rxsteer detach eth0`, or take over with --replace"), "{said}");
        let dispatcher = OnInterface { program: "xdp_dispatcher".into(), ..other };
        assert!(by(&dispatcher, Vec::new()).contains("stays attached when its process is killed"));
        let said = AttachError::Attach {
            interface: "eth0".into(),
            mode: "native",
            said: io::Error::from_raw_os_error(libc::EOPNOTSUPP),
        };
        assert!(said.to_string().ends_with("--mode skb works with every one"));
        let said = AttachError::Rights(vec![Capability::NetAdmin, Capability::Bpf]).to_string();
        assert!(said.starts_with("this process lacks CAP_NET_ADMIN, CAP_BPF: "));
    }
}
