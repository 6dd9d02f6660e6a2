//! Running the programs over frames of our own making, without a device.
//!
//! Elsewhere: what they should say ([`crate::Twin`]); what the verifier says ([`crate::verify`]).
//! Source: the kernel's Documentation/bpf/bpf_prog_run.rst.

use std::time::Duration;

use aya::maps::{Array, CpuMap, Map};
use aya::programs::{Program, ProgramError, TestRun, TestRunOptions};
use rxsteer_core::CpuId;
use rxsteer_core::table::WAYS;
use rxsteer_ebpf::{Config, MAX_CPUS, Offsets, Seen, cpu_state, map, program};

use crate::OBJECT;
use crate::load::{self, Sizes};

/// Packets that wait for a CPU in the CPUMAP.
const CPUMAP_QUEUE: u32 = 64;

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
    /// The kernel refuses the program, or the frame (see [`TestBed::FRAME_BYTES`]).
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
    /// A map cannot be read or written.
    #[error("map {name}: {source}")]
    Map {
        /// Name of the map.
        name: &'static str,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What the programs are told before they run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Setup {
    /// Settings.
    pub config: Config,
    /// CPUs of the mask of queue 0, all of them online; at most [`MAX_CPUS`].
    pub cpus: Vec<CpuId>,
    /// The buckets of the flow tables: TCP, then UDP.
    pub flows: Vec<[u64; WAYS]>,
}

/// The programs, loaded and attached to nothing.
pub struct TestBed {
    ebpf: aya::Ebpf,
}

impl TestBed {
    /// Bytes that a frame may have: the kernel takes no shorter one, and what is longer would not
    /// be in one page.
    pub const FRAME_BYTES: std::ops::RangeInclusive<usize> = 14..=3500;

    /// Loads the XDP programs of [`OBJECT`] and tells them `setup`.
    ///
    /// # Errors
    /// [`TestRunError`], with what the kernel said.
    pub fn new(setup: &Setup) -> Result<Self, TestRunError> {
        let flows = setup.flows.len().max(1) as u32;
        let sizes = Sizes { buckets: flows, ..Sizes::DEFAULT };
        // No program that hears sockets is loaded, so no place in a structure is needed.
        let loaded = load::prepare(OBJECT, sizes, Offsets::default(), 0, [0; 2]);
        let mut ebpf = loaded.map_err(|error| TestRunError::Object(Box::new(error)))?;
        for (name, program) in ebpf.programs_mut() {
            if let Program::Xdp(program) = program {
                program.load().map_err(|source| refused(name, source))?;
            }
        }
        let mut bed = Self { ebpf };
        bed.tell(setup)?;
        Ok(bed)
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
        // Nothing from the frame before may pass for an answer.
        self.set(map::SEEN, 0, [u32::MAX; Seen::WORDS])?;
        self.run(program::OBSERVE, frame, 1)?;
        Ok(Seen { words: self.get(map::SEEN, 0)? })
    }

    /// Returns the buckets of the flow tables as the programs left them.
    ///
    /// # Errors
    /// [`TestRunError::Map`].
    pub fn flows(&self, buckets: u32) -> Result<Vec<[u64; WAYS]>, TestRunError> {
        (0..buckets).map(|index| self.get(map::FLOWS, index)).collect()
    }

    fn tell(&mut self, setup: &Setup) -> Result<(), TestRunError> {
        self.set(map::CONFIG, 0, setup.config.to_words())?;
        for (index, bucket) in setup.flows.iter().enumerate() {
            self.set(map::FLOWS, index as u32, *bucket)?;
        }
        // The number of CPUs, then their ids, 16 bits each.
        let mut queue = [0u16; 2 + MAX_CPUS];
        queue[0] = setup.cpus.len() as u16;
        for (place, cpu) in queue[2..].iter_mut().zip(&setup.cpus) {
            *place = cpu.0;
        }
        self.set(map::QUEUES, 0, queue)?;
        for cpu in &setup.cpus {
            let mut state = [0u64; cpu_state::WORDS];
            state[cpu_state::ONLINE] = 1;
            self.set(map::CPU_STATES, u32::from(cpu.0), state)?;
            let cpus = self.ebpf.map_mut(map::CPUS).ok_or(TestRunError::NoMap(map::CPUS))?;
            let mut cpus = CpuMap::try_from(cpus).map_err(in_map(map::CPUS))?;
            cpus.set(u32::from(cpu.0), CPUMAP_QUEUE, None, 0).map_err(in_map(map::CPUS))?;
        }
        Ok(())
    }

    fn set<V: aya::Pod>(
        &mut self,
        name: &'static str,
        index: u32,
        value: V,
    ) -> Result<(), TestRunError> {
        let map = self.ebpf.map_mut(name).ok_or(TestRunError::NoMap(name))?;
        let mut array: Array<_, V> = Array::try_from(map).map_err(in_map(name))?;
        array.set(index, value, 0).map_err(in_map(name))
    }

    fn get<V: aya::Pod>(&self, name: &'static str, index: u32) -> Result<V, TestRunError> {
        let map: &Map = self.ebpf.map(name).ok_or(TestRunError::NoMap(name))?;
        let array: Array<_, V> = Array::try_from(map).map_err(in_map(name))?;
        array.get(&index, 0).map_err(in_map(name))
    }
}

fn refused(name: &str, source: ProgramError) -> TestRunError {
    TestRunError::Refused { name: name.to_owned(), source: Box::new(source) }
}

fn in_map<E: std::error::Error + Send + Sync + 'static>(
    name: &'static str,
) -> impl Fn(E) -> TestRunError {
    move |source| TestRunError::Map { name, source: Box::new(source) }
}
