//! Loading the object: its maps sized, its globals set, each program by its kind.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};

use aya::maps::Map;
use aya::programs::{Program, ProgramError};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use rxsteer_ebpf::{Offsets, global, map, program};

use crate::btf::{BtfError, Types};

/// What the loader is told before anything is loaded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Sizes {
    /// Buckets of the flow tables, both together.
    pub(crate) buckets: u32,
    /// Entries of the CPUMAP; `None`: as many as the object says.
    pub(crate) cpus: Option<u32>,
    /// Connected sockets whose flows are kept in mind; `None`: as many as the object says.
    pub(crate) sockets: Option<u32>,
}

impl Sizes {
    /// As the object says.
    pub(crate) const DEFAULT: Self = Self { buckets: 2 * 8192, cpus: None, sockets: None };
}

/// Prepares the object: creates its maps. `namespace` is that of the sockets to hear, 0: all; `place`
/// the namespace and the interface whose ports are served.
pub(crate) fn prepare(
    object: &[u8],
    sizes: Sizes,
    offsets: Offsets,
    namespace: u32,
    place: [u32; 2],
) -> Result<Ebpf, EbpfError> {
    let offsets = offsets.to_words();
    let mut loader = EbpfLoader::new();
    loader
        .map_max_entries(map::FLOWS, sizes.buckets.max(1))
        .override_global(global::OFFSETS, &offsets, false)
        .override_global(global::NAMESPACE, &namespace, false)
        .override_global(global::PLACE, &place, false);
    if let Some(cpus) = sizes.cpus {
        loader.map_max_entries(map::CPUS, cpus);
    }
    if let Some(sockets) = sizes.sockets {
        loader.map_max_entries(map::SOCKETS, sockets);
    }
    loader.load(object)
}

/// Lets the programs use a map that is there already in the place of the one of this name that was made
/// for them; to be called before a program is loaded.
///
/// Aya cannot be told of a map but by a path, and nothing of ours shall have one. But instructions name
/// a map by the number of its descriptor until they are loaded, and a number can be given another map.
pub(crate) fn share(ebpf: &Ebpf, name: &str, map: BorrowedFd<'_>) -> io::Result<()> {
    let own = ebpf.map(name).and_then(raw_fd);
    let own = own.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    // SAFETY: `own` is the descriptor of a map that `ebpf` owns. It stays open, owned and the
    // descriptor of a map of the same kind.
    let said = unsafe { libc::dup3(map.as_raw_fd(), own, libc::O_CLOEXEC) };
    if said < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Loads one program into the kernel.
pub(crate) fn load(
    program: &mut Program,
    name: &str,
    btf: Option<&Btf>,
) -> Result<(), ProgramError> {
    match program {
        Program::Xdp(program) => program.load(),
        Program::CgroupSock(program) => program.load(),
        Program::SchedClassifier(program) => program.load(),
        Program::BtfTracePoint(program) => {
            let event = program::EVENTS.iter().find(|(this, _)| *this == name);
            let (Some((_, event)), Some(btf)) = (event, btf) else {
                return Err(ProgramError::UnexpectedProgramType);
            };
            program.load(event, btf)
        }
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

/// Returns where the running kernel keeps what the programs read of sockets.
pub(crate) fn offsets() -> Result<Offsets, BtfError> {
    let types = Types::of_kernel()?;
    let common = |member| types.offset("sock", &["__sk_common", member]);
    let v6_only = types.offset_bits("sock", &["__sk_common", "skc_ipv6only"])?;
    Ok(Offsets {
        family: common("skc_family")?,
        state: common("skc_state")?,
        peer_v4: common("skc_daddr")?,
        own_v4: common("skc_rcv_saddr")?,
        peer_port: common("skc_dport")?,
        own_port: common("skc_num")?,
        peer_v6: common("skc_v6_daddr")?,
        own_v6: common("skc_v6_rcv_saddr")?,
        protocol: types.offset("sock", &["sk_protocol"])?,
        namespace: common("skc_net")?,
        namespace_number: types.offset("net", &["ns", "inum"])?,
        bound_device: common("skc_bound_dev_if")?,
        v6_only: v6_only / 8,
        v6_only_mask: 1 << (v6_only % 8),
        queued_bytes: types.offset("sock", &["sk_backlog", "rmem_alloc"])?,
        buffer_bytes: types.offset("sock", &["sk_rcvbuf"])?,
        group: types.offset("sock", &["sk_reuseport_cb"])?,
        group_size: types.offset("sock_reuseport", &["num_socks"])?,
        true_size: types.offset("sk_buff", &["truesize"])?,
        ethertype: types.offset("sk_buff", &["protocol"])?,
    })
}

/// Returns the descriptor of a map of one of the kinds that the programs declare.
pub(crate) fn raw_fd(map: &Map) -> Option<RawFd> {
    match map {
        Map::Array(data)
        | Map::PerCpuArray(data)
        | Map::CpuMap(data)
        | Map::LruHashMap(data)
        | Map::HashMap(data) => Some(data.fd().as_fd().as_raw_fd()),
        _ => None,
    }
}
