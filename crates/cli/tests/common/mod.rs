//! Running the command and looking at what it says.
#![allow(dead_code, reason = "each test uses a part")]

#[cfg(target_os = "linux")]
pub(crate) mod live;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the command with these arguments in a directory.
pub(crate) fn rxsteer_in(dir: &Path, arguments: &[&str], input: &[u8]) -> Said {
    rxsteer_with(dir, arguments, input, &[])
}

/// The same, with these variables in the environment.
pub(crate) fn rxsteer_with(
    dir: &Path,
    arguments: &[&str],
    input: &[u8],
    environment: &[(&str, &str)],
) -> Said {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(arguments)
        .current_dir(dir)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || {
        // The command need not read all of it.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    Said {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs the command with the words of a line, without input.
pub(crate) fn rxsteer(line: &str) -> Said {
    let words: Vec<_> = line.split_whitespace().collect();
    rxsteer_in(&sample_dir(), &words, &[])
}

/// The directory of the sample.
pub(crate) fn sample_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sample")
}

/// The sample as plain pcapng.
pub(crate) fn sample() -> Vec<u8> {
    let packed = std::fs::read(sample_dir().join("sample.pcapng.zst")).unwrap();
    zstd::decode_all(packed.as_slice()).unwrap()
}

/// A directory for one test, empty at its start.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}
