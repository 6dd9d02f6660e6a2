//! The addresses of this host, which the programs must know before they drop a packet for want of
//! room in a socket of any address: what is only forwarded is no affair of the sockets here.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use aya::maps::{HashMap, Map, MapData, MapError};
use rxsteer_ebpf::{MAX_LOCAL, map};

use super::error::AttachError;
use super::maps::in_map;

/// The map of local addresses.
pub(super) struct LocalAddresses {
    map: HashMap<MapData, [u32; 4], u32>,
}

impl LocalAddresses {
    /// Takes over the map.
    pub(super) fn new(data: MapData) -> Result<Self, AttachError> {
        let map = HashMap::try_from(Map::HashMap(data)).map_err(in_map(map::LOCAL))?;
        Ok(Self { map })
    }

    /// Tells the programs the addresses of the network namespace of the calling thread.
    ///
    /// Of more than [`MAX_LOCAL`] addresses the others are left out: packets for them are not dropped
    /// early.
    pub(super) fn tell(&mut self) -> Result<(), AttachError> {
        let here = addresses().map_err(AttachError::Netlink)?;
        let failed = in_map::<MapError>(map::LOCAL);
        let told: Vec<[u32; 4]> = self.map.keys().flatten().collect();
        for gone in told.iter().filter(|address| !here.contains(address)) {
            // It may have been left out, or be gone already.
            let _ = self.map.remove(gone);
        }
        for new in here.iter().filter(|address| !told.contains(address)) {
            self.map.insert(new, 1, 0).map_err(&failed)?;
        }
        Ok(())
    }
}

/// Returns the addresses of the network namespace of the calling thread, as the programs read them.
fn addresses() -> io::Result<Vec<[u32; 4]>> {
    let all = nix::ifaddrs::getifaddrs().map_err(io::Error::from)?;
    let mut found: Vec<[u32; 4]> = all
        .filter_map(|one| {
            let address = one.address?;
            let v4 = address.as_sockaddr_in().map(nix::sys::socket::SockaddrIn::ip);
            let v6 = address.as_sockaddr_in6().map(nix::sys::socket::SockaddrIn6::ip);
            v6.or(v4.map(|address| address.to_ipv6_mapped())).map(words)
        })
        .collect();
    found.push(words(Ipv4Addr::LOCALHOST.to_ipv6_mapped()));
    found.sort_unstable();
    found.dedup();
    found.truncate(MAX_LOCAL as usize);
    Ok(found)
}

fn words(address: Ipv6Addr) -> [u32; 4] {
    let bytes = address.octets();
    let (words, _) = bytes.as_chunks::<4>();
    [words[0], words[1], words[2], words[3]].map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_every_host_is_among_those_of_this_one() {
        let here = addresses().expect("this host has addresses");
        assert!(here.contains(&[0, 0, 0xffff_u32.to_be(), 0x7f00_0001_u32.to_be()]));
    }
}
