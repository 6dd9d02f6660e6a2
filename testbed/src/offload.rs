//! Offloads of a device, each said explicitly.
//!
//! Between two ends of a veth pair nothing is ever on a wire, so by default the kernel leaves
//! checksums unwritten and packets unsegmented. That is fast, and is not what a receiver of real
//! packets sees; a test says which of both it means.

/// Which offloads a device has on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Offloads {
    /// The sender leaves transport checksums to the device, which on a veth pair means that nobody
    /// writes them.
    pub tx_checksum: bool,
    /// The receiver merges packets of a flow. On veth this also makes the end poll (NAPI), which a
    /// frame redirected to it by XDP needs.
    pub gro: bool,
    /// The sender leaves segmenting to the last moment, or to the receiver.
    pub gso: bool,
    /// The sender leaves segmenting of TCP to the device; needs `tx_checksum`.
    pub tso: bool,
    /// The sender leaves segmenting of UDP to the device; needs `tx_checksum`.
    pub udp_gso: bool,
}

impl Offloads {
    /// None: what goes in at one end comes out at the other.
    pub const NONE: Self =
        Self { tx_checksum: false, gro: false, gso: false, tso: false, udp_gso: false };

    /// All that the kernel has on for a new pair, and GRO.
    pub const ALL: Self =
        Self { tx_checksum: true, gro: true, gso: true, tso: true, udp_gso: true };

    /// The kernel's name of each, and whether it is to be on.
    pub(crate) fn by_name(self) -> [(&'static str, bool); 5] {
        [
            ("tx-checksum-ip-generic", self.tx_checksum),
            ("rx-gro", self.gro),
            ("tx-generic-segmentation", self.gso),
            ("tx-tcp-segmentation", self.tso),
            ("tx-udp-segmentation", self.udp_gso),
        ]
    }

    /// Reads the offloads out of the names of those that are on.
    pub(crate) fn from_names(names: &[String]) -> Self {
        let has = |name: &str| names.iter().any(|active| active == name);
        let [tx_checksum, gro, gso, tso, udp_gso] = Self::NONE.by_name().map(|(name, _)| has(name));
        Self { tx_checksum, gro, gso, tso, udp_gso }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for offloads in [
            Offloads::NONE,
            Offloads::ALL,
            Offloads { gro: true, ..Offloads::NONE },
            Offloads { udp_gso: false, ..Offloads::ALL },
        ] {
            let on = offloads.by_name().into_iter().filter(|(_, on)| *on);
            let names: Vec<String> = on.map(|(name, _)| name.to_owned()).collect();
            assert_eq!(Offloads::from_names(&names), offloads);
        }
    }
}
