//! The compiled programs.

/// The ELF object of the eBPF programs, as `cargo xtask ebpf` built it; `object/rxsteer.bpf.toml`
/// records its SHA-256 and the tools that made it.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!("../object/rxsteer.bpf.o");

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    #[test]
    fn the_object_has_the_recorded_hash() {
        let record = include_str!("../object/rxsteer.bpf.toml");
        let digest: String =
            Sha256::digest(super::OBJECT).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(
            record.contains(&format!("sha256 = \"{digest}\"\n")),
            "{digest} is not in\n{record}"
        );
    }
}
