//! How a run of `bench` ends: by signals, limits, and what it cannot have. Needs root; without it each test says so and ends.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::live::{bench_json, is_skipped};
use common::{Said, rxsteer};
use serde_json::Value;

/// Returns what `rxsteer status` says in namespaces that are kept open, all together.
fn status_in(namespaces: &[std::fs::File]) -> String {
    use std::os::fd::AsRawFd as _;
    let mut said = String::new();
    for namespace in namespaces {
        let place = format!("--net=/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
        let run = Command::new("nsenter")
            .args([&place, env!("CARGO_BIN_EXE_rxsteer"), "status", "--json"])
            .output()
            .unwrap();
        assert!(run.status.success(), "{run:?}");
        said += &String::from_utf8(run.stdout).unwrap();
    }
    said
}

#[test]
fn what_compare_attached_goes_with_an_interrupt_and_with_a_kill() {
    if is_skipped("what_compare_attached_goes_with_an_interrupt_and_with_a_kill") {
        return;
    }
    for signal in ["-INT", "-KILL"] {
        let mut child = common::command()
            .args(["bench", "compare", "rr", "--setups", "rxsteer", "-d", "60"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        let open = |name: &String| std::fs::File::open(format!("/run/netns/{name}")).ok();
        // Kept open, both stay to be looked into, whoever removes their names.
        let kept: Vec<_> = loop {
            let kept: Vec<_> = namespaces_of(pid).iter().filter_map(open).collect();
            if kept.len() == 2 && status_in(&kept).contains("\"rx0\"") {
                break kept;
            }
            // However long that takes: it is attached for most of its five runs, and ends after them.
            assert_eq!(child.try_wait().unwrap(), None, "{signal}: ended, and was never attached");
            std::thread::sleep(Duration::from_millis(100));
        };
        let killed = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
        assert!(killed.success());
        child.wait().unwrap();
        // The kernel closes what a process held as part of its end, some of it a moment later.
        wait_for("the end of steering", || (!status_in(&kept).contains("\"rx0\"")).then_some(()));
        assert_eq!(rxsteer("bench restore").code, 0);
    }
}

/// The namespaces of a process, as their names say it.
fn namespaces_of(pid: u32) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("rxs-{pid}-"))).collect()
}

#[test]
fn an_interrupt_ends_a_run_with_its_result_and_a_kill_is_cleaned_up_by_the_next() {
    let test = "an_interrupt_ends_a_run_with_its_result_and_a_kill_is_cleaned_up_by_the_next";
    if is_skipped(test) {
        return;
    }
    for signal in ["-INT", "-KILL"] {
        let child = common::command()
            .args(["bench", "gen", "-d", "60", "--rate", "100"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        let deadline = Instant::now() + Duration::from_secs(20);
        while namespaces_of(pid).len() < 2 {
            assert!(Instant::now() < deadline, "no namespaces of {pid}");
            std::thread::sleep(Duration::from_millis(10));
        }
        // Both are there before the first packet goes.
        std::thread::sleep(Duration::from_millis(200));
        let killed = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
        assert!(killed.success());
        let output = child.wait_with_output().unwrap();
        if signal == "-INT" {
            assert_eq!(output.status.code(), Some(0));
            assert!(String::from_utf8(output.stdout).unwrap().contains("\nsent      "));
        } else {
            // Any run that starts meanwhile may have done it already.
            let said = rxsteer("bench restore");
            assert_eq!(said.code, 0, "{said:?}");
        }
        assert_eq!(namespaces_of(pid), Vec::<String>::new(), "{signal}");
    }
}

/// Starts a run and returns it; it says nothing but its result and its errors.
fn started(line: &str) -> Child {
    common::command()
        .args(line.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Asks `is_so` until it says something.
fn wait_for<T>(what: &str, mut is_so: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(answer) = is_so() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal, and returns what the run said then.
fn ended(child: Child, signal: &str) -> Said {
    let killed = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    Said {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The journal of changed settings of a process.
fn journal_of(pid: u32) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir("/run/rxsteer").ok()?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| path.to_string_lossy().contains(&format!("/rxs-{pid}-")))
}

/// The setting is of the whole host; which change was made, and what it was before, is read in the
/// journal.
#[test]
fn a_polite_kill_of_a_comparison_puts_the_setting_of_the_host_back() {
    if is_skipped("a_polite_kill_of_a_comparison_puts_the_setting_of_the_host_back") {
        return;
    }
    const ENTRIES: &str = "/proc/sys/net/core/rps_sock_flow_entries";
    let entries = || std::fs::read_to_string(ENTRIES).unwrap().trim().to_owned();
    if entries() == "32768" {
        eprintln!("skipped a_polite_kill_...: {ENTRIES} is already what the set-up would set");
        return;
    }
    let child = started("bench compare rr --setups rfs -d 60 -q");
    let pid = child.id();
    let old = wait_for("the change in the journal", || {
        let text = std::fs::read_to_string(journal_of(pid)?).ok()?;
        let changes = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let change = changes.into_iter().find(|change| change["path"] == ENTRIES)?;
        Some(change["old"].as_str()?.to_owned())
    });
    wait_for("the change itself", || (entries() == "32768").then_some(()));
    let said = ended(child, "-TERM");
    assert_eq!(entries(), old);
    assert_eq!(journal_of(pid), None);
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
    // The first repeat was not whole: an error, also where notes are not wanted, and no empty table.
    assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
    assert!(said.err.contains("there is nothing to compare"), "{said:?}");
}

/// What was measured until then is worth printing, and is not what was asked for.
#[test]
fn a_comparison_that_was_ended_early_prints_its_repeats_and_says_so() {
    if is_skipped("a_comparison_that_was_ended_early_prints_its_repeats_and_says_so") {
        return;
    }
    let mut child = started("bench compare rr --setups none --repeats 1000 -d 0.2");
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("repeat 2 of 1000") {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "it ended by itself");
    }
    let Said { code, out, .. } = ended(child, "-INT");
    let mut err = String::new();
    said.read_to_string(&mut err).unwrap();
    assert_eq!(code, 1, "{err}");
    assert!(out.contains("transactions"), "{out}");
    let repeats = err.split(" of 1000 repeats").next().unwrap().rsplit("stopped after ").next();
    assert!((1..1000).contains(&repeats.unwrap().parse::<u32>().unwrap()), "{err}");
}

#[test]
fn an_interrupt_of_calibrate_leaves_neither_namespaces_nor_a_file() {
    if is_skipped("an_interrupt_of_calibrate_leaves_neither_namespaces_nor_a_file") {
        return;
    }
    let dir = common::scratch("calibrate-interrupted");
    let (new, old) = (dir.join("new.toml"), dir.join("old.toml"));
    std::fs::write(&old, "# mine\n").unwrap();
    for file in [&new, &old] {
        let child = started(&format!("bench calibrate -q -o {}", file.display()));
        let pid = child.id();
        wait_for("namespaces", || (namespaces_of(pid).len() == 2).then_some(()));
        let said = ended(child, "-INT");
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
        assert!(said.err.contains("stopped before all steps were measured"), "{said:?}");
        assert_eq!(namespaces_of(pid), Vec::<String>::new());
    }
    assert!(!new.exists());
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "# mine\n");
    // A place that cannot be written is told before anything is made.
    let said = rxsteer(&format!("bench calibrate -o {}/none/x.toml", dir.display()));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("cannot write "), "{said:?}");
}

/// `nohup` ignores SIGHUP, and a shell without job control SIGINT of what it starts with `&`.
#[test]
fn signals_that_a_run_was_started_to_ignore_do_not_end_it() {
    for signal in ["HUP", "INT"] {
        let line = "bench sink --listen 127.0.0.1:0 -d 1 -q --json";
        let mut child = Command::new("sh")
            .args(["-c", &format!("trap '' {signal}; exec \"$0\" {line}")])
            .arg(env!("CARGO_BIN_EXE_rxsteer"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The first before the shell ignores it would end the shell.
        let is_ready = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            status.starts_with("Name:\trxsteer\n").then_some(())
        };
        wait_for("the program", is_ready);
        while child.try_wait().unwrap().is_none() {
            let pid = child.id().to_string();
            Command::new("kill").args(["-s", signal, &pid]).stderr(Stdio::null()).status().unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        let output = child.wait_with_output().unwrap();
        let said = Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        };
        // The time ended it, no signal did.
        let elapsed = bench_json(&said)["result"]["sink"]["elapsed_ns"].as_u64().unwrap();
        assert!(elapsed >= 1_000_000_000, "{signal}: {said:?}");
    }
}

/// Runs a line of a shell in which `$0` is the program, and kills it after 20 seconds.
fn in_shell(script: &str) -> Said {
    let child = Command::new("timeout")
        .args(["-s", "KILL", "20", "sh", "-c", script, env!("CARGO_BIN_EXE_rxsteer")])
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The first threads start and wait; the user may have no more.
#[test]
fn threads_that_cannot_be_started_are_an_error_that_ends_the_others() {
    let test = "threads_that_cannot_be_started_are_an_error_that_ends_the_others";
    let owned = "--i-own-this-network 127.0.0.1";
    let sink = "bench sink --listen 127.0.0.1:0 --threads 64 --reuseport -d 1 --call";
    let serve = format!("bench rr --serve 127.0.0.1:0 {owned} --server-threads 64 -d 1");
    if is_skipped(test) {
        return;
    }
    let copy = std::env::temp_dir().join(format!("rxs-threads-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_rxsteer"), &copy).unwrap();
    let ask = format!("bench rr --to 127.0.0.1:9 {owned} --client-threads 64 --flows 64 -d 1");
    // A user of its own, since all processes of a user count (setrlimit(2), RLIMIT_NPROC).
    let nobody = "exec prlimit --nproc=40 setpriv --reuid 64123 --regid 64123 --clear-groups";
    for line in [&format!("{sink} recv"), &format!("{sink} io-uring --batch 8"), &serve, &ask] {
        let said = in_shell(&format!("{nobody} {} {line}", copy.display()));
        if said.code == 127 {
            eprintln!("skipped a part of {test}: no prlimit or setpriv: {said:?}");
            break;
        }
        assert_eq!(said.code, 1, "{line}: {said:?}");
        assert!(said.err.contains("error: cannot start 6"), "{line}: {said:?}");
        assert!(
            said.err.contains(" threads: Resource temporarily unavailable"),
            "{line}: {said:?}"
        );
    }
    std::fs::remove_file(&copy).unwrap();
}

/// Datagrams of others have no end, so waiting for one is none either.
#[test]
fn a_reader_ends_while_others_go_on_sending() {
    for call in ["recv", "recvmmsg", "io-uring"] {
        let to = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let line = format!("bench sink --listen {to} --call {call} -d 0.3 --json");
        let over = std::sync::atomic::AtomicBool::new(false);
        let said = std::thread::scope(|scope| {
            scope.spawn(|| {
                let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    // Before there is a reader, the kernel says so.
                    let _ = socket.send_to(b"x", to);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let said = in_shell(&format!("exec \"$0\" {line}"));
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            said
        });
        if said.err.contains("io_uring cannot be used here") {
            eprintln!("skipped io-uring of a_reader_ends_while_others_go_on_sending: {said:?}");
            continue;
        }
        assert!(bench_json(&said)["result"]["sink"]["received"].as_u64().unwrap() > 0, "{said:?}");
    }
}

/// A lease of an owner that is gone, in a directory where nobody else looks, seen by somebody without
/// rights.
#[test]
fn a_namespace_that_cannot_be_removed_is_told_of() {
    let test = "a_namespace_that_cannot_be_removed_is_told_of";
    if is_skipped(test) {
        return;
    }
    use std::os::unix::fs::MetadataExt as _;
    let copy = std::env::temp_dir().join(format!("rxs-left-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_rxsteer"), &copy).unwrap();
    let own = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
    // Beyond the largest process id of Linux (proc_sys_kernel(5), `pid_max`).
    let name = format!("rxs-4194305-1-{own}-0");
    for (form, expected) in [
        ("", format!("left      namespace {name}: Operation not permitted (os error 1)\n")),
        (
            "--json",
            format!("{{\"error\":\"Operation not permitted (os error 1)\",\"name\":\"{name}\"}}"),
        ),
    ] {
        let said = in_shell(&format!(
            "exec unshare --mount sh -c 'mount -t tmpfs none /run && mkdir /run/netns && : > \
             /run/netns/{name} && exec setpriv --reuid 65534 --regid 65534 --clear-groups {} bench \
             restore {form}'",
            copy.display()
        ));
        if said.code == 127 {
            eprintln!("skipped {test}: no unshare or setpriv: {said:?}");
            break;
        }
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.out.contains(&expected) && !said.out.contains("removed "), "{said:?}");
    }
    std::fs::remove_file(&copy).unwrap();
}

#[test]
fn too_few_open_files_are_named_as_such() {
    let said = in_shell("ulimit -n 32; exec \"$0\" bench sink --listen 127.0.0.1:0 -d 0.1");
    assert_eq!(said.code, 1, "{said:?}");
    let expected = "1 socket: this process may open 32 files; 65 are enough (ulimit -n 65)";
    assert!(said.err.contains(expected), "{said:?}");
    let said = in_shell("ulimit -n 65; exec \"$0\" bench sink --listen 127.0.0.1:0 -d 0.1");
    assert_eq!(said.code, 0, "{said:?}");
    if is_skipped("too_few_open_files_are_named_as_such") {
        return;
    }
    // At the least of these there is no room for the libraries, further up none for the testbed.
    let mut told = 0;
    for files in 4..=16 {
        let said = in_shell(&format!("ulimit -n {files}; exec \"$0\" bench gen -c 1 -q"));
        assert!(!said.err.contains("does not tell"), "{files}: {said:?}");
        assert!(!said.err.contains("panicked"), "{files}: {said:?}");
        told += usize::from(said.err.contains("Too many open files (os error 24) (ulimit -n)"));
    }
    assert!(told > 0);
}
