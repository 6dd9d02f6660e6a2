//! Finding what builds for the BPF target, and running it.
//!
//! The target has no precompiled core library, so the compiler must bring core's sources and be
//! allowed `-Z build-std`: a nightly with `rust-src`, or a distribution's stable compiler with its
//! source package and `RUSTC_BOOTSTRAP=1`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The target: little-endian BPF.
pub(super) const TARGET: &str = "bpfel-unknown-none";
/// The instruction set: v3 has 32-bit arithmetic and jumps, in every kernel since 5.1.
const TARGET_CPU: &str = "v3";
/// Name of the binary in `crates/ebpf`.
const BINARY: &str = "rxsteer-bpf";

/// A compiler, its cargo and the linker.
#[derive(Debug)]
pub(super) struct Toolchain {
    rustc: PathBuf,
    cargo: PathBuf,
    sysroot: PathBuf,
    linker: PathBuf,
    /// What the compiler says it is.
    pub(super) rustc_version: String,
    /// What the linker says it is.
    pub(super) linker_version: String,
}

impl Toolchain {
    /// Looks for a compiler with core's sources, in the order: distribution, nightly of rustup,
    /// `rustc` in the path; and for bpf-linker in the path.
    ///
    /// # Errors
    /// Says what is missing, how it is called and how to get it.
    pub(super) fn find() -> Result<Self> {
        let mut missing = Vec::new();
        let compiler = compilers().into_iter().find_map(|(rustc, cargo)| {
            match has_sources(&rustc).and_then(|sysroot| {
                version(&cargo)?;
                Ok(sysroot)
            }) {
                Ok(sysroot) => Some((rustc, cargo, sysroot)),
                Err(error) => {
                    missing.push(format!("{}: {error:#}", rustc.display()));
                    None
                }
            }
        });
        let linker = in_path("bpf-linker");
        let (Some((rustc, cargo, sysroot)), Some(linker)) = (compiler, &linker) else {
            if linker.is_none() {
                missing.push("bpf-linker: not in PATH".to_owned());
            }
            bail!(
                "cannot build for {TARGET}:\n  {}\n\
                 needed: a nightly with rust-src, or on Debian rustc-web, cargo-web and \
                 rust-web-src; and bpf-linker 0.13, linked with an LLVM no older than the \
                 compiler's (cargo install bpf-linker; .ci/run shows it step by step).\n\
                 The committed object serves everybody who does not change the programs.",
                missing.join("\n  ")
            );
        };
        Ok(Self {
            rustc_version: version(&rustc)?,
            linker_version: version(linker)?,
            linker: linker.clone(),
            rustc,
            cargo,
            sysroot,
        })
    }

    /// Builds `rxsteer-core` alone.
    pub(super) fn build_core(&self, root: &Path) -> Result<()> {
        let manifest = root.join("crates/core/Cargo.toml");
        self.cargo(root, &manifest).run("building rxsteer-core for the BPF target")
    }

    /// Builds the programs and returns the object.
    pub(super) fn build_object(&self, root: &Path) -> Result<Vec<u8>> {
        let manifest = root.join("crates/ebpf/Cargo.toml");
        let mut cargo = self.cargo(root, &manifest);
        cargo.0.args(["--bin", BINARY]);
        cargo.run("building crates/ebpf")?;
        let path = target_dir(root).join(TARGET).join("release").join(BINARY);
        fs::read(&path).with_context(|| format!("reading {}", path.display()))
    }

    fn cargo(&self, root: &Path, manifest: &Path) -> Step {
        let mut cargo = Command::new(&self.cargo);
        // The outer cargo and rustup name their own compiler in these.
        for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS"] {
            cargo.env_remove(name);
        }
        // The profile of the manifest alone decides on the object, whatever the outer build is told.
        for (name, _) in env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"CARGO_PROFILE_") {
                cargo.env_remove(name);
            }
        }
        cargo
            .args(["build", "--quiet", "--release", "--locked", "-Z", "build-std=core"])
            .args(["--target", TARGET, "--manifest-path"])
            .arg(manifest)
            .current_dir(root)
            .env("RUSTC", &self.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTC_WRAPPER", env::current_exe().unwrap_or_default())
            .env(super::wrapper::MARK, "1")
            .env("CARGO_TARGET_DIR", target_dir(root))
            .env("CARGO_ENCODED_RUSTFLAGS", self.rustflags(root));
        Step(cargo)
    }

    /// Returns the flags, each after the other with the separator that cargo wants.
    fn rustflags(&self, root: &Path) -> OsString {
        let mut flags = vec![
            format!("-Ctarget-cpu={TARGET_CPU}"),
            format!("-Clinker={}", self.linker.display()),
            // Headers stand at odd places. Wide loads there are what the kernel's own C does on
            // all machines that take them; without this each one becomes bytes and shifts.
            "-Clink-arg=--cpu-features=+allows-misaligned-mem-access".to_owned(),
            // Lets LLVM write stores in place of a call for each short fill or copy.
            "-Clink-arg=--disable-expand-memcpy-in-order".to_owned(),
            format!("--remap-path-prefix={}=rxsteer", root.display()),
            format!("--remap-path-prefix={}=sysroot", self.sysroot.display()),
        ];
        if let Some(home) = env::home_dir() {
            flags.push(format!("--remap-path-prefix={}=home", home.display()));
        }
        flags.join("\u{1f}").into()
    }
}

/// A command that either succeeds or ends the chore.
struct Step(Command);

impl Step {
    fn run(mut self, what: &str) -> Result<()> {
        let status = self.0.status().with_context(|| format!("{what}: starting cargo"))?;
        if !status.success() {
            bail!("{what} failed: {status}");
        }
        Ok(())
    }
}

/// Returns the directory for build products, apart from the host's.
fn target_dir(root: &Path) -> PathBuf {
    let base = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    base.join("ebpf")
}

/// Returns the pairs of compiler and cargo that may be there.
fn compilers() -> Vec<(PathBuf, PathBuf)> {
    let mut found = vec![(PathBuf::from("/usr/bin/rustc"), PathBuf::from("/usr/bin/cargo"))];
    let nightly = |tool: &str| {
        let output =
            Command::new("rustup").args(["which", "--toolchain", "nightly", tool]).output().ok()?;
        let path = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| PathBuf::from(path.trim()))
    };
    found.extend(nightly("rustc").zip(nightly("cargo")));
    found.extend(in_path("rustc").zip(in_path("cargo")));
    found
}

/// Returns the sysroot of a compiler that brings core's sources.
fn has_sources(rustc: &Path) -> Result<PathBuf> {
    let sysroot = PathBuf::from(output(Command::new(rustc).args(["--print", "sysroot"]))?);
    let sources = sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs");
    if !sources.is_file() {
        bail!("{} without core's sources (rust-src)", version(rustc)?);
    }
    Ok(sysroot)
}

fn version(tool: &Path) -> Result<String> {
    output(Command::new(tool).arg("--version"))
}

/// Returns the first line of what the command prints.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().context("not there")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8(output.stdout).context("it prints no UTF-8")?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

fn in_path(tool: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(tool)).find(|candidate| candidate.is_file())
}
