//! The interfaces of a network namespace.

use std::io;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;

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
