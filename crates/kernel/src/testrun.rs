//! Running the programs over frames of our own making, without a device.
//!
//! Source: the kernel's Documentation/bpf/bpf_prog_run.rst.

use std::time::Duration;

use aya::maps::{Array, MapError};
use aya::programs::{Program, ProgramError, TestRun, TestRunOptions};
use rxsteer_ebpf::{OBSERVE_PROGRAM, SEEN_MAP, Seen};

use crate::OBJECT;

/// What an XDP program says shall become of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// A run-time error of the program; the frame is dropped.
    Aborted,
    /// Dropped.
    Drop,
    /// On to the stack of this CPU.
    Pass,
    /// Back out of the same device.
    Transmit,
    /// To another device, CPU or socket.
    Redirect,
    /// A value that the kernel treats as `Aborted`.
    Unknown(u32),
}

impl From<u32> for Action {
    fn from(value: u32) -> Self {
        match value {
            0 => Self::Aborted,
            1 => Self::Drop,
            2 => Self::Pass,
            3 => Self::Transmit,
            4 => Self::Redirect,
            other => Self::Unknown(other),
        }
    }
}

/// Result of running a program over a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Run {
    /// What the program said, the last time.
    pub action: Action,
    /// Mean duration of one run, in whole nanoseconds as the kernel measured it.
    pub mean: Duration,
}

/// Why a program did not run.
#[derive(Debug, thiserror::Error)]
pub enum TestRunError {
    /// The object cannot be loaded.
    #[error("cannot load the object: {0}")]
    Object(#[source] Box<aya::EbpfError>),
    /// There is no XDP program of this name.
    #[error("the object has no XDP program {0}")]
    NoProgram(String),
    /// The kernel refuses the program, or the frame (it takes 14 to about 3,500 bytes).
    #[error("the kernel refuses {name}: {source}")]
    Refused {
        /// Name of the program.
        name: String,
        /// What the kernel said.
        source: Box<ProgramError>,
    },
    /// There is no map of this name.
    #[error("the object has no map {0}")]
    NoMap(&'static str),
    /// A map cannot be read.
    #[error("cannot read map {name}: {source}")]
    Map {
        /// Name of the map.
        name: &'static str,
        /// What went wrong.
        source: Box<MapError>,
    },
}

/// The programs, loaded and attached to nothing.
pub struct TestBed {
    ebpf: aya::Ebpf,
}

impl TestBed {
    /// Loads all programs of [`OBJECT`].
    ///
    /// # Errors
    /// [`TestRunError::Object`] or [`TestRunError::Refused`], with what the kernel said.
    pub fn new() -> Result<Self, TestRunError> {
        let loaded = aya::EbpfLoader::new().load(OBJECT);
        let mut ebpf = loaded.map_err(|error| TestRunError::Object(Box::new(error)))?;
        for (name, program) in ebpf.programs_mut() {
            let Program::Xdp(program) = program else {
                return Err(TestRunError::NoProgram(name.to_owned()));
            };
            program.load().map_err(|source| refused(name, source))?;
        }
        Ok(Self { ebpf })
    }

    /// Runs the program `repeat` times over the frame.
    ///
    /// # Errors
    /// [`TestRunError::NoProgram`]; [`TestRunError::Refused`] if the kernel does not take a frame
    /// of this length.
    pub fn run(&self, name: &str, frame: &[u8], repeat: u32) -> Result<Run, TestRunError> {
        let Some(Program::Xdp(program)) = self.ebpf.program(name) else {
            return Err(TestRunError::NoProgram(name.to_owned()));
        };
        let options = TestRunOptions { data_in: Some(frame), repeat, ..TestRunOptions::new() };
        let result = program.test_run(options).map_err(|source| refused(name, source))?;
        Ok(Run { action: result.return_value.into(), mean: result.duration })
    }

    /// Runs the program that observes over the frame and returns what core, as eBPF, makes of it.
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and [`TestRunError::Map`].
    pub fn observe(&mut self, frame: &[u8]) -> Result<Seen, TestRunError> {
        self.run(OBSERVE_PROGRAM, frame, 1)?;
        let map = |source| TestRunError::Map { name: SEEN_MAP, source: Box::new(source) };
        let seen = self.ebpf.map(SEEN_MAP).ok_or(TestRunError::NoMap(SEEN_MAP))?;
        let seen: Array<_, [u32; Seen::WORDS]> = Array::try_from(seen).map_err(map)?;
        Ok(Seen { words: seen.get(&0, 0).map_err(map)? })
    }
}

fn refused(name: &str, source: ProgramError) -> TestRunError {
    TestRunError::Refused { name: name.to_owned(), source: Box::new(source) }
}
