//! A link of its own, and a process that steers one end of it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rxsteer_testbed::{Namespace, Pair, PairSpec, Testbed, TestbedError};
use serde_json::Value;

use super::{Said, rxsteer};

/// Makes a pair, or says that the test is skipped and why.
pub(crate) fn pair(test: &str, spec: &PairSpec) -> Option<(Testbed, Pair)> {
    let testbed = match Testbed::new() {
        Ok(testbed) => testbed,
        Err(TestbedError::Privilege(missing)) => {
            eprintln!("skipped {test}: {missing}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let pair = Pair::new(&testbed, spec).unwrap();
    Some((testbed, pair))
}

/// Runs the command in the namespace of the receiver.
pub(crate) fn inside(pair: &Pair, line: &str) -> Said {
    pair.sink.run(|| rxsteer(line)).unwrap()
}

/// Returns what `status --json` tells of the one interface that is steered.
pub(crate) fn status(pair: &Pair) -> Value {
    let said = inside(pair, "status --json");
    let json: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!(json["attached"].as_array().unwrap().len(), 1, "{json}");
    json["attached"][0].clone()
}

/// A process that steers, ended with the test.
pub(crate) struct Steering {
    pub(crate) child: Child,
    out: BufReader<ChildStdout>,
    /// What it said first.
    pub(crate) first: String,
}

impl Steering {
    /// Starts `attach` in the namespace and waits until it is attached.
    pub(crate) fn new(
        namespace: &Namespace,
        line: &str,
        change: impl Fn(&mut Command) + Sync,
    ) -> Self {
        let start = || {
            let mut command = super::command();
            command.args(line.split_whitespace());
            Self::start(command, &change)
        };
        namespace.run(start).unwrap()
    }

    /// Starts this command in the namespace of the calling thread.
    pub(crate) fn start(mut command: Command, change: &dyn Fn(&mut Command)) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        out.read_line(&mut first).unwrap();
        let mut steering = Self { child, out, first };
        if !steering.first.starts_with("attached to ") {
            panic!("{:?}", steering.end());
        }
        steering
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// Waits for its end and returns what it said after the first line.
    pub(crate) fn end(&mut self) -> Said {
        let mut said = Said { code: 0, out: String::new(), err: String::new() };
        self.out.read_to_string(&mut said.out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut said.err).unwrap();
        // No code: ended by a signal.
        said.code = self.child.wait().unwrap().code().unwrap_or(-1);
        said
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for something that happens soon; what is asked last is part of the failure.
pub(crate) fn until<T: std::fmt::Debug>(
    mut ask: impl FnMut() -> T,
    is_so: impl Fn(&T) -> bool,
) -> T {
    let start = Instant::now();
    loop {
        let answer = ask();
        if is_so(&answer) {
            return answer;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{answer:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns whether a tool is there, or says that the test is skipped.
pub(crate) fn has_tool(test: &str, tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir| Path::new(&dir).join(tool).exists());
    if !has {
        eprintln!("skipped {test}: there is no {tool}");
    }
    has
}

/// Says that a test is skipped, and why, where the privileges of a testbed are missing.
pub(crate) fn is_skipped(test: &str) -> bool {
    use rxsteer_testbed::{MissingPrivileges, Privilege, missing_privileges};
    let missing = missing_privileges(&Privilege::TESTBED);
    if !missing.is_empty() {
        eprintln!("skipped {test}: {}", MissingPrivileges(missing.clone()));
    }
    !missing.is_empty()
}

/// Returns what a verb of `bench` said as JSON, whose head is that of all of them.
pub(crate) fn bench_json(said: &Said) -> Value {
    assert_eq!(said.code, 0, "{said:?}");
    let value: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(value["schema_version"], 1);
    assert!(value["host"]["kernel"].as_str().unwrap().starts_with("Linux "));
    value
}

/// Asks for the metrics in the receiver's namespace.
pub(crate) fn scraped(pair: &Pair, address: &str) -> (String, prometheus_parse::Scrape) {
    let ask = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = pair.sink.run(ask).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let lines = body.lines().map(|line| Ok(line.to_owned()));
    (head.to_owned(), prometheus_parse::Scrape::parse(lines).unwrap())
}
