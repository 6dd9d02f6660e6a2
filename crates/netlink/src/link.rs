//! The interfaces of a network namespace.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};

use crate::Netlink;

/// Returns the interfaces of the namespace in which this socket of [`Protocol::Route`] was opened.
///
/// # Errors
/// What the kernel answered.
///
/// [`Protocol::Route`]: crate::Protocol::Route
pub fn links(netlink: &mut Netlink) -> io::Result<Vec<LinkMessage>> {
    let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let answers = netlink.ask(question, NLM_F_DUMP)?;
    let links = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    });
    Ok(links.collect())
}

/// Returns the number that the namespace of this socket of [`Protocol::Route`] has for another one,
/// given a descriptor of that; `None` if it has none.
///
/// # Errors
/// What the kernel answered.
///
/// [`Protocol::Route`]: crate::Protocol::Route
pub fn namespace_id(netlink: &mut Netlink, namespace: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let mut question = NsidMessage::default();
    question.attributes.push(NsidAttribute::Fd(namespace.as_raw_fd().cast_unsigned()));
    let answers = netlink.ask(RouteNetlinkMessage::GetNsId(question), 0)?;
    let told = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewNsId(message) => Some(message.attributes),
        _ => None,
    });
    // The kernel says -1 for none.
    Ok(told.flatten().find_map(|attribute| match attribute {
        NsidAttribute::Id(id) => Some(id).filter(|id| *id >= 0),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::LinkAttribute;

    use super::*;
    use crate::Protocol;

    #[test]
    fn the_interfaces_are_those_that_proc_lists() {
        let mut netlink = Netlink::open(Protocol::Route).unwrap();
        let mut names: Vec<String> = links(&mut netlink)
            .unwrap()
            .into_iter()
            .flat_map(|link| link.attributes)
            .filter_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name),
                _ => None,
            })
            .collect();
        names.sort();
        let listed = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let mut listed: Vec<String> = listed
            .lines()
            .filter_map(|line| line.split_once(':').map(|(name, _)| name.trim().to_owned()))
            .collect();
        listed.sort();
        assert_eq!(names, listed);
        assert!(names.contains(&"lo".to_owned()), "{names:?}");
    }
}
