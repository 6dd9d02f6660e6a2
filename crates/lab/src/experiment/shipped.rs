//! The experiments in the binary.

/// An experiment in the binary.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(Shipped {
            name: $name,
            text: include_str!(concat!("../../experiments/", $name, ".toml")),
        }),*]
    };
}

/// All of them, in the order in which they are shown.
pub const SHIPPED: &[Shipped] = shipped![
    "rps-scaling",
    "udp-rr",
    "idle-tcp",
    "udp-flood-table",
    "mixed-protocols",
    "table-size",
    "syn-flood",
    "tunnels",
    "quic-unconnected",
    "hash4",
    "livelock",
    "livelock-load",
    "attach-overload",
    "elephant",
    "mask-change",
];

/// Returns the experiment of this name.
pub fn shipped(name: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|shipped| shipped.name == name)
}
