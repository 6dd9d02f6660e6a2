//! The verb `bench`: real packets. Needs root; without it each test says so and ends.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Said, rxsteer};
use serde_json::Value;

fn is_skipped(test: &str) -> bool {
    use rxsteer_testbed::{MissingPrivileges, Privilege, missing_privileges};
    let missing = missing_privileges(&Privilege::TESTBED);
    if !missing.is_empty() {
        eprintln!("skipped {test}: {}", MissingPrivileges(missing.clone()));
    }
    !missing.is_empty()
}

fn json(said: &Said) -> Value {
    assert_eq!(said.code, 0, "{said:?}");
    let value: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(value["schema_version"], 1);
    assert!(value["host"]["kernel"].as_str().unwrap().starts_with("Linux "));
    value
}

#[test]
fn gen_sends_and_the_other_end_counts() {
    if is_skipped("gen_sends_and_the_other_end_counts") {
        return;
    }
    let value = json(&rxsteer("bench gen -c 5k --size 100 --flows 7 --json"));
    assert_eq!(value["result"]["source"]["sent"], 5000);
    assert_eq!(value["result"]["source"]["bytes"], 5000 * 142);
    let arrived = value["result"]["arrived"].as_u64().unwrap();
    let dropped = value["result"]["dropped"].as_u64().unwrap();
    assert_eq!(arrived + dropped, 5000);
    let text = rxsteer("bench gen -c 500");
    assert!(text.out.contains("sent      500 packets in "), "{text:?}");
}

/// The capture that comes with the program, whose packets are counted by the program that lists them.
#[test]
fn gen_sends_a_capture_and_the_other_end_counts() {
    if is_skipped("gen_sends_a_capture_and_the_other_end_counts") {
        return;
    }
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/sample.pcapng.zst");
    let listed = rxsteer(&format!("flows {sample} --json -q"));
    let all = listed.out.lines().count() as u64;
    assert!(all > 1000, "{listed:?}");
    // Some of its packets are merged ones, longer than a usual link takes.
    let line = format!("bench gen --capture {sample} --speed max -d 60 --mtu 65535 -q");
    let padded = json(&rxsteer(&format!("{line} --pad --json")));
    let result = &padded["result"];
    assert_eq!(result["capture"]["ended"], "complete");
    assert_eq!(result["source"]["sent"], all, "{padded}");
    assert_eq!((&result["arrived"], &result["dropped"]), (&all.into(), &0.into()), "{padded}");
    let cut = result["capture"]["rewritten"]["padded"].as_u64().unwrap();
    assert!(0 < cut && cut < all, "{padded}");
    let whole = json(&rxsteer(&format!("{line} --json")));
    assert_eq!(whole["result"]["capture"]["unsent"]["truncated"], cut, "{whole}");
    assert_eq!(whole["result"]["source"]["sent"], all - cut, "{whole}");
    let text = rxsteer(&line);
    assert_eq!(text.code, 0, "{text:?}");
    assert!(text.out.contains(" not all in the capture (--pad)\n"), "{text:?}");
    assert!(text.out.contains(" IP destination: the receiver's\n"), "{text:?}");
    // Nothing that can be sent is an error.
    let file = common::scratch("capture-nothing").join("wireless.pcap");
    let mut bytes = Vec::from(0xa1b2_c3d4u32.to_le_bytes());
    bytes.extend([2, 0, 4, 0]);
    bytes.extend([0, 0, 65_535, 105].map(u32::to_le_bytes).as_flattened());
    bytes.extend([7, 0, 4, 4, 8].map(u32::to_le_bytes).as_flattened());
    std::fs::write(&file, bytes).unwrap();
    let said = rxsteer(&format!("bench gen --capture {}", file.display()));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("nothing was sent of 1 packet"), "{said:?}");
}

#[test]
fn sink_accounts_for_every_packet() {
    if is_skipped("sink_accounts_for_every_packet") {
        return;
    }
    let line = "bench sink -c 20k --rps-cpus 0 --threads 2 --reuseport --json";
    let value = json(&rxsteer(line));
    let account = &value["result"]["account"];
    let places = ["received", "backlog", "ip", "reassembly", "no_port", "checksum", "socket"];
    let sum: u64 = places.iter().map(|place| account[place].as_u64().unwrap()).sum();
    assert_eq!(sum, 20_000, "{account}");
    assert_eq!(account["unexplained"], 0);
    let touched = &value["settings"][0];
    assert!(touched["path"].as_str().unwrap().ends_with("/rx0/queues/rx-0/rps_cpus"), "{touched}");
    let text = rxsteer("bench sink -c 2k -d 1.5 --rate 1k");
    assert_eq!(text.code, 0, "{text:?}");
    // One line a second, of which there was one.
    assert!(text.err.lines().any(|line| line.contains(" packets/s, ")), "{text:?}");
    assert!(text.out.contains(" read\n"), "{text:?}");
}

/// Turns are counted by the least time that they ever took, so that work takes at least that: a half is
/// far from what reading alone takes, a hundredth of it.
#[test]
fn a_reader_that_works_takes_cpu_time_for_it() {
    if is_skipped("a_reader_that_works_takes_cpu_time_for_it") {
        return;
    }
    for call in ["recv", "recvmsg", "recvmmsg --batch 8"] {
        let line = format!("bench sink -c 200 --rate 1k --receive-buffer 1M --call {call}");
        let value = json(&rxsteer(&format!("{line} --work 500k --json")));
        assert_eq!(value["result"]["reading"]["work_ns"], 500_000, "{value}");
        let reader = &value["result"]["sink"]["readers"][0];
        assert_eq!(reader["received"], 200, "{value}");
        assert!(reader["cpu_ns"].as_u64().unwrap() > 200 * 250_000, "{value}");
        let idle = json(&rxsteer(&format!("{line} --json")));
        assert_eq!(idle["result"]["reading"]["work_ns"], 0, "{idle}");
    }
    let said = rxsteer("bench sink -c 9 --work 2_500");
    assert!(said.out.contains("1 socket, 2.50 µs of work on each datagram\n"), "{said:?}");
    let said = rxsteer("bench sink -c 9");
    assert!(said.out.contains("1 socket\n"), "{said:?}");
    let line = "bench compare sink --setups none --repeats 1 -d 0.1 --rate 1k --work 1k";
    for line in [line.to_owned(), format!("{line} --overload 1")] {
        let said = rxsteer(&line);
        assert!(said.out.contains(", 1.00 µs of work on each datagram"), "{said:?}");
    }
}

#[test]
fn rr_prints_quantiles() {
    if is_skipped("rr_prints_quantiles") {
        return;
    }
    let line = "bench rr --protocol tcp --flows 10 -c 1k --json";
    let value = json(&rxsteer(line));
    let client = &value["result"]["client"];
    assert!(client["transactions"].as_u64().unwrap() >= 1000, "{client}");
    assert!(client["latency"]["p99_ns"].as_u64() >= client["latency"]["p50_ns"].as_u64());
    assert!(client["since_asked"].is_null());
    let text = rxsteer("bench rr --open-loop 2k -d 0.3");
    assert!(text.out.contains("since it was due"), "{text:?}");
}

#[test]
fn compare_measures_against_the_first_setup() {
    if is_skipped("compare_measures_against_the_first_setup") {
        return;
    }
    let line = "bench compare rr --setups none,rps --repeats 2 -c 100 --json -q";
    let value = json(&rxsteer(line));
    let setups = value["result"]["setups"].as_array().unwrap();
    assert_eq!(setups.len(), 2);
    let (first, second) = (&setups[0], &setups[1]);
    assert_eq!((&first["setup"], &second["setup"]), (&Value::from("none"), &Value::from("rps")));
    assert_eq!(first["ratios"][0]["ratio"]["median"], 1.0);
    // By hand: the mean of the two ratios, each within its repeat.
    let of = |setup: &Value, repeat: usize| setup["metrics"][0]["values"][repeat].as_f64().unwrap();
    let ratio = |repeat| of(second, repeat) / of(first, repeat);
    let mean = (ratio(0) + ratio(1)) / 2.0;
    let said = second["ratios"][0]["ratio"]["median"].as_f64().unwrap();
    assert!((said - mean).abs() < 1e-9, "{said} {mean}");
    let text = rxsteer("bench compare sink --setups none,threaded --repeats 1 -c 2k");
    assert_eq!(text.code, 0, "{text:?}");
    assert!(text.out.contains("\nthreaded    threaded=1\n"), "{text:?}");
}

#[test]
fn compare_attaches_rxsteer_for_its_runs_and_tells_what_it_counted() {
    if is_skipped("compare_attaches_rxsteer_for_its_runs_and_tells_what_it_counted") {
        return;
    }
    let line = "bench compare rr --setups none,rxsteer --repeats 2 -c 200 -d 60 --json -q";
    let value = json(&rxsteer(line));
    let setup = &value["result"]["setups"][1];
    assert_eq!(setup["setup"], "rxsteer");
    let runs = setup["attached"]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        let reasons = run["reasons"].as_object().unwrap().values();
        let sum: u64 = reasons.map(|count| count.as_u64().unwrap()).sum();
        // One request each, and one that was asked when the run ended.
        assert!(sum >= 200 && run["seen"] == sum, "{run}");
    }
    let line =
        "bench compare sink --setups none,rxsteer --repeats 1 -d 0.2 --rate 5k --overload 1,2";
    let text = rxsteer(line);
    assert_eq!(text.code, 0, "{text:?}");
    for words in ["1 x is 5,000 packets/s", "at 2 x, 10,000 packets/s", "  attached: ", "unequal: "]
    {
        assert!(text.out.contains(words), "{words}: {text:?}");
    }
    let line = "bench compare mixed --protocol tcp --flows 4 --setups rxsteer --repeats 1 -d 0.2 \
                --flood 10k";
    let text = rxsteer(line);
    assert_eq!(text.code, 0, "{text:?}");
    assert!(text.out.contains("flood read") && text.out.contains("hit rate of TCP"), "{text:?}");
}

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

#[test]
fn calibrate_writes_a_host_file_that_the_lab_takes() {
    if is_skipped("calibrate_writes_a_host_file_that_the_lab_takes") {
        return;
    }
    let file = common::scratch("calibrate").join("host.toml");
    let value = json(&rxsteer(&format!("bench calibrate --json --output {}", file.display())));
    let text = std::fs::read_to_string(&file).unwrap();
    let host = rxsteer_lab::host::Host::from_toml("host.toml", &text).unwrap();
    let costs = value["result"]["costs"].as_array().unwrap();
    let cost = |name: &str| costs.iter().find(|cost| cost["name"] == name).map(|cost| &cost["ns"]);
    // What no noise hides, since it is no difference.
    for name in ["read", "switch", "wake_local"] {
        assert!(cost(name).is_some(), "{name}: {value}");
    }
    let default = rxsteer_lab::host::Host::simple(1, 1).unwrap().costs;
    let or_default = |name, default: u32| cost(name).map_or(Value::from(default), Clone::clone);
    assert_eq!(or_default("read", 0), host.costs.read);
    assert_eq!(or_default("take", default.take), host.costs.take);
    assert_eq!(or_default("protocol_udp", default.protocol_udp), host.costs.protocol_udp);
    assert_eq!(or_default("protocol_tcp", default.protocol_tcp), host.costs.protocol_tcp);
    let replayed = rxsteer(&format!("replay -p none --host {} --json", file.display()));
    assert_eq!(replayed.code, 0, "{replayed:?}");
}

#[test]
fn restore_finds_nothing_or_says_what() {
    if is_skipped("restore_finds_nothing_or_says_what") {
        return;
    }
    let said = rxsteer("bench restore");
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!said.out.is_empty());
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

#[test]
fn a_port_where_nobody_answers_has_no_latency_and_is_an_error() {
    // A port that was ours a moment ago, and is nobody's now.
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let line = format!("bench rr --to {free} --i-own-this-network 127.0.0.1 -d 0.3 --timeout 0.1");
    let said = rxsteer(&line);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("nobody answered: connection refused"), "{said:?}");
    assert!(said.out.contains(" times connection refused"), "{said:?}");
    let latency = said.out.lines().skip_while(|line| !line.starts_with("latency ")).nth(1).unwrap();
    assert_eq!(latency.split_whitespace().collect::<Vec<_>>(), ["-"; 7]);
}

/// Before anything is made or sent, so without rights.
#[test]
fn cpus_that_are_not_there_are_wrong_usage() {
    for flag in ["sink --cpus", "sink --rps-cpus", "gen --source-cpu", "compare rr --client-cpus"] {
        let said = rxsteer(&format!("bench {flag} 4095"));
        assert_eq!(said.code, 2, "{flag}: {said:?}");
        assert!(said.err.contains("4095 does not exist (possible "), "{flag}: {said:?}");
    }
}

#[test]
fn no_load_goes_where_nobody_said_it_may() {
    for line in ["bench gen --to 192.0.2.1:9 -c 1", "bench rr --to 192.0.2.1:9 -c 1"] {
        let said = rxsteer(line);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains("--i-own-this-network 192.0.2.1"), "{said:?}");
    }
    let said =
        rxsteer("bench gen --to 127.0.0.1:9 --i-own-this-network 127.0.0.1 -c 1 --kind tcp-syn");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("cannot send tcp-syn"), "{said:?}");
}

/// Runs as nobody, which takes root to try.
#[test]
fn without_privileges_it_says_which_are_missing() {
    if is_skipped("without_privileges_it_says_which_are_missing") {
        return;
    }
    // The target directory need not be open to all.
    let copy = std::env::temp_dir().join(format!("rxs-nobody-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_rxsteer"), &copy).unwrap();
    for (verb, code) in [("gen", 1), ("sink", 1), ("rr", 1)] {
        let output =
            Command::new(&copy).args(["bench", verb, "-c", "1"]).uid(65_534).gid(65_534).output();
        let output = output.unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{err}");
        for capability in ["CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW", "run it as root"] {
            assert!(err.contains(capability), "{verb}: {err}");
        }
    }
    // Reading what others send needs none.
    let sink = ["bench", "sink", "--listen", "127.0.0.1:0", "-d", "0.2"];
    let output = Command::new(&copy).args(sink).uid(65_534).gid(65_534).output().unwrap();
    std::fs::remove_file(&copy).unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn wrong_usage_is_2() {
    for line in [
        "bench gen --rate -5",
        "bench sink --call read",
        "bench rr --flows 0",
        "bench x",
        "bench compare sink --overload 0",
        "bench compare mixed --flood 1x",
        "bench compare rr --setups rxsteer --source-offloads tx-checksum",
    ] {
        let said = rxsteer(line);
        assert_eq!(said.code, 2, "{line}: {said:?}");
    }
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
        let elapsed = json(&said)["result"]["sink"]["elapsed_ns"].as_u64().unwrap();
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
        assert!(json(&said)["result"]["sink"]["received"].as_u64().unwrap() > 0, "{said:?}");
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

/// The packets of a capture, cut in three ways.
#[test]
fn a_capture_that_is_cut_short_is_told_of_and_without_a_packet_an_error() {
    if is_skipped("a_capture_that_is_cut_short_is_told_of_and_without_a_packet_an_error") {
        return;
    }
    let file = common::scratch("capture-cut").join("cut.pcap");
    // An Ethernet frame of 60 bytes of a local experimental ethertype (IEEE 802: 0x88b5).
    let frame = [&[2; 12][..], &[0x88, 0xb5], &[0; 46]].concat();
    let mut bytes = Vec::from(0xa1b2_c3d4u32.to_le_bytes());
    bytes.extend([2, 0, 4, 0]);
    bytes.extend([0, 0, 65_535, 1].map(u32::to_le_bytes).as_flattened());
    for _ in 0..2 {
        bytes.extend([7, 0, 60, 60].map(u32::to_le_bytes).as_flattened());
        bytes.extend(&frame);
    }
    let line = format!("bench gen --capture {}", file.display());
    for (len, ended, sent, code) in [
        (24 + 2 * 76, "complete", 2, 0),
        (24 + 76 + 20, "truncated", 1, 0),
        (24 + 20, "truncated", 0, 1),
        (24 + 7, "truncated", 0, 1),
    ] {
        std::fs::write(&file, &bytes[..len]).unwrap();
        let said = rxsteer(&format!("{line} --json"));
        assert_eq!(said.code, code, "{len}: {said:?}");
        let result = &serde_json::from_str::<Value>(&said.out).unwrap()["result"];
        assert_eq!(result["capture"]["ended"], ended, "{len}: {said:?}");
        assert_eq!(result["source"]["sent"], sent, "{len}: {said:?}");
        let text = rxsteer(&line);
        assert_eq!(text.out.contains("; cut short\n"), ended == "truncated", "{len}: {text:?}");
        assert_eq!(text.code, code, "{len}: {text:?}");
        assert_eq!(text.err.contains("cut short before its first packet"), code == 1, "{text:?}");
    }
    // Not even a file header.
    for len in [0, 3, 12, 23] {
        std::fs::write(&file, &bytes[..len]).unwrap();
        assert_eq!(rxsteer(&line).code, 1, "{len}");
    }
}
