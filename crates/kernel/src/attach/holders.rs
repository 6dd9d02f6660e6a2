//! Which processes hold an XDP program on an interface, so that an error can name them.
//!
//! A link belongs to whoever has a descriptor of it, and the kernel tells of each descriptor in
//! proc. Programs that were put there without a link, as by `ip link`, are held by nobody.
//!
//! Source: proc_pid_fdinfo(5); the fields `link_type` and `prog_id` that the kernel adds for links.

use std::fs;
use std::path::Path;

/// A process that holds a program on an interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holder {
    /// Its number, as this process sees it.
    pub pid: u32,
    /// Its name, at most 15 bytes.
    pub command: String,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command)
    }
}

/// Returns the processes that hold the program of this number by an XDP link, as far as this process
/// may look into them.
pub fn holders(program: u32) -> Vec<Holder> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<Holder> = processes
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let of_process = entry.path();
            holds(&of_process, program).then(|| {
                let command = fs::read_to_string(of_process.join("comm")).unwrap_or_default();
                Holder { pid, command: command.trim_end().to_owned() }
            })
        })
        .collect();
    found.sort_by_key(|holder| holder.pid);
    found
}

fn holds(process: &Path, program: u32) -> bool {
    let descriptors = fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|descriptor| fs::read_to_string(descriptor.path()).ok())
        .any(|text| is_xdp_link_of(&text, program))
}

fn is_xdp_link_of(text: &str, program: u32) -> bool {
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    field("link_type") == Some("xdp")
        && field("prog_id").and_then(|id| id.parse().ok()) == Some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_told_from_other_descriptors_and_other_programs() {
        let link = "pos:\t0\nflags:\t02000002\nmnt_id:\t16\nino:\t57\nlink_type:\txdp\nlink_id:\t4\n\
                    prog_tag:\t0123456789abcdef\nprog_id:\t37\nifindex:\t2\n";
        assert!(is_xdp_link_of(link, 37));
        assert!(!is_xdp_link_of(link, 3));
        assert!(!is_xdp_link_of(&link.replace("\txdp", "\ttracing"), 37));
        // The descriptor of a program has its number too.
        assert!(!is_xdp_link_of("pos:\t0\nprog_type:\t6\nprog_id:\t37\n", 37));
    }

    #[test]
    fn nobody_holds_a_program_that_does_not_exist() {
        assert_eq!(holders(u32::MAX), []);
    }
}
