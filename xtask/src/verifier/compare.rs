//! The same frames through the program and through native core: every word of the answers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rxsteer_core::CpuId;
use rxsteer_core::dissect::Start;
use rxsteer_core::hash::SoftHasher;
use rxsteer_core::steer::{Aware, Reason};
use rxsteer_ebpf::{Config, Seen};
use rxsteer_kernel::{TestBed, Twin};
use rxsteer_lab::capture::{CaptureOptions, Captures};
use rxsteer_lab::generate::{Rng, sample};

use super::Tally;

/// Settings of a comparison: small tables, so that buckets fill up and second buckets are read.
const CONFIG: Config = Config {
    hasher: SoftHasher { k0: 0x0706_0504_0302_0100, k1: 0x0f0e_0d0c_0b0a_0908 },
    tcp_buckets: 64,
    udp_buckets: 32,
    // Backlogs are empty here, so nothing would spill.
    aware: Aware { spill_above_packets: u32::MAX, learn_after: 8, flows_after: 2 },
};
/// CPUs of the mask. A redirect to one of them is said, not done, in a test run.
const CPUS: [CpuId; 2] = [CpuId(0), CpuId(1)];
/// Mismatches that are printed.
const SHOWN: usize = 10;

/// Compares over all packets of the captures below a folder.
pub(super) fn corpus(dir: &Path, tally: &mut Tally) -> Result<()> {
    let mut files = Vec::new();
    list(dir, &mut files)?;
    files.sort();
    if files.is_empty() {
        bail!("no captures below {}", dir.display());
    }
    let mut frames = Frames::default();
    for file in &files {
        frames.read(file)?;
    }
    println!(
        "corpus: {} captures, {} packets, of which {} have no header to start at and {} are \
         shorter than an Ethernet header; {} cut to {} bytes",
        files.len(),
        frames.bytes.len() + frames.no_start + frames.too_short,
        frames.no_start,
        frames.too_short,
        frames.cut,
        TestBed::FRAME_BYTES.end(),
    );
    compare("corpus", &frames.bytes, tally)
}

/// Compares over the frames of the sample, over each cut at every byte, and over mutants.
pub(super) fn crafted(tally: &mut Tally) -> Result<()> {
    let mut frames = Vec::new();
    let mut generated = sample().frames();
    while let Some(frame) = generated.next_frame() {
        frames.push(frame.bytes.clone());
    }
    frames.retain(|frame| TestBed::FRAME_BYTES.contains(&frame.len()));
    compare("sample", &frames, tally)?;

    let step = (frames.len() / 150).max(1);
    let cut = frames.iter().step_by(step).flat_map(|frame| {
        (*TestBed::FRAME_BYTES.start()..frame.len().min(160)).map(|end| frame[..end].to_vec())
    });
    compare("sample, cut at every byte", &cut.collect::<Vec<_>>(), tally)?;

    let mut rng = Rng::new(1, 1);
    let mutants = (0..20_000).map(|_| {
        let mut frame = frames[rng.below(frames.len() as u64) as usize].clone();
        for _ in 0..=rng.below(4) {
            // The bytes that decide what comes next are among the first.
            let place = rng.below(frame.len().min(100) as u64 - 12) as usize + 12;
            frame[place] = rng.bits() as u8;
        }
        frame
    });
    compare("sample, bytes changed", &mutants.collect::<Vec<_>>(), tally)
}

/// Runs every frame on both sides, each with tables that know every other flow.
fn compare(name: &str, frames: &[Vec<u8>], tally: &mut Tally) -> Result<()> {
    let twin = Twin::new(CONFIG, CPUS.to_vec()).context("table sizes")?;
    for (index, frame) in frames.iter().enumerate().step_by(2) {
        twin.record(frame, CPUS[index / 2 % 2]);
    }
    let mut bed = TestBed::new(&twin.setup())?;
    let mut reasons = [0u64; Reason::COUNT];
    let mut differences = 0;
    for (index, frame) in frames.iter().enumerate() {
        let native = twin.observe(frame, CPUS[0]);
        let mut program = bed.observe(frame).with_context(|| format!("{name}, frame {index}"))?;
        reasons[native.reason_index().min(Reason::COUNT - 1)] += 1;
        if native.reason_index() == Reason::Local.index() {
            // What stays stays where it came in, and that the kernel chose.
            program.set_cpu(native.cpu());
        }
        let is_equal = native == program;
        tally.count(is_equal);
        if !is_equal {
            differences += 1;
            if differences <= SHOWN {
                show(name, index, frame, &native, &program);
            }
        }
    }
    let is_same_table = bed.flows(CONFIG.tcp_buckets + CONFIG.udp_buckets)? == twin.flows();
    tally.count(is_same_table);
    let reasons = Reason::ALL.iter().zip(reasons).filter(|(_, count)| *count > 0);
    let reasons: Vec<String> =
        reasons.map(|(reason, count)| format!("{} {count}", reason.name())).collect();
    println!(
        "{name}: {} frames, {differences} answers differ, flow tables {}; {}",
        frames.len(),
        if is_same_table { "equal afterwards" } else { "DIFFER afterwards" },
        reasons.join(", ")
    );
    Ok(())
}

fn show(name: &str, index: usize, frame: &[u8], native: &Seen, program: &Seen) {
    println!("{name}, frame {index}, {} bytes:", frame.len());
    for (place, (a, b)) in native.words.iter().zip(&program.words).enumerate() {
        if a != b {
            println!("  word {place}: native {a:08x}, program {b:08x}");
        }
    }
    let head: String = frame.iter().take(96).map(|byte| format!("{byte:02x}")).collect();
    println!("  {head}");
}

fn list(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// Frames with an Ethernet header, as both sides get them.
#[derive(Default)]
struct Frames {
    bytes: Vec<Vec<u8>>,
    no_start: usize,
    too_short: usize,
    cut: usize,
}

impl Frames {
    fn read(&mut self, file: &Path) -> Result<()> {
        let mut captures = Captures::open(&[file], &CaptureOptions::default())?;
        while let Some(packet) = captures.next_packet()? {
            match packet.link.start(packet.data) {
                Ok((Start::Ethernet, offset)) => self.push(packet.data[offset..].to_vec()),
                Ok((Start::Network { ethertype, offset }, _)) => {
                    let mut frame = vec![0; 12];
                    frame.extend(ethertype.to_be_bytes());
                    frame.extend(&packet.data[usize::from(offset)..]);
                    self.push(frame);
                }
                Err(_) => self.no_start += 1,
            }
        }
        Ok(())
    }

    fn push(&mut self, mut frame: Vec<u8>) {
        if frame.len() < *TestBed::FRAME_BYTES.start() {
            self.too_short += 1;
            return;
        }
        if frame.len() > *TestBed::FRAME_BYTES.end() {
            frame.truncate(*TestBed::FRAME_BYTES.end());
            self.cut += 1;
        }
        self.bytes.push(frame);
    }
}
