//! Whose rules: Linux as it is, or Linux without what its own data show to be faults.

/// Whose rules a namespace follows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Profile {
    /// As Linux 6.18 does it, faults included: for predicting a kernel.
    Linux,
    /// Linux without its faults (see `docs/sockets.md` for each): for stacks of one's own.
    #[default]
    Rxsteer,
}

impl Profile {
    /// Returns the traits in which the profiles differ.
    pub(crate) const fn quirks(self) -> Quirks {
        let linux = matches!(self, Self::Linux);
        Quirks {
            early_demux: linux,
            stale_hash4: linux,
            stale_remote6: linux,
            placeholder4: linux,
            left_group: linux,
        }
    }
}

/// Traits of Linux that the data of its own behaviour name as faults. `true`: as Linux.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Quirks {
    /// Packets from a device try a shortcut before the look-up.
    pub(crate) early_demux: bool,
    /// A socket that reconnects stays filed under its first 4-tuple.
    pub(crate) stale_hash4: bool,
    /// Disconnecting leaves the remote IPv6 address.
    pub(crate) stale_remote6: bool,
    /// A connected IPv6 socket answers for 127.0.0.6.
    pub(crate) placeholder4: bool,
    /// A socket that left its reuseport group does not come back.
    pub(crate) left_group: bool,
}
