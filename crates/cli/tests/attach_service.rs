//! The process that steers as a service: its control socket, signals, service manager, and
//! what it may do. Needs root; without it a test says so and ends.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::live::{Steering, has_tool, inside, pair, scraped, status, until};
use common::{rxsteer, scratch};
use rxsteer_testbed::{Pair, PairSpec};

/// Returns the control sockets of the receiver's namespace.
fn sockets(pair: &Pair) -> Vec<PathBuf> {
    let number = || std::fs::metadata("/proc/thread-self/ns/net").unwrap().st_ino();
    let ours = format!("{}-", pair.sink.run(number).unwrap());
    let all = std::fs::read_dir("/run/rxsteer").into_iter().flatten().flatten();
    let all = all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours));
    all.map(|entry| entry.path()).collect()
}

#[test]
fn detach_ends_the_process_and_says_when_there_is_nothing_to_do() {
    let test = "detach_ends_the_process_and_says_when_there_is_nothing_to_do";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let nothing = "nothing is attached to rx0 in this network namespace: nothing to do\n";
    let said = inside(&pair, "detach rx0");
    assert_eq!((said.code, said.out.as_str()), (0, nothing));
    let mut steering = Steering::new(&pair.sink, "attach rx0", |_| {});
    until(|| sockets(&pair), |sockets| sockets.len() == 1);
    let said = inside(&pair, "detach rx0");
    assert_eq!((said.code, said.out.as_str()), (0, "rx0 detached; 0 packets seen\n"), "{said:?}");
    // When it returns, nothing is attached any more.
    assert_eq!(inside(&pair, "detach rx0").out, nothing);
    let end = steering.end();
    assert_eq!((end.code, end.out.as_str()), (0, "detached; 0 packets seen\n"), "{end:?}");
    assert!(sockets(&pair).is_empty());

    let mut steering = Steering::new(&pair.sink, "attach rx0", |_| {});
    assert!(inside(&pair, "detach --all").out.starts_with("rx0 detached"));
    assert_eq!(steering.end().code, 0);
    let said = inside(&pair, "detach --all");
    assert_eq!(said.out, "nothing is attached in this network namespace: nothing to do\n");
}

#[test]
fn a_killed_process_leaves_nothing_to_detach_and_its_socket_is_taken_away() {
    let test = "a_killed_process_leaves_nothing_to_detach_and_its_socket_is_taken_away";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let mut steering = Steering::new(&pair.sink, "attach rx0", |_| {});
    let left = until(|| sockets(&pair), |sockets| sockets.len() == 1);
    steering.signal("KILL");
    assert_eq!(steering.end().code, -1);
    // The kernel closes what a process held as part of its end, some of it a moment later.
    let said = until(|| inside(&pair, "detach rx0"), |said| said.out.contains("nothing to do"));
    assert_eq!(said.code, 0, "{said:?}");
    // Another interface's process takes it away, if none of another test has by now.
    let _steering = Steering::new(&pair.sink, "attach lo --mode skb", |_| {});
    let now = until(|| sockets(&pair), |sockets| *sockets != left);
    assert!(!now.contains(&left[0]), "{now:?}");
}

#[test]
fn a_process_that_hangs_is_looked_at_without_it_and_named() {
    let test = "a_process_that_hangs_is_looked_at_without_it_and_named";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let mut steering = Steering::new(&pair.sink, "attach rx0", |_| {});
    steering.signal("STOP");
    let one = status(&pair);
    assert_eq!((&one["process"], &one["packets"]), (&serde_json::Value::Null, &0.into()));
    let pid = steering.child.id();
    assert_eq!(one["held_by"], serde_json::json!([pid]));
    let text = inside(&pair, "status").out;
    assert!(text.contains(&format!("does not answer; held by process {pid} (rxsteer)")), "{text}");
    let said = inside(&pair, "detach rx0");
    assert_eq!(said.code, 1);
    assert!(said.err.contains(&format!("`kill -9 {pid}` detaches it at once")), "{said:?}");
    steering.signal("CONT");
    assert_eq!(steering.end().code, 0, "it was sent SIGTERM");
}

#[test]
fn an_interface_that_goes_away_ends_its_process_with_an_error() {
    let test = "an_interface_that_goes_away_ends_its_process_with_an_error";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let mut steering = Steering::new(&pair.sink, "attach rx0", |_| {});
    pair.sink.remove_device(Pair::SINK_DEVICE).unwrap();
    let said = steering.end();
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("the interface rx0 is gone from this network namespace"), "{said:?}");
    assert!(said.out.starts_with("detached; "), "{said:?}");
    assert!(sockets(&pair).is_empty());
}

#[test]
fn every_polite_signal_detaches() {
    let test = "every_polite_signal_detaches";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    // Without a file there is nothing to read again: a closed terminal ends it.
    for signal in ["INT", "TERM", "HUP"] {
        let mut steering = Steering::new(&pair.sink, "attach rx0", |_| {});
        steering.signal(signal);
        let said = steering.end();
        assert_eq!(said.code, 0, "{signal}: {said:?}");
        assert!(said.out.starts_with("detached; "), "{signal}: {said:?}");
        let left = inside(&pair, "status --json").out;
        assert_eq!(left, "{\"attached\":[],\"schema_version\":1}\n", "{signal}");
    }
}

#[test]
fn many_who_say_nothing_do_not_hide_a_process() {
    let test = "many_who_say_nothing_do_not_hide_a_process";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let mut steering = Steering::new(&pair.sink, "attach rx0", |_| {});
    let path = until(|| sockets(&pair), |sockets| sockets.len() == 1).remove(0);
    let idle: Vec<UnixStream> = (0..700).map(|_| UnixStream::connect(&path).unwrap()).collect();
    assert_eq!(status(&pair)["process"]["pid"], steering.child.id());
    let fds = || std::fs::read_dir(format!("/proc/{}/fd", steering.child.id())).unwrap().count();
    // They are sent away, although they stay.
    let before = fds();
    until(fds, |now| *now < before.min(idle.len()) && *now < 128);
    drop(idle);
    let said = inside(&pair, "detach rx0");
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(steering.end().code, 0);
}

/// A service manager's socket, and what was told there.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    /// Returns the fields of the next message, except those of the line for people.
    fn next(&self) -> BTreeMap<String, String> {
        let mut bytes = [0; 4096];
        let len = self.socket.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..len]).unwrap();
        let fields = text.lines().map(|line| line.split_once('=').unwrap());
        fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Returns the next message with this field.
    fn told(&self, field: &str) -> BTreeMap<String, String> {
        // Signs of life come between, as often as they like.
        loop {
            let message = self.next();
            if message.contains_key(field) {
                return message;
            }
            let is_life = message.contains_key("WATCHDOG") || message.keys().eq(["STATUS"]);
            assert!(is_life, "{message:?} instead of {field}");
        }
    }
}

#[test]
fn the_service_manager_is_told_what_it_waits_for() {
    // sd_notify(3)
    let test = "the_service_manager_is_told_what_it_waits_for";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let dir = scratch("notify");
    let (path, file) = (dir.join("socket"), dir.join("rx0.toml"));
    std::fs::write(&file, "").unwrap();
    let manager = Manager { socket: UnixDatagram::bind(&path).unwrap() };
    manager.socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let line = format!("attach rx0 --config {}", file.display());
    let mut steering = Steering::new(&pair.sink, &line, |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "3000000");
    });
    let ready = manager.told("READY");
    assert_eq!(ready["READY"], "1");
    assert!(ready["STATUS"].starts_with("rx0 in native mode, flow-aware, CPUs "), "{ready:?}");
    for _ in 0..2 {
        assert_eq!(manager.told("WATCHDOG")["WATCHDOG"], "1");
    }
    let before = monotonic_us();
    steering.signal("HUP");
    let reloading = manager.told("RELOADING");
    let since: u64 = reloading["MONOTONIC_USEC"].parse().unwrap();
    let now = monotonic_us() + 10_000;
    assert!((before..=now).contains(&since), "{reloading:?} from {before} to {now}");
    assert_eq!(manager.told("READY")["READY"], "1");
    steering.signal("TERM");
    assert_eq!(manager.told("STOPPING")["STOPPING"], "1");
    assert_eq!(steering.end().code, 0);
}

/// Returns the clock of the service manager as the kernel tells it, rounded down to 10 ms.
fn monotonic_us() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap();
    let seconds = text.split(' ').next().unwrap().replace('.', "");
    seconds.parse::<u64>().unwrap() * 10_000
}

/// `nohup` ignores SIGHUP, a shell without job control SIGINT of what it starts with `&`: SIGHUP is heard
/// then only where it reads the settings again.
#[test]
fn signals_that_it_was_started_to_ignore_stay_ignored() {
    let test = "signals_that_it_was_started_to_ignore_stay_ignored";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let file = scratch("ignored-signals").join("rx0.toml");
    std::fs::write(&file, "qsize = 512\n").unwrap();
    // Bits of SIGHUP, 1, and of SIGINT, 2 (signal(7), proc_pid_status(5)).
    let with_file = format!("attach rx0 --config {}", file.display());
    for (line, expected) in [("attach rx0", 0b11), (&with_file, 0b10)] {
        let start = || {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("trap '' HUP INT; exec \"$0\" {line}")]);
            command.arg(env!("CARGO_BIN_EXE_rxsteer"));
            Steering::start(command, &|_| {})
        };
        let mut steering = pair.sink.run(start).unwrap();
        let told = format!("/proc/{}/status", steering.child.id());
        let told = std::fs::read_to_string(told).unwrap();
        let mask = told.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let ignored = u64::from_str_radix(mask.trim(), 16).unwrap();
        assert_eq!(ignored & 0b11, expected, "{line}: {told}");
        steering.signal("HUP");
        if expected & 0b01 == 0 {
            until(|| status(&pair), |one| one["process"]["reloads"] == 1);
        }
        steering.signal("INT");
        assert_eq!(status(&pair)["process"]["pid"], steering.child.id(), "{line}");
        steering.signal("TERM");
        assert_eq!(steering.end().code, 0);
    }
}

#[test]
fn three_capabilities_are_enough_and_two_are_not() {
    let test = "three_capabilities_are_enough_and_two_are_not";
    if !has_tool(test, "setpriv") {
        return;
    }
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    // As the service's unit says it: nothing but these, and no way to more.
    let with = |capabilities: &[&str]| {
        let plus: Vec<String> = capabilities.iter().map(|name| format!("+{name}")).collect();
        let list = format!("-all,{}", plus.join(","));
        let mut command = Command::new("setpriv");
        command.args(["--no-new-privs", "--inh-caps", &list, "--bounding-set", &list]);
        command.args(["--securebits", "+noroot", "--ambient-caps", &list]);
        command.arg(env!("CARGO_BIN_EXE_rxsteer"));
        command
    };
    let start = || {
        let mut command = with(&["net_admin", "bpf", "perfmon"]);
        command.args(["attach", "rx0", "--mode", "native"]);
        Steering::start(command, &|_| {})
    };
    let mut steering = pair.sink.run(start).unwrap();
    let pid = steering.child.id();
    let proc_status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    // capabilities(7): 12, 38, 39.
    assert!(proc_status.contains("\nCapEff:\t000000c000001000\n"), "{proc_status}");
    let one = status(&pair);
    assert_eq!((&one["mode"], &one["process"]["pid"]), (&"native".into(), &pid.into()));

    // The kernel lists programs to nobody else (bpf(2)); that is not "nothing is attached".
    let looked = |line: &'static str| {
        let look = || {
            let mut command = with(&["net_admin", "bpf", "perfmon"]);
            command.args(line.split_whitespace()).output().unwrap()
        };
        let output = pair.sink.run(look).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let id = one["program_id"].as_u64().unwrap();
    let why = "cannot see what is attached to rx0 and what it counted: the kernel tells that with \
               CAP_SYS_ADMIN only, which this process lacks";
    let (code, out, err) = looked("status");
    assert_eq!(code, Some(1), "{out}");
    let first =
        format!("rx0  native mode, program {id}; its counters cannot be seen\n  process  {pid}, ");
    assert!(out.starts_with(&first) && err.contains(why), "{out}{err}");
    let (code, out, err) = looked("status rx0 --json");
    assert_eq!(code, Some(1), "{out}");
    assert!(err.contains(why), "{err}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let hidden = &json["hidden"][0];
    assert_eq!(
        (&json["attached"], &hidden["program_id"], &hidden["process"]["pid"]),
        (&serde_json::json!([]), &id.into(), &pid.into())
    );
    // Where there is no program nothing is hidden.
    let (code, out, _) = looked("status lo");
    let nothing = "nothing is attached to lo in this network namespace\n";
    assert_eq!((code, out.as_str()), (Some(0), nothing));
    steering.signal("STOP");
    let (code, out, err) = looked("status");
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("whose it is cannot be seen") && err.contains(why), "{out}{err}");
    steering.signal("CONT");
    steering.signal("TERM");
    assert_eq!(steering.end().code, 0);
    for (have, lacks) in [
        (["bpf", "perfmon"], "CAP_NET_ADMIN"),
        (["net_admin", "perfmon"], "CAP_BPF"),
        (["net_admin", "bpf"], "CAP_PERFMON"),
    ] {
        let run = || with(&have).args(["attach", "rx0"]).output().unwrap();
        let output = pair.sink.run(run).unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains(&format!("this process lacks {lacks}: ")), "{err}");
    }
}

#[test]
fn the_unit_of_the_service_says_what_the_command_does() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let unit = std::fs::read_to_string(root.join("contrib/rxsteer@.service")).unwrap();
    let value = |key: &str| -> String {
        let lines = unit.lines().filter_map(|line| line.split_once('='));
        let found: Vec<&str> =
            lines.filter(|(this, _)| *this == key).map(|(_, value)| value).collect();
        assert_eq!(found.len(), 1, "{key}: {found:?}");
        found[0].to_owned()
    };
    // The three of the test above.
    for key in ["CapabilityBoundingSet", "AmbientCapabilities"] {
        assert_eq!(value(key), "CAP_NET_ADMIN CAP_BPF CAP_PERFMON");
    }
    for key in ["ExecStart", "ExecReload"] {
        let line = value(key).replace("/usr/local/bin/rxsteer ", "").replace("%i", "eth0");
        let words: Vec<&str> = line.split(' ').collect();
        // Every word is one that the command knows, by its own help.
        let help = rxsteer(&format!("{} --help", words[0]));
        assert_eq!(help.code, 0, "{key}: {help:?}");
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.out.contains(flag), "{key}: {flag}");
        }
    }
    let test = "the_unit_of_the_service_says_what_the_command_does";
    if !has_tool(test, "systemd-analyze") {
        return;
    }
    // The program of ExecStart must be there; the one under test is.
    let dir = scratch("unit");
    let here = unit.replace("/usr/local/bin/rxsteer", env!("CARGO_BIN_EXE_rxsteer"));
    let file = dir.join("rxsteer@eth0.service");
    std::fs::write(&file, here).unwrap();
    let output = Command::new("systemd-analyze").arg("verify").arg(&file).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    let about_us: Vec<&str> = err.lines().filter(|line| line.contains("rxsteer@")).collect();
    assert_eq!(about_us, Vec::<&str>::new(), "{err}");
}

#[test]
fn another_process_takes_over_while_packets_flow_and_none_is_lost() {
    let test = "another_process_takes_over_while_packets_flow_and_none_is_lost";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let line = "attach rx0 --metrics 127.0.0.1:9477 --replace";
    let mut first = Steering::new(&pair.sink, line, |_| {});
    let receiver = pair.sink.run(|| UdpSocket::bind((Pair::SINK_V4, 0)).unwrap()).unwrap();
    let sender = pair.source.run(|| UdpSocket::bind((Pair::SOURCE_V4, 0)).unwrap()).unwrap();
    receiver.connect(sender.local_addr().unwrap()).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let is_over = AtomicBool::new(false);
    let (sent, mut second) = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut sent = 0u64;
            while !is_over.load(Ordering::Relaxed) {
                sender.send(&sent.to_be_bytes()).unwrap();
                let mut bytes = [0; 8];
                // One that is lost is waited for in vain.
                assert_eq!(receiver.recv(&mut bytes).unwrap(), 8);
                assert_eq!(u64::from_be_bytes(bytes), sent);
                sent += 1;
            }
            sent
        });
        until(|| status(&pair), |one| one["packets"].as_u64() > Some(100));
        let second = Steering::new(&pair.sink, line, |_| {});
        assert!(second.first.contains(", taken over with "), "{}", second.first);
        let now = status(&pair)["packets"].as_u64();
        until(|| status(&pair), |one| one["packets"].as_u64() > now.map(|now| now + 100));
        is_over.store(true, Ordering::Relaxed);
        (load.join().unwrap(), second)
    });
    let said = first.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("handed over; "), "{said:?}");
    let one = status(&pair);
    // Counters go on, and each packet has one reason.
    assert_eq!(one["packets"], sent);
    assert_eq!(one["flows"]["udp"], 1);
    assert_eq!(one["process"]["pid"], second.child.id());
    assert_eq!(one["process"]["metrics"], "127.0.0.1:9477");
    assert!(scraped(&pair, "127.0.0.1:9477").0.starts_with("HTTP/1.1 200 "));
    assert!(inside(&pair, "detach rx0").out.starts_with("rx0 detached; "));
    assert_eq!(second.end().code, 0);
}

#[test]
fn who_asks_to_take_over_and_goes_away_changes_nothing() {
    let test = "who_asks_to_take_over_and_goes_away_changes_nothing";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    // With nothing there it is as without the flag.
    let mut steering = Steering::new(&pair.sink, "attach rx0 --replace --policy rps", |_| {});
    let path = until(|| sockets(&pair), |sockets| sockets.len() == 1).remove(0);
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(b"{\"version\":1,\"verb\":\"hand-over\"}\n").unwrap();
    let mut answer = [0; 32];
    let len = stream.read(&mut answer).unwrap();
    assert!(answer[..len].starts_with(b"{\"hand-over\":\"rxsteer-handover "), "{answer:?}");
    drop(stream);
    let one = until(|| status(&pair), |one| one["process"] != serde_json::Value::Null);
    assert_eq!(one["process"]["pid"], steering.child.id());
    // It steers on.
    let send = || {
        let socket = UdpSocket::bind((Pair::SOURCE_V4, 0)).unwrap();
        for _ in 0..10 {
            socket.send_to(b"x", (Pair::SINK_V4, 9)).unwrap();
        }
    };
    pair.source.run(send).unwrap();
    until(|| status(&pair), |one| one["packets"] == 10);
    // Settings that cannot be taken over leave it where it is, too.
    let said = inside(&pair, "attach rx0 --replace --mode skb");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("the mode cannot change"), "{said:?}");
    until(|| status(&pair)["process"]["pid"].clone(), |pid| *pid == steering.child.id());
    steering.signal("TERM");
    let said = steering.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("not handed over, and going on"), "{said:?}");
    assert!(said.err.contains("nothing is attached to rx0: nothing to take over"), "{said:?}");
}
