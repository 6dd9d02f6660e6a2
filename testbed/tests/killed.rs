//! What a killed process leaves is removed by the next. Needs root; without it each test says so.
//!
//! The process that is killed is this test itself, started again to hold something.
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::testbed;
use rxsteer_testbed::{Pair, PairSpec, Place, Settings, Testbed, reap, restore};

const ROLE: &str = "RXSTEER_TEST_ROLE";
const WHERE: &str = "RXSTEER_TEST_WHERE";
const TTL: &str = "/proc/sys/net/ipv4/ip_default_ttl";

/// Starts this test again in a role and returns it with the line in which it says that it is ready.
fn holder(role: &str, place: &str) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holder_of_something", "--nocapture", "--test-threads=1"])
        .envs([(ROLE, role), (WHERE, place)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines
        .map(Result::unwrap)
        .find_map(|line| line.split_once("holding ").map(|(_, what)| what.to_owned()));
    (child, ready.expect("the holder says what it holds"))
}

/// Not a test by itself: the part of the process that is killed.
#[test]
fn holder_of_something() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let held: Box<dyn std::any::Any> = match role.as_str() {
        "pair" => {
            let pair = Pair::new(&Testbed::new().unwrap(), &PairSpec::default()).unwrap();
            println!("holding {} {}", pair.source.name(), pair.sink.name());
            Box::new(pair)
        }
        "setting" => {
            let (dir, namespace) = std::env::var(WHERE)
                .unwrap()
                .split_once(' ')
                .map(|(a, b)| (PathBuf::from(a), b.to_owned()))
                .unwrap();
            let mut settings = Settings::with_journal_in(&dir).unwrap();
            let place = Place::Namespace(namespace);
            settings.set(&place, TTL, "61").unwrap();
            settings.set(&place, TTL, "62").unwrap();
            let mask = "/sys/class/net/rx0/queues/rx-0/rps_cpus";
            settings.set(&place, mask, "1").unwrap();
            println!("holding {} changes", settings.changes().len());
            Box::new(settings)
        }
        other => panic!("no such role: {other}"),
    };
    std::thread::sleep(Duration::from_secs(60));
    drop(held);
}

#[test]
fn the_namespaces_of_a_killed_process_are_removed_by_the_next() {
    if testbed("the_namespaces_of_a_killed_process_are_removed_by_the_next").is_none() {
        return;
    }
    let (mut child, names) = holder("pair", "");
    let names: Vec<&str> = names.split(' ').collect();
    let are_there = || names.iter().all(|name| Path::new("/run/netns").join(name).exists());
    assert!(are_there());
    // Nobody takes them away while their owner lives.
    reap().unwrap();
    assert!(are_there());

    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    // Any testbed that is made meanwhile, by another test too, may have removed them already.
    Testbed::new().unwrap();
    let remain = names.iter().filter(|name| Path::new("/run/netns").join(name).exists());
    assert_eq!(remain.count(), 0);
}

#[test]
fn names_that_carry_no_lease_are_left_alone() {
    if testbed("names_that_carry_no_lease_are_left_alone").is_none() {
        return;
    }
    let name = format!("rxs-test-{}", std::process::id());
    let path = Path::new("/run/netns").join(&name);
    fs::create_dir_all("/run/netns").unwrap();
    fs::write(&path, "").unwrap();
    let reaped = reap().unwrap();
    let stayed = path.exists();
    fs::remove_file(&path).unwrap();
    assert!(stayed && !reaped.namespaces.contains(&name));
}

#[test]
fn the_settings_of_a_killed_process_are_put_back() {
    let Some(testbed) = testbed("the_settings_of_a_killed_process_are_put_back") else { return };
    let pair = Pair::new(&testbed, &PairSpec::default()).unwrap();
    let dir = std::env::temp_dir().join(format!("rxs-killed-{}", std::process::id()));
    let ttl = || pair.sink.run(|| fs::read_to_string(TTL).unwrap()).unwrap().trim().to_owned();
    let mask = || pair.sink.read_sys("rx0", "queues/rx-0/rps_cpus").unwrap();
    let before = (ttl(), mask());

    let (mut child, said) = holder("setting", &format!("{} {}", dir.display(), pair.sink.name()));
    assert_eq!(said, "3 changes");
    assert_eq!(ttl(), "62");
    assert_ne!(mask(), before.1);
    // Not while their owner lives.
    assert!(restore(&dir).unwrap().back.is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(ttl(), "62");

    let restored = restore(&dir).unwrap();
    let back: Vec<&str> = restored.back.iter().map(|change| change.new.as_str()).collect();
    assert_eq!(back, ["1", "62", "61"]);
    assert_eq!((ttl(), mask()), before);
    assert!(fs::read_dir(&dir).unwrap().next().is_none());
    fs::remove_dir(&dir).unwrap();
}

#[test]
fn a_setting_of_a_namespace_that_is_gone_needs_no_putting_back() {
    let test = "a_setting_of_a_namespace_that_is_gone_needs_no_putting_back";
    let Some(testbed) = testbed(test) else { return };
    let dir = std::env::temp_dir().join(format!("rxs-gone-{}", std::process::id()));
    let pair = Pair::new(&testbed, &PairSpec::default()).unwrap();
    let mut settings = Settings::with_journal_in(&dir).unwrap();
    settings.set(&Place::from(&pair.sink), TTL, "33").unwrap();
    drop(pair);
    let restored = settings.put_back().unwrap();
    assert_eq!((restored.back.len(), restored.gone.len()), (0, 1));
    assert!(fs::read_dir(&dir).unwrap().next().is_none());
    fs::remove_dir(&dir).unwrap();
}
