//! Live frames: the kernel runs an XDP program over a frame again and again, and sends what it
//! redirects.
//!
//! No packet is allocated and none passes a socket, so this is the fastest source that a host without
//! `pktgen` has. The frame is one; the program writes another source into it each time.
//!
//! Source: Documentation/bpf/bpf_prog_run.rst, "Running XDP programs in live frame mode".

mod object;
mod program;

use std::io;

use aya::programs::{ProgramError, TestRun as _, TestRunAttrs, TestRunOptions, Xdp};

use super::{GenSpec, Means, Sender, Sent};
use crate::traffic::{FIRST_PORT, Frames, Link, PORTS, Pattern};
use crate::{BenchError, Kind, Traffic};

/// Frames with one system call, which sets up memory for them each time.
const MOST_AT_ONCE: usize = 1 << 15;

/// Most frames that the kernel sends together.
const MOST_BATCH: u32 = 256;

/// Most bytes of a frame: it must fit into a page with what the kernel puts around it.
const LONGEST: usize = 3400;

/// Says why this traffic cannot be sent so; `None` if it can.
pub(super) fn hindrance(traffic: &Traffic) -> Option<(String, &'static str)> {
    if !matches!(traffic.kind, Kind::Udp | Kind::TcpSyn) {
        return Some((traffic.kind.to_string(), "packet can"));
    }
    if traffic.pattern == Pattern::HeavyTail {
        return Some((traffic.pattern.to_string(), "packet can"));
    }
    if traffic.sizes.only().is_none() {
        return Some((format!("payloads of {} bytes", traffic.sizes), "packet can"));
    }
    if traffic.flows > PORTS && traffic.pattern != Pattern::Random {
        return Some((format!("{} flows", traffic.flows), "it has 50000 ports; packet can"));
    }
    None
}

/// A loaded program and its frame.
pub(crate) struct LiveFrames {
    ebpf: aya::Ebpf,
    frame: Vec<u8>,
    batch: u32,
    at_once: usize,
}

impl LiveFrames {
    /// Loads the program for a device of this thread's namespace.
    pub(crate) fn open(spec: &GenSpec, device: u32, link: &Link) -> Result<Self, BenchError> {
        let traffic = &spec.traffic;
        let cannot = |what, why| BenchError::CannotSend { means: "live", what, why };
        if let Some((what, why)) = hindrance(traffic) {
            return Err(cannot(what, why));
        }
        // A frame of the first flow; the program writes the others into it.
        let mut frames =
            Frames::new(&Traffic { pattern: Pattern::InTurn, ..traffic.clone() }, link)?;
        let mut frame = vec![0; frames.longest()];
        frames.write(&mut frame);
        if frame.len() > LONGEST {
            let what = format!("frames of {} bytes", frame.len());
            return Err(cannot(what, "they must fit into a page; packet can"));
        }
        let code = program::assemble(&program::Plan {
            device,
            places: frames.places(),
            pattern: traffic.pattern,
            flows: traffic.flows,
            first_port: FIRST_PORT,
        });
        let ebpf = load(&code)?;
        // Paced frames go as they are due.
        let at_once = if spec.rate == 0 { MOST_AT_ONCE } else { spec.batch };
        Ok(Self { ebpf, frame, batch: (spec.batch as u32).min(MOST_BATCH), at_once })
    }
}

impl LiveFrames {
    /// Loads a program that drops its own frames: what sending takes by itself.
    pub(crate) fn dropping(spec: &GenSpec, link: &Link) -> Result<Self, BenchError> {
        let mut frames = Frames::new(&spec.traffic, link)?;
        let mut frame = vec![0; frames.longest()];
        frames.write(&mut frame);
        let refused = |error: &dyn std::error::Error| BenchError::LiveFrames(in_full(error));
        let object = object::wrap(&program::drop_all()).map_err(|error| refused(&error))?;
        let mut ebpf = aya::Ebpf::load(&object).map_err(|error| refused(&error))?;
        let program: &mut Xdp = ebpf
            .program_mut(program::NAME)
            .expect("the object has this program")
            .try_into()
            .map_err(|error: ProgramError| refused(&error))?;
        program.load().map_err(|error| refused(&error))?;
        let batch = (spec.batch as u32).min(MOST_BATCH);
        Ok(Self { ebpf, frame, batch, at_once: MOST_AT_ONCE })
    }

    /// Sends so many frames with one call.
    pub(crate) fn run(&mut self, frames: usize) -> io::Result<()> {
        self.at_once = frames;
        Sender::send(self, frames).map(drop)
    }
}

impl Sender for LiveFrames {
    fn at_once(&self) -> Option<usize> {
        Some(self.at_once)
    }

    fn send(&mut self, most: usize) -> io::Result<Sent> {
        let program = xdp(&mut self.ebpf).map_err(io::Error::other)?;
        let repeat = most.min(self.at_once) as u32;
        let attrs = TestRunAttrs::new().xdp_live_frames(self.batch);
        let data_in = Some(self.frame.as_slice());
        program
            .test_run(TestRunOptions { data_in, repeat, attrs, ..TestRunOptions::new() })
            .map_err(|error| io::Error::other(in_full(&error)))?;
        let (packets, len) = (u64::from(repeat), self.frame.len() as u64);
        Ok(Sent { packets, bytes: packets * len, ..Sent::default() })
    }

    fn means(&self) -> Means {
        Means::Live
    }

    fn describe(&self) -> String {
        format!("live XDP frames by BPF test run, {} together", self.batch)
    }
}

/// Returns an error and its causes.
fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Has every frame dropped that a device of this thread's namespace receives, until what is returned is
/// dropped.
pub(crate) fn drop_all(device: &str) -> Result<aya::Ebpf, BenchError> {
    attach(&program::drop_all(), device)
}

/// Has every frame that a device of this thread's namespace receives redirected to another, until what
/// is returned is dropped.
#[cfg(test)]
pub(crate) fn redirect(from: &str, to: u32) -> aya::Ebpf {
    attach(&program::redirect(to), from).unwrap()
}

fn attach(code: &program::Code, device: &str) -> Result<aya::Ebpf, BenchError> {
    let mut ebpf = load(code)?;
    let mode = aya::programs::xdp::XdpMode::default();
    let attached = xdp(&mut ebpf).and_then(|program| program.attach(device, mode));
    attached.map_err(|error| refused(&error))?;
    Ok(ebpf)
}

/// Has the kernel check a program.
fn load(code: &program::Code) -> Result<aya::Ebpf, BenchError> {
    let object = object::wrap(code).map_err(|error| refused(&error))?;
    let mut ebpf = aya::Ebpf::load(&object).map_err(|error| refused(&error))?;
    xdp(&mut ebpf).and_then(Xdp::load).map_err(|error| refused(&error))?;
    Ok(ebpf)
}

/// Returns the program of an object.
fn xdp(ebpf: &mut aya::Ebpf) -> Result<&mut Xdp, ProgramError> {
    ebpf.program_mut(program::NAME).expect("the object has this program").try_into()
}

fn refused(error: &dyn std::error::Error) -> BenchError {
    BenchError::LiveFrames(in_full(error))
}
