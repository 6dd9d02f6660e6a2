//! Where metrics are served, which the settings can change.
//!
//! Always true: a place that cannot be had changes nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;

use super::http::{Server, Serving};
use crate::attach::service::Message;

/// Where metrics are served now.
#[derive(Debug)]
pub(in crate::attach) struct Place {
    ask: Sender<Message>,
    now: Former,
}

/// A place that was left, and to which the way back is open until this is dropped.
#[derive(Debug, Default)]
pub(in crate::attach) struct Former {
    /// What was asked for: its port may be 0 where any will do.
    asked: Option<SocketAddr>,
    /// What came of it.
    at: Option<SocketAddr>,
    /// Ended already, where the new place has the same port.
    serving: Option<Serving>,
}

impl Place {
    /// Serves where it was asked for, if it could be had.
    ///
    /// # Errors
    /// If no thread can be made.
    pub(in crate::attach) fn new(
        asked: Option<SocketAddr>,
        server: Option<Server>,
        ask: Sender<Message>,
    ) -> anyhow::Result<Self> {
        let serving = server.map(|server| server.serve(ask.clone())).transpose()?;
        let at = serving.as_ref().map(Serving::address);
        Ok(Self { ask, now: Former { asked, at, serving } })
    }

    /// Returns where metrics are served.
    pub(in crate::attach) fn address(&self) -> Option<SocketAddr> {
        self.now.at
    }

    /// Serves there from now on, or nowhere, and returns the former place; `None` if it is the same.
    ///
    /// The new address is bound before the former one is given up, so there is always one of them; unless
    /// both have the same port, as 127.0.0.1 and all addresses may: then there is none for a moment.
    ///
    /// # Errors
    /// If the address cannot be had; the former place is kept.
    pub(in crate::attach) fn move_to(
        &mut self,
        asked: Option<SocketAddr>,
    ) -> anyhow::Result<Option<Former>> {
        if asked == self.now.asked && asked.is_some() == self.now.at.is_some() {
            return Ok(None);
        }
        let Some(address) = asked else {
            return Ok(Some(std::mem::take(&mut self.now)));
        };
        let bound = Server::bind(address).or_else(|error| {
            let is_taken = error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::AddrInUse);
            let is_ours = self.now.at.is_some_and(|at| at.port() == address.port());
            if !(is_taken && is_ours) {
                return Err(error);
            }
            self.now.serving = None;
            Server::bind(address)
        });
        match bound.and_then(|server| server.serve(self.ask.clone())) {
            Ok(serving) => {
                let at = Some(serving.address());
                let now = Former { asked, at, serving: Some(serving) };
                Ok(Some(std::mem::replace(&mut self.now, now)))
            }
            Err(error) => {
                self.resume();
                Err(error)
            }
        }
    }

    /// Serves at the former place again.
    pub(in crate::attach) fn back_to(&mut self, former: Former) {
        // The new one first, which may have the port.
        self.now.serving = None;
        self.now = former;
        self.resume();
    }

    /// Serves again where it was ended for a new place.
    fn resume(&mut self) {
        let Former { at, serving, .. } = &mut self.now;
        if let (Some(address), None) = (*at, &serving) {
            let again = Server::bind(address).and_then(|server| server.serve(self.ask.clone()));
            *serving = again.ok();
            *at = serving.as_ref().map(Serving::address);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::sync::mpsc::channel;

    use super::*;

    const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    fn place() -> (Place, SocketAddr) {
        let server = Server::bind(ANY_PORT).unwrap();
        let at = server.address();
        (Place::new(Some(ANY_PORT), Some(server), channel().0).unwrap(), at)
    }

    fn is_served(address: SocketAddr) -> bool {
        TcpStream::connect(address).is_ok()
    }

    #[test]
    fn any_port_is_the_same_place_as_any_port() {
        let (mut place, at) = place();
        assert!(place.move_to(Some(ANY_PORT)).unwrap().is_none());
        assert_eq!(place.address(), Some(at));
        assert!(is_served(at));
    }

    #[test]
    fn a_place_that_is_taken_changes_nothing() {
        let (mut place, at) = place();
        let other = TcpListener::bind(ANY_PORT).unwrap();
        let taken = other.local_addr().unwrap();
        let why = format!("{:#}", place.move_to(Some(taken)).unwrap_err());
        assert!(why.starts_with(&format!("cannot listen on {taken}: Address")), "{why}");
        assert_eq!(place.address(), Some(at));
        assert!(is_served(at));
        // Without the other one it can be had.
        drop(other);
        drop(place.move_to(Some(taken)).unwrap().unwrap());
        assert_eq!(place.address(), Some(taken));
        assert!(is_served(taken) && !is_served(at));
    }

    #[test]
    fn the_way_back_is_open_also_if_the_port_is_the_same() {
        let (mut place, at) = place();
        let all = SocketAddr::from((Ipv4Addr::UNSPECIFIED, at.port()));
        let former = place.move_to(Some(all)).unwrap().unwrap();
        assert_eq!(place.address(), Some(all));
        // By an address of this host that only the new place has.
        let another = SocketAddr::from(([127, 0, 0, 2], at.port()));
        assert!(is_served(another) && is_served(at));
        place.back_to(former);
        assert_eq!(place.address(), Some(at));
        assert!(is_served(at) && !is_served(another));
    }

    #[test]
    fn nowhere_is_a_place() {
        let (mut place, at) = place();
        let former = place.move_to(None).unwrap().unwrap();
        assert_eq!(place.address(), None);
        place.back_to(former);
        assert_eq!(place.address(), Some(at));
        assert!(is_served(at));
        drop(place.move_to(None).unwrap());
        assert!(!is_served(at));
        assert!(place.move_to(None).unwrap().is_none());
    }
}
