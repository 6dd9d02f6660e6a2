//! The whole receive of a packet, in a form that two builds can be compared by: with and without the
//! 4-tuple table.
//!
//! ```text
//! cargo bench -p rxsteer-sockets --bench receive --no-default-features --no-run  # prints its path
//! cargo bench -p rxsteer-sockets --bench receive -- --beside PATH
//! ```
//! Runs itself and the other build in turns and prints both, and their ratio: nanoseconds of CPU time
//! (median of the turns) and, if Valgrind is there, instructions and simulated misses of the first and
//! the last data cache. CPU time, which other work on the machine disturbs less than it does the time
//! that passes.
//! A *receive* is the look-up, the push to the queue of the socket found, and the read. `queue` and
//! `channel` carry datagrams from one or four threads to one reader. What is measured is the
//! difference between many and half as many, so that nothing of the setting up counts.
//! `-- FILTER` runs the cases whose name has the text; `--bytes` tells what a socket takes in memory.
#![expect(clippy::print_stdout, reason = "a bench that prints what it measures")]

mod many;

use std::error::Error;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use many::{ANY, Clients, SERVER, connect, cpu_time, open, resident};
use rxsteer_sockets::queue::{Datagram, Limits, QueueContext, ReceiveQueue, Simulated};
use rxsteer_sockets::{Config, Family, HASH4, Namespace, Owner, SocketId};

/// Turns of each build.
const TURNS: usize = 15;

/// What is measured: its name, how many times, and how many under Valgrind.
const CASES: [(&str, u64, u64); 14] = [
    ("receive/address", 400_000, 20_000),
    ("receive/wildcard", 400_000, 20_000),
    ("receive/group_of_8", 400_000, 20_000),
    ("lookup/address", 2_000_000, 20_000),
    ("lookup/connected_1", 2_000_000, 20_000),
    ("lookup/connected_1000", 1_000_000, 20_000),
    ("lookup/connected_100000", 400_000, 20_000),
    ("lookup/connected_1000000", 400_000, 100_000),
    ("queue/single_1", 1_000_000, 60_000),
    ("channel/std_mpsc_1", 1_000_000, 60_000),
    ("queue/batch_1", 1_000_000, 60_000),
    ("queue/single_4", 1_000_000, 60_000),
    ("channel/std_mpsc_4", 1_000_000, 60_000),
    ("queue/batch_4", 1_000_000, 60_000),
];

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--case", name, times] => {
            println!("{}", run(name, times.parse()?).as_nanos());
            Ok(())
        }
        ["--bytes"] => bytes(),
        ["--beside", other] => beside(Some(other), ""),
        ["--beside", other, filter] => beside(Some(other), filter),
        [] => beside(None, ""),
        [filter] => beside(None, filter),
        _ => Err("usage: [--beside PATH] [FILTER]".into()),
    }
}

/// Runs a case and returns the CPU time.
fn run(name: &str, times: u64) -> Duration {
    let (what, socket) = name.split_once('/').expect("a case");
    if matches!(what, "queue" | "channel") {
        return carry(socket, times);
    }
    let ns = Namespace::new(&Config { key: (1, 2), ..Config::default() });
    let (local, sockets) = match socket {
        "address" => (SERVER, 1),
        "group_of_8" => (ANY, 8),
        _ => (ANY, 1),
    };
    let connected: u32 =
        socket.strip_prefix("connected_").map_or(0, |count| count.parse().expect("a count"));
    let share = sockets > 1 || connected > 0;
    let ids: Vec<SocketId> = (0..sockets).map(|_| open(&ns, local, share)).collect();
    for number in 0..connected {
        connect(&ns, open(&ns, SERVER, true), number);
    }
    let context = Arc::new(QueueContext::default());
    let queues: Vec<_> =
        ids.iter().map(|_| ReceiveQueue::new(&context, Limits::default())).collect();
    // Those of unconnected sockets come from anybody.
    let mut clients = Clients::among(if connected > 0 { connected } else { 1 << 16 });
    let begin = cpu_time();
    for _ in 0..times {
        let packet = clients.packet();
        let found = ns.lookup(black_box(&packet)).expect("a socket takes it");
        if what == "lookup" {
            black_box(found);
            continue;
        }
        let queue = &queues[found.socket.index as usize];
        let peer = SocketAddr::new(packet.src, packet.src_port);
        queue.push(Datagram::new(peer, packet.dst, Simulated::new(20))).expect("room");
        black_box(queue.try_recv().expect("one waits"));
    }
    cpu_time() - begin
}

fn used(datagram: Datagram<Simulated>) {
    black_box(datagram);
}

/// Carries datagrams from threads to this one; returns the CPU time of all.
fn carry(how: &str, times: u64) -> Duration {
    let (how, producers) = how.rsplit_once('_').expect("a case");
    let producers: u64 = producers.parse().expect("a count");
    let peer = SocketAddr::new(SERVER, 4433);
    let datagram = || Datagram::new(peer, SERVER, Simulated::new(20));
    let context = Arc::new(QueueContext::default());
    let queue = ReceiveQueue::new(&context, Limits::bytes(1 << 30));
    let (sender, receiver) = mpsc::channel();
    let begin = cpu_time();
    let produced: Duration = thread::scope(|scope| {
        let produce = || {
            let sender = sender.clone();
            for _ in 0..times / producers {
                if how == "std_mpsc" {
                    sender.send(datagram()).expect("open");
                } else {
                    queue.push(datagram()).expect("room");
                }
            }
            cpu_time()
        };
        let threads: Vec<_> = (0..producers).map(|_| scope.spawn(produce)).collect();
        let mut left = times / producers * producers;
        while left > 0 {
            match how {
                "std_mpsc" => used(receiver.recv().expect("open")),
                "single" => used(queue.recv_timeout(None).expect("open")),
                _ => {
                    let batch = queue.recv_batch_timeout(64, None).expect("open");
                    left -= batch.len() as u64 - 1;
                    batch.for_each(used);
                }
            }
            left -= 1;
        }
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    produced + (cpu_time() - begin)
}

/// Prints the memory of a socket: what the process grows by.
fn bytes() -> Result<(), Box<dyn Error>> {
    const SOCKETS: u32 = 200_000;
    let mut parts = Vec::new();
    for (name, connects) in [("connected", true), ("bound", false)] {
        let ns = Namespace::new(&Config { key: (1, 2), ..Config::default() });
        let before = resident();
        for number in 0..SOCKETS {
            if connects {
                connect(&ns, open(&ns, SERVER, true), number);
            } else {
                let id = ns.open(Family::V4, Owner(0))?;
                // Three to a port: 200,000 addresses and ports of their own.
                let local = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + number % 4));
                ns.bind(id, local, 10_000 + (number / 4) as u16)?;
            }
        }
        let grown = resident().saturating_sub(before);
        parts.push(format!("{} {name}", grown / SOCKETS as usize));
        // Kept until the end, or the next would grow into its place.
        std::mem::forget(ns);
    }
    println!("{}", parts.join(", "));
    Ok(())
}

fn beside(other: Option<&str>, filter: &str) -> Result<(), Box<dyn Error>> {
    let own = std::env::current_exe()?;
    let own = own.to_str().ok_or("a path that is no text")?;
    let builds: Vec<&str> = std::iter::once(own).chain(other).collect();
    println!("this build: hash4 {HASH4}; columns: this, the other, this over the other");
    for build in &builds {
        print!("bytes of a socket: {}", output(build, &["--bytes"])?);
    }
    let valgrind = Command::new("valgrind").arg("--version").output().is_ok();
    for (name, times, few) in CASES.into_iter().filter(|(name, ..)| name.contains(filter)) {
        let scans = name.ends_with("000") && (other.is_some() || !HASH4);
        if scans && name != "lookup/connected_1000" {
            continue; // the two-table form goes through all of them
        }
        let mut ns = vec![Vec::new(); builds.len()];
        for turn in 0..TURNS {
            for place in 0..builds.len() {
                // Who goes first changes, or one would always find the caches of the other.
                let at = (place + turn) % builds.len();
                let whole = output(builds[at], &["--case", name, &times.to_string()])?;
                let half = output(builds[at], &["--case", name, &(times / 2).to_string()])?;
                let whole: f64 = whole.trim().parse()?;
                let half: f64 = half.trim().parse()?;
                ns[at].push((whole - half) / (times / 2) as f64);
            }
        }
        let medians: Vec<f64> = ns.iter_mut().map(|values| median(values)).collect();
        line(name, "ns", &medians);
        if !valgrind {
            continue;
        }
        let mut counted = vec![Vec::new(); 3];
        for build in &builds {
            let many = cachegrind(build, name, few)?;
            let half = cachegrind(build, name, few / 2)?;
            for (values, (many, half)) in counted.iter_mut().zip(many.into_iter().zip(half)) {
                values.push((many - half) / (few / 2) as f64);
            }
        }
        line(name, "instructions", &counted[0]);
        line(name, "misses D1", &counted[1]);
        line(name, "misses LL", &counted[2]);
    }
    Ok(())
}

fn line(name: &str, what: &str, values: &[f64]) {
    let mut text = format!("{name:26} {what:13}");
    for value in values {
        text += &format!(" {value:10.2}");
    }
    if let [own, other] = values {
        text += &format!("  {:.4}", own / other);
    }
    println!("{text}");
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn output(program: &str, args: &[&str]) -> Result<String, Box<dyn Error>> {
    let output = Command::new(program).args(args).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the instructions, and the data misses of the first and the last cache, that Cachegrind counts.
fn cachegrind(program: &str, name: &str, times: u64) -> Result<[f64; 3], Box<dyn Error>> {
    let run = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"])
        .args(["--D1=49152,12,64", "--LL=33554432,16,64"]) // 48 KiB and 32 MiB
        .args([program, "--case", name, &times.to_string()])
        .output()?;
    let text = String::from_utf8_lossy(&run.stderr);
    let number = |label: &str| -> Result<f64, Box<dyn Error>> {
        let line = text.lines().find_map(|line| line.split_once(label));
        let (_, rest) = line.ok_or_else(|| format!("Cachegrind: {text}"))?;
        let value = rest.split('(').next();
        Ok(value
            .ok_or("a line without a number")?
            .trim_matches([' ', ':'])
            .replace(',', "")
            .parse()?)
    };
    Ok([number("I   refs")?, number("D1  misses")?, number("LLd misses")?])
}
