//! Why a frame was not read to its end.

/// Why a frame could not be dissected to its end. Small and `Copy`: eBPF returns and counts it.
///
/// Each variant has the byte of the frame at which the header in question starts (modulo
/// 65,536).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum DissectError {
    /// The frame, or the length field of an enclosing header, ends inside the header here.
    Truncated(u16),
    /// No reader for the network layer with this ethertype.
    UnknownEthertype(u16),
    /// IPv4 header length, in 32-bit words, is below 5 (RFC 791, section 3.1).
    BadIhl(u16),
    /// The IP version differs from the one the header before announced.
    BadVersion(u16),
    /// A length field is below the size of the header that holds it.
    BadLength(u16),
    /// PPPoE version or type is not 1, or the code is not 0 (RFC 2516, section 4).
    BadPppoe(u16),
    /// Not the protocol number of a PPP packet.
    BadPpp(u16),
    /// batman-adv of another version, or not a unicast packet.
    BadBatman(u16),
    /// GRE with the routing bit (RFC 1701): what follows cannot be found.
    GreRouting(u16),
    /// GRE of a version above 1.
    BadGreVersion(u16),
    /// GRE version 1 without key or with another protocol than PPP (RFC 2637, section 4.1).
    BadPptp(u16),
    /// A tunnel header of unknown version or shape.
    BadTunnel(u16),
    /// More VLAN tags than [`MAX_TAGS`](super::MAX_TAGS).
    TooManyTags(u16),
    /// More headers inside one another than the mode follows.
    TooDeep(u16),
}

impl DissectError {
    /// Number of variants; [`index`](Self::index) is below it.
    pub const COUNT: usize = 14;

    /// Names of the variants, at the place that [`index`](Self::index) returns.
    pub const NAMES: [&'static str; Self::COUNT] = [
        "truncated",
        "unknown-ethertype",
        "bad-ihl",
        "bad-version",
        "bad-length",
        "bad-pppoe",
        "bad-ppp",
        "bad-batman",
        "gre-routing",
        "bad-gre-version",
        "bad-pptp",
        "bad-tunnel",
        "too-many-tags",
        "too-deep",
    ];

    /// Returns the place of the variant in a table of counters.
    #[inline]
    pub const fn index(self) -> usize {
        match self {
            Self::Truncated(_) => 0,
            Self::UnknownEthertype(_) => 1,
            Self::BadIhl(_) => 2,
            Self::BadVersion(_) => 3,
            Self::BadLength(_) => 4,
            Self::BadPppoe(_) => 5,
            Self::BadPpp(_) => 6,
            Self::BadBatman(_) => 7,
            Self::GreRouting(_) => 8,
            Self::BadGreVersion(_) => 9,
            Self::BadPptp(_) => 10,
            Self::BadTunnel(_) => 11,
            Self::TooManyTags(_) => 12,
            Self::TooDeep(_) => 13,
        }
    }

    /// Returns the name of the variant, for counters and listings.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }

    /// Returns the byte of the frame at which the header in question starts.
    #[inline]
    pub const fn position(self) -> u16 {
        match self {
            Self::Truncated(at)
            | Self::UnknownEthertype(at)
            | Self::BadIhl(at)
            | Self::BadVersion(at)
            | Self::BadLength(at)
            | Self::BadPppoe(at)
            | Self::BadPpp(at)
            | Self::BadBatman(at)
            | Self::GreRouting(at)
            | Self::BadGreVersion(at)
            | Self::BadPptp(at)
            | Self::BadTunnel(at)
            | Self::TooManyTags(at)
            | Self::TooDeep(at) => at,
        }
    }
}

impl core::fmt::Display for DissectError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} at byte {}", self.name(), self.position())
    }
}

impl core::error::Error for DissectError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_its_own_counter_and_name() {
        let all = [
            DissectError::Truncated(1),
            DissectError::UnknownEthertype(1),
            DissectError::BadIhl(1),
            DissectError::BadVersion(1),
            DissectError::BadLength(1),
            DissectError::BadPppoe(1),
            DissectError::BadPpp(1),
            DissectError::BadBatman(1),
            DissectError::GreRouting(1),
            DissectError::BadGreVersion(1),
            DissectError::BadPptp(1),
            DissectError::BadTunnel(1),
            DissectError::TooManyTags(1),
            DissectError::TooDeep(1),
        ];
        let mut seen = [false; DissectError::COUNT];
        for error in all {
            assert!(!seen[error.index()], "{error}");
            seen[error.index()] = true;
            assert_eq!(error.position(), 1);
            assert!(!error.name().is_empty());
        }
        assert_eq!(seen, [true; DissectError::COUNT]);
        assert_eq!(size_of::<DissectError>(), 4);
    }
}
