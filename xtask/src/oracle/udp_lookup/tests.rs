//! The recorded scenarios, and what the oracle makes of files that are wrong.

use std::io::Write;

use super::*;

fn args(file: PathBuf, model: bool) -> Args {
    Args { file, profile: Rules::Linux, model, excuse: Vec::new(), list_mismatches: 0 }
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
    let Some(shared) = std::env::var_os("RXSTEER_SHARED") else {
        println!("skipped: RXSTEER_SHARED does not name the folder with the recorded scenarios");
        return;
    };
    let file = PathBuf::from(shared).join("oracle/udp-lookup.jsonl");
    for model in [false, true] {
        let outcome = play_file(&args(file.clone(), model)).unwrap();
        assert_eq!(outcome.lines, [""; 0], "by scan: {model}");
        assert_eq!((outcome.passed, outcome.failed), (400, 0));
        assert_eq!(outcome.excused == 0, HASH4);
    }
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
