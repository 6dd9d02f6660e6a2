//! The recorded scenarios, and what the oracle makes of files that are wrong.

use std::io::Write;

use rxsteer_sockets::Faults;

use super::*;

fn args(file: PathBuf, model: bool) -> Args {
    Args {
        file,
        profile: Rules::Linux,
        model,
        two_tables: false,
        excuse: Vec::new(),
        list_departures: false,
        list_mismatches: 0,
    }
}

/// The recorded scenarios, if they are there.
fn recorded() -> Option<PathBuf> {
    let shared = std::env::var_os("RXSTEER_SHARED");
    if shared.is_none() {
        println!("skipped: RXSTEER_SHARED does not name the folder with the recorded scenarios");
    }
    Some(PathBuf::from(shared?).join("oracle/udp-lookup.jsonl"))
}

/// Writes lines into a file of its own and plays it.
fn play(name: &str, lines: &[&[u8]]) -> Outcome {
    let path = std::env::temp_dir().join(format!("udp-lookup-{}-{name}", std::process::id()));
    let mut file = File::create(&path).unwrap();
    for line in lines {
        file.write_all(line).unwrap();
        file.write_all(b"\n").unwrap();
    }
    drop(file);
    let outcome = play_file(&args(path.clone(), false));
    std::fs::remove_file(path).unwrap();
    outcome.unwrap()
}

#[test]
fn tables_and_scan_give_every_recorded_packet_to_the_socket_that_linux_gave_it_to() {
    let Some(file) = recorded() else { return };
    for model in [false, true] {
        let outcome = play_file(&args(file.clone(), model)).unwrap();
        assert_eq!(outcome.lines, [""; 0], "by scan: {model}");
        assert_eq!((outcome.passed, outcome.failed), (400, 0));
        assert_eq!(outcome.excused == 0, HASH4);
        assert_eq!(outcome.summary(), "400 passed, 0 failed");
    }
}

/// The file says of many packets on which traits of Linux their outcome depends: where ours departs
/// at such a packet, it must be by one of these.
#[test]
fn our_profile_departs_from_linux_only_by_documented_faults() {
    let Some(file) = recorded() else { return };
    let how = How { profile: Profile::Rxsteer, model: false, excuse: vec![] };
    let (mut named_by_the_file, mut by_aftermath) = (0, 0);
    for line in BufReader::new(File::open(file).unwrap()).split(b'\n') {
        let line = line.unwrap();
        let raw: serde_json::Value = serde_json::from_slice(&line).unwrap();
        let (seed, judged) = play_line(&line, &how).unwrap();
        if HASH4 {
            assert_eq!(judged.failures, [""; 0], "seed {seed}");
        }
        for (faults, text) in judged.departures {
            let step = text.split([' ', ':']).nth(1).unwrap().parse::<usize>();
            let depends = step.map(|step| raw["steps"][step]["depends"].clone());
            let depends = depends.unwrap_or_default();
            let depends: Vec<_> =
                depends.as_array().into_iter().flatten().filter_map(|name| name.as_str()).collect();
            if Faults::ALL.names().any(|name| depends.contains(&name)) {
                let one_of_these = faults.names().any(|name| depends.contains(&name));
                assert!(one_of_these, "seed {seed}, {text}: {faults:?}, file {depends:?}");
                named_by_the_file += 1;
            } else {
                by_aftermath += 1;
            }
        }
    }
    assert!(named_by_the_file > 5 * by_aftermath, "{named_by_the_file} {by_aftermath}");
}

#[test]
fn a_departure_that_no_fault_explains_fails() {
    let path = std::env::temp_dir().join(format!("udp-lookup-{}-departs", std::process::id()));
    // Wrong under every profile, and a socket that Linux leaves deaf to all but its last peer.
    let deaf = scenario(r#""rx":[]"#).replace(
        r#""steps":["#,
        r#""steps":[{"op":"connect","id":0,"to":["::1",7],"local":["::1",53]},
        {"op":"disconnect","id":0,"local":["::",53]},"#,
    );
    let deaf = deaf.replace(r#""src":"::1","#, r#""src":"::2","#).replace('\n', "");
    std::fs::write(&path, format!("{}\n{deaf}\n", scenario(r#""rx":[]"#))).unwrap();
    let args = Args { profile: Rules::Rxsteer, ..args(path.clone(), false) };
    let outcome = play_file(&args);
    std::fs::remove_file(path).unwrap();
    let outcome = outcome.unwrap();
    assert_eq!(outcome.lines, ["seed 1, step 0: received by [0], kernel []"]);
    assert_eq!(outcome.summary(), "0 passed, 1 departures (stale_remote6 1), 1 failed");
}

/// A socket at `::` port 53, a packet for it, and who is said to have received it.
fn scenario(outcome: &str) -> String {
    format!(
        r#"{{"seed":1,"devices":[{{"name":"lo","addrs":["::1"],"bcast":[]}}],"joined":[],
        "sockets":[{{"id":0,"created_order":0,"family":6,"bind":"::","port":53,"opts":{{}}}}],
        "steps":[{{"op":"packet","in":"lo","loop":true,"cpu":0,"src":"::1","sport":9,"dst":"::1",
        "dport":53,{outcome}}}]}}"#
    )
    .replace('\n', "")
}

#[test]
fn a_wrong_receiver_is_told_with_seed_and_step() {
    let right = play("right", &[scenario(r#""rx":[0]"#).as_bytes()]);
    assert_eq!((right.passed, right.failed), (1, 0), "{:?}", right.lines);
    let wrong = play("wrong", &[scenario(r#""rx":[]"#).as_bytes()]);
    assert_eq!((wrong.passed, wrong.failed), (0, 1));
    assert_eq!(wrong.lines, ["seed 1, step 0: received by [0], kernel []"]);
    let other = play("any", &[scenario(r#""any_of":[1,2]"#).as_bytes()]);
    assert_eq!(other.lines, ["seed 1, step 0: received by [0], kernel one of [1, 2]"]);
}

#[test]
fn every_line_that_cannot_be_played_fails_with_its_number() {
    let unknown_step = scenario(r#""rx":[0]"#).replace("\"packet\"", "\"poke\"");
    let unknown_device = scenario(r#""rx":[0]"#).replace("\"in\":\"lo\"", "\"in\":\"eth9\"");
    let no_outcome = scenario(r#""by":"none""#);
    let mixed = scenario(r#""rx":[0]"#).replace("\"src\":\"::1\"", "\"src\":\"10.0.0.1\"");
    let lines: [&[u8]; 8] = [
        b"",
        b"no JSON",
        b"{}",
        b"\xff\xfe",
        unknown_step.as_bytes(),
        unknown_device.as_bytes(),
        no_outcome.as_bytes(),
        mixed.as_bytes(),
    ];
    let outcome = play("bad", &lines);
    assert_eq!((outcome.passed, outcome.failed), (0, 7));
    let numbers: Vec<_> = outcome.lines.iter().map(|line| line.split(':').next()).collect();
    let expected: Vec<_> = (2..=8).map(|number| format!("line {number}")).collect();
    assert_eq!(numbers, expected.iter().map(|text| Some(text.as_str())).collect::<Vec<_>>());
}
