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

/// Returns the command, to be started so that it hears signals also where the test ignores them (`nohup`,
/// `&` in a script).
pub(crate) fn command() -> Command {
    #[cfg(target_os = "linux")]
    {
        use signal_hook::consts::{SIGHUP, SIGINT};
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
            let ignored = u64::from_str_radix(mask.trim(), 16).unwrap();
            for signal in [SIGHUP, SIGINT].into_iter().filter(|s| ignored & 1 << (s - 1) != 0) {
                // A handler that does nothing: unlike SIG_IGN, execve(2) does not hand it on.
                signal_hook::flag::register(signal, std::sync::Arc::default()).unwrap();
            }
        });
    }
    Command::new(env!("CARGO_BIN_EXE_rxsteer"))
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
    let mut child = command()
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
