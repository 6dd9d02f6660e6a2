//! The other end of a veth pair, wherever it is.
//!
//! What leaves that end arrives here, so its offloads decide what our program reads. If it is in another
//! namespace, that one is looked for among those of all processes and those with a name, and entered by
//! a thread made for it.
//!
//! Source: veth(4); `IFLA_LINK` and `IFLA_LINK_NETNSID` of rtnetlink(7); network_namespaces(7).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::linux::fs::MetadataExt as _;
use std::path::PathBuf;
use std::thread;

use nix::sched::{CloneFlags, setns};
use rxsteer_netlink::{Netlink, Protocol, active_offloads, namespace_id};

use super::interface::{Link, all_links};

/// Most namespaces that are looked into.
const MOST_NAMESPACES: usize = 256;

/// The other end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Peer {
    /// Name of the interface.
    pub(super) name: String,
    /// The beginning of a command that is to run in its namespace; empty if it is in that of the
    /// calling thread.
    pub(super) enter: String,
    /// Names of the offloads that it has on.
    pub(super) offloads: Vec<String>,
}

/// Returns the other end of this interface of the namespace of the calling thread; `None` if it
/// cannot be found.
pub(super) fn peer_of(link: &Link) -> Option<Peer> {
    let index = link.peer?;
    let Some(id) = link.peer_namespace else { return there(index, link.index, String::new()) };
    let mut netlink = Netlink::open(Protocol::Route).ok()?;
    let (enter, namespace) = others().into_iter().find_map(|(enter, path)| {
        let namespace = File::open(path).ok()?;
        let is_it = namespace_id(&mut netlink, namespace.as_fd()).ok()? == Some(id);
        is_it.then_some((enter, namespace))
    })?;
    let own = link.index;
    let look = move || -> Option<Peer> {
        setns(namespace, CloneFlags::CLONE_NEWNET).ok()?;
        there(index, own, enter)
    };
    thread::Builder::new().spawn(look).ok()?.join().ok()?
}

/// Returns the interface of this number in the namespace of the calling thread, if it is an end whose
/// other one has the number `own`.
fn there(index: u32, own: u32, enter: String) -> Option<Peer> {
    let link = all_links().ok()?.into_iter().find(|link| link.index == index)?;
    let is_it = link.kind == "veth" && link.peer == Some(own);
    let offloads = is_it.then(|| offloads_of(&link.name).ok())??;
    Some(Peer { name: link.name, enter, offloads })
}

/// Returns the names of the offloads that an interface has on.
pub(super) fn offloads_of(interface: &str) -> io::Result<Vec<String>> {
    active_offloads(&mut Netlink::open(Protocol::Generic)?, interface)
}

/// Returns how a command enters each other network namespace, and its file: those with a name first.
fn others() -> Vec<(String, PathBuf)> {
    let mut seen = BTreeSet::new();
    let number = |path: &PathBuf| fs::metadata(path).map(|about| about.st_ino()).ok();
    seen.extend(number(&"/proc/thread-self/ns/net".into()));
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((format!("nsenter -t {pid} -n "), entry.path().join("ns/net")))
    });
    let named = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let named = named.map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (format!("ip netns exec {name} "), entry.path())
    });
    let new =
        named.chain(processes).filter(|(_, path)| number(path).is_some_and(|n| seen.insert(n)));
    new.take(MOST_NAMESPACES).collect()
}
