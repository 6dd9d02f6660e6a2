//! Why an operation on a socket was refused, one variant for each of the kernel's error numbers.

use std::fmt;

/// Why an operation on a socket was refused. The operation changed nothing.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SocketError {
    /// `EADDRINUSE`: another socket holds the address and port, or no automatic port is free.
    AddressInUse,
    /// `EADDRNOTAVAIL`: the address is none of the host's.
    AddressNotAvailable,
    /// `EAFNOSUPPORT`: the address is of a family that the socket cannot use.
    FamilyNotSupported,
    /// `EBADF`: the socket was closed.
    Closed,
    /// `EINVAL`: already bound, not bound, or a value that the option does not take.
    Invalid,
    /// `ENETUNREACH`: there is no way from the socket's address to that address.
    NetworkUnreachable,
    /// `ENOBUFS`: no room for another socket.
    NoBuffers,
    /// `ENODEV`: no such device.
    NoDevice,
    /// `ENOTCONN`: the socket is not connected.
    NotConnected,
}

impl SocketError {
    /// Returns the name of the kernel's error number.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AddressInUse => "EADDRINUSE",
            Self::AddressNotAvailable => "EADDRNOTAVAIL",
            Self::FamilyNotSupported => "EAFNOSUPPORT",
            Self::Closed => "EBADF",
            Self::Invalid => "EINVAL",
            Self::NetworkUnreachable => "ENETUNREACH",
            Self::NoBuffers => "ENOBUFS",
            Self::NoDevice => "ENODEV",
            Self::NotConnected => "ENOTCONN",
        }
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::AddressInUse => "address in use",
            Self::AddressNotAvailable => "address not available",
            Self::FamilyNotSupported => "address family not supported",
            Self::Closed => "socket is closed",
            Self::Invalid => "invalid argument",
            Self::NetworkUnreachable => "network is unreachable",
            Self::NoBuffers => "no room for another socket",
            Self::NoDevice => "no such device",
            Self::NotConnected => "socket is not connected",
        };
        write!(f, "{words} ({})", self.name())
    }
}

impl std::error::Error for SocketError {}
