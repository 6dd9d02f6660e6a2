//! The CPUs of this host, as the kernel lists them.
//!
//! Source: the kernel's Documentation/admin-guide/cputopology.rst.

use std::fs;
use std::io;

use rxsteer_core::CpuSet;
use rxsteer_core::cpu::CpuStates;

/// Returns which CPUs of this host exist, run, and are kept free.
///
/// # Errors
/// If the kernel does not list them, or not as a list of CPUs.
pub fn host_cpus() -> io::Result<CpuStates> {
    let read = |name: &str| -> io::Result<CpuSet> {
        let path = format!("/sys/devices/system/cpu/{name}");
        let text = fs::read_to_string(&path)?;
        CpuSet::from_list(&text)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {error}")))
    };
    let possible = read("possible")?;
    // Older kernels have no such file, and nothing isolated to list.
    let isolated = read("isolated").unwrap_or(CpuSet::EMPTY);
    Ok(CpuStates { possible, online: read("online")?, isolated })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_cpu_that_asks_is_online() {
        let Ok(cpus) = super::host_cpus() else { return };
        assert!(cpus.online.count() >= 1);
        assert_eq!(cpus.online.difference(&cpus.possible).count(), 0);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        assert!(cpus.online.count() >= threads, "{cpus:?}, but {threads} threads run at once");
    }
}
