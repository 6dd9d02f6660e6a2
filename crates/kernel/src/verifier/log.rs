//! Loading one program for the sake of the verifier's log, which Aya keeps for failures only.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;

use aya_obj::ProgramSection;
use aya_obj::btf::{Btf, BtfKind};
use aya_obj::generated::{bpf_attach_type, bpf_cmd, bpf_insn, bpf_prog_type};
use rxsteer_ebpf::program;

use super::VerifyError;
use crate::link;

/// Log level of `BPF_PROG_LOAD`: counts only.
const LOG_STATS: u32 = 4;
/// Log level of `BPF_PROG_LOAD`: each instruction walked.
const LOG_INSTRUCTIONS: u32 = 1;
/// Room for the log; where it is too short the kernel (from 6.4) keeps the end.
const LOG_BYTES: usize = 16 << 20;
/// How much of a refusal is shown.
const LOG_LINES: usize = 60;

/// What the kernel must know of a program's kind.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    program: bpf_prog_type,
    attach: bpf_attach_type,
    /// Type of the tracepoint in the kernel's BTF; 0 for other kinds.
    event: u32,
}

impl Kind {
    /// Returns the kind of a program by its section.
    pub(super) fn of(name: &str, section: &ProgramSection, btf: &Btf) -> Result<Self, VerifyError> {
        let unknown = || VerifyError::ProgramKind(name.to_owned());
        let kind = |program, attach| Self { program, attach, event: 0 };
        Ok(match section {
            ProgramSection::Xdp { attach_type, .. } => {
                kind(bpf_prog_type::BPF_PROG_TYPE_XDP, (*attach_type).into())
            }
            ProgramSection::CgroupSock { attach_type } => {
                kind(bpf_prog_type::BPF_PROG_TYPE_CGROUP_SOCK, (*attach_type).into())
            }
            ProgramSection::SchedClassifier => {
                let any = bpf_attach_type::BPF_CGROUP_INET_INGRESS;
                kind(bpf_prog_type::BPF_PROG_TYPE_SCHED_CLS, any)
            }
            ProgramSection::BtfTracePoint => {
                let event = program::EVENTS.iter().find(|(this, _)| *this == name);
                let (_, event) = event.ok_or_else(unknown)?;
                let name = format!("btf_trace_{event}");
                Self {
                    program: bpf_prog_type::BPF_PROG_TYPE_TRACING,
                    attach: bpf_attach_type::BPF_TRACE_RAW_TP,
                    event: btf.id_by_type_name_kind(&name, BtfKind::Typedef)?,
                }
            }
            _ => return Err(unknown()),
        })
    }
}

/// Loads the program, unloads it and returns the counts of the log.
pub(super) fn with_log(
    name: &str,
    kind: Kind,
    license: &CStr,
    instructions: &[bpf_insn],
) -> Result<String, VerifyError> {
    let mut log = vec![0u8; LOG_BYTES];
    if prog_load(kind, license, instructions, LOG_STATS, &mut log).is_ok() {
        return Ok(text(&log));
    }
    log.fill(0);
    match prog_load(kind, license, instructions, LOG_STATS | LOG_INSTRUCTIONS, &mut log) {
        Ok(_) => Ok(text(&log)),
        Err(cause) => {
            let log = text(&log);
            let lines: Vec<&str> = log.lines().collect();
            let log = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            Err(VerifyError::Refused { name: name.to_owned(), cause, log })
        }
    }
}

/// Returns the log up to its terminating zero byte.
fn text(log: &[u8]) -> String {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end]).into_owned()
}

fn prog_load(
    kind: Kind,
    license: &CStr,
    instructions: &[bpf_insn],
    log_level: u32,
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let mut attr = link::empty();
    // SAFETY: BPF_PROG_LOAD uses this member of the union, and every bit pattern is valid for it.
    let load = unsafe { &mut attr.__bindgen_anon_3 };
    load.prog_type = kind.program as u32;
    load.expected_attach_type = kind.attach as u32;
    load.attach_btf_id = kind.event;
    load.insns = instructions.as_ptr() as u64;
    load.insn_cnt = instructions.len() as u32;
    load.license = license.as_ptr() as u64;
    load.log_level = log_level;
    load.log_buf = log.as_mut_ptr() as u64;
    load.log_size = log.len() as u32;
    // SAFETY: the instructions, the licence and the log, of which at most `log_size` bytes are written,
    // outlive the call.
    unsafe { link::bpf_new(bpf_cmd::BPF_PROG_LOAD, &mut attr) }
}
