//! The host on which figures were made: without it they say little.

use std::fs;
use std::path::Path;

use nix::sys::utsname::uname;
use serde::Serialize;

/// What a reader of figures must know of the host.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct HostFacts {
    /// Name and release of the kernel.
    pub kernel: String,
    /// Processor architecture.
    pub machine: String,
    /// Model of the first CPU.
    pub cpu_model: String,
    /// CPUs that are online, as a list.
    pub online: String,
    /// Groups of CPUs that share a last cache, as lists.
    pub caches: Vec<String>,
    /// Groups of CPUs that share a core, as lists; those of more than one CPU.
    pub siblings: Vec<String>,
    /// Whether the CPU says that it runs under a hypervisor.
    pub is_virtual: bool,
}

impl HostFacts {
    /// Reads them; what the kernel does not tell is empty.
    pub fn read() -> Self {
        let name = uname().ok();
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let info = text("/proc/cpuinfo");
        let name_of = |f: fn(&nix::sys::utsname::UtsName) -> &std::ffi::OsStr| {
            name.as_ref().map(|name| f(name).to_string_lossy().into_owned()).unwrap_or_default()
        };
        let cpus = Path::new("/sys/devices/system/cpu");
        Self {
            kernel: format!("{} {}", name_of(|n| n.sysname()), name_of(|n| n.release())),
            machine: name_of(|n| n.machine()),
            cpu_model: model(&info).to_owned(),
            online: text("/sys/devices/system/cpu/online").trim().to_owned(),
            caches: groups(cpus, last_cache, 1),
            siblings: groups(cpus, |cpu| read(&cpu.join("topology/thread_siblings_list")), 2),
            is_virtual: flags(&info).any(|flag| flag == "hypervisor"),
        }
    }
}

fn model(info: &str) -> &str {
    field(info, "model name").or_else(|| field(info, "CPU part")).unwrap_or("")
}

fn flags(info: &str) -> impl Iterator<Item = &str> {
    field(info, "flags").unwrap_or("").split_ascii_whitespace()
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Returns the CPUs that share the last cache with one.
fn last_cache(cpu: &Path) -> Option<String> {
    let last = (0..8).rev().find(|index| cpu.join(format!("cache/index{index}")).exists())?;
    read(&cpu.join(format!("cache/index{last}/shared_cpu_list")))
}

/// Returns the distinct groups of at least so many CPUs, in order of the CPUs.
fn groups(cpus: &Path, of: impl Fn(&Path) -> Option<String>, at_least: usize) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for cpu in (0..4096).map(|cpu| cpus.join(format!("cpu{cpu}"))).take_while(|cpu| cpu.exists()) {
        let group = of(&cpu).unwrap_or_default();
        let is_large = at_least < 2 || group.contains([',', '-']);
        if is_large && !group.is_empty() && !all.contains(&group) {
            all.push(group);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_read_where_there_is_one() {
        let intel = "processor\t: 0\nmodel name\t: Xeon (R) : 7\nflags\t\t: fpu hypervisor\n";
        assert_eq!(model(intel), "Xeon (R) : 7");
        assert!(flags(intel).any(|flag| flag == "hypervisor"));
        assert_eq!(model("processor: 0\nCPU part\t: 0xd0c\n"), "0xd0c");
        assert_eq!(model(""), "");
    }

    #[test]
    fn this_host_has_facts() {
        let facts = HostFacts::read();
        assert!(facts.kernel.starts_with("Linux "), "{facts:?}");
        assert!(!facts.online.is_empty() && !facts.machine.is_empty(), "{facts:?}");
    }
}
