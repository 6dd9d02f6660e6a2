//! The settings of the process that steers: their file, its reloads, and what `status` and the metrics tell
//! of them. Needs root; without it a test says so and ends.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::net::{TcpStream, UdpSocket};
use std::process::Command;

use common::live::{Steering, inside, pair, scraped, status, until};
use common::scratch;
use rxsteer_testbed::{Pair, PairSpec, allowed_cpus, pin_thread};

#[test]
fn wrong_settings_change_nothing_and_say_so() {
    let test = "wrong_settings_change_nothing_and_say_so";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let file = scratch("reload").join("rx0.toml");
    std::fs::write(&file, "qsize = 512\n").unwrap();
    let line = format!("attach rx0 --config {}", file.display());
    let mut steering = Steering::new(&pair.sink, &line, |_| {});
    let process = || status(&pair)["process"].clone();
    until(process, |process| process["settings"]["qsize"] == "512");

    std::fs::write(&file, "qsize = 512\npolcy = 'rps'\n").unwrap();
    let said = inside(&pair, "reload rx0");
    assert_eq!(said.code, 1, "{said:?}");
    let why = "rx0.toml:2:1: polcy: there is no such key; did you mean policy?";
    assert!(said.err.contains(why) && said.err.contains("the settings stay as they were"));
    steering.signal("HUP");
    let after = until(process, |process| process["reloads_failed"] == 2);
    assert_eq!((&after["settings"]["qsize"], &after["reloads"]), (&"512".into(), &0.into()));
    assert!(after["reload_error"].as_str().unwrap().contains(why), "{after}");

    std::fs::write(&file, "qsize = 512\n# as before\n").unwrap();
    let said = inside(&pair, "reload rx0");
    assert_eq!((said.code, said.out.as_str()), (0, "settings read again: nothing has changed\n"));
    assert_eq!(process()["reload_error"], serde_json::Value::Null);

    // Good ones are in force when `reload` returns, and the counters go on.
    let program = status(&pair)["program_id"].clone();
    let file_now = "qsize = 512\ntable-entries = '2k'\npolicy = 'rps'\n";
    std::fs::write(&file, file_now).unwrap();
    let said = inside(&pair, "reload rx0");
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.starts_with("settings read again and in force"), "{said:?}");
    let now = status(&pair);
    assert_eq!(
        (&now["process"]["settings"]["policy"], &now["table_entries"]),
        (&"rps".into(), &2048.into())
    );
    assert_ne!(now["program_id"], program);
    // What cannot change says so, and the rest stays as it was.
    std::fs::write(&file, format!("{file_now}mode = 'skb'\n")).unwrap();
    let said = inside(&pair, "reload rx0");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("the mode cannot change while packets are steered"), "{said:?}");
    assert_eq!(process()["settings"]["policy"], "rps");
    // A FIFO that nobody writes to is not waited for.
    std::fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let fifo = "rx0.toml: it is a FIFO; settings are read from regular files only";
    for line in ["reload rx0".to_owned(), format!("check-config {}", file.display())] {
        let said = inside(&pair, &line);
        assert_eq!(said.code, 1, "{line}: {said:?}");
        assert!(said.err.contains(fifo), "{line}: {said:?}");
    }
    assert_eq!(process()["settings"]["policy"], "rps");
    steering.signal("TERM");
    let said = steering.end();
    assert_eq!(said.code, 0);
    // It says itself what it refused, whoever asked.
    assert_eq!(said.err.matches(why).count(), 2, "{said:?}");
    assert_eq!(said.err.matches(fifo).count(), 1, "{said:?}");
    assert_eq!(inside(&pair, "reload rx0").code, 1);
}

#[test]
fn the_place_of_the_metrics_follows_the_file() {
    let test = "the_place_of_the_metrics_follows_the_file";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let file = scratch("place").join("rx0.toml");
    std::fs::write(&file, "").unwrap();
    let line = format!("attach rx0 --config {}", file.display());
    let mut steering = Steering::new(&pair.sink, &line, |_| {});
    let answers = |address: &'static str| {
        let connect = move || TcpStream::connect(address).is_ok();
        pair.sink.run(connect).unwrap() && scraped(&pair, address).0.starts_with("HTTP/1.1 200 ")
    };
    let reload = |text: &str| {
        std::fs::write(&file, text).unwrap();
        inside(&pair, "reload rx0")
    };
    let place = || status(&pair)["process"]["metrics"].clone();
    let now = |place: &str| {
        format!("settings read again and in force; metrics at http://{place}/metrics\n")
    };
    let (one, other) = ("127.0.0.1:9477", "127.0.0.1:9478");
    let said = reload("metrics = '127.0.0.1:9477'\n");
    assert_eq!((said.code, said.out), (0, now(one)), "{}", said.err);
    assert!(answers(one));
    // With other settings beside it, and before them in what is tried.
    let said = reload("metrics = '127.0.0.1:9478'\nqsize = 512\n");
    assert_eq!(said.code, 0, "{said:?}");
    assert!(answers(other) && !answers(one));
    assert_eq!(place(), other);

    // What is taken by another refuses all of it.
    let listen = || std::net::TcpListener::bind("127.0.0.1:9479").unwrap();
    let taken = pair.sink.run(listen).unwrap();
    let said = reload("qsize = 1024\nmetrics = '127.0.0.1:9479'\n");
    let why = "rx0.toml:2:11: metrics: cannot listen on 127.0.0.1:9479: Address already in use";
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains(why), "{said:?}");
    assert!(said.err.contains("the settings stay as they were"), "{said:?}");
    assert_eq!(status(&pair)["process"]["settings"]["qsize"], "512");
    assert!(answers(other));
    drop(taken);
    // And other settings that are refused keep the metrics where they are.
    let said = reload("mode = 'skb'\nmetrics = '127.0.0.1:9479'\n");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("the mode cannot change while packets are steered"), "{said:?}");
    assert!(answers(other) && !answers("127.0.0.1:9479"));

    // The same port, of another address.
    let said = reload("qsize = 512\nmetrics = '127.0.0.2:9478'\n");
    assert_eq!((said.code, said.out), (0, now("127.0.0.2:9478")), "{}", said.err);
    let said = reload("qsize = 512\nmetrics = '0.0.0.0:9478'\n");
    assert_eq!((said.code, said.out), (0, now("0.0.0.0:9478")), "{}", said.err);
    assert!(answers(other));
    // Any port: the one that was taken is told, and stays.
    let said = reload("qsize = 512\nmetrics = '127.0.0.1:0'\n");
    assert_eq!(said.code, 0, "{said:?}");
    let taken = place().as_str().unwrap().to_owned();
    assert_eq!(said.out, now(&taken));
    assert!(taken.starts_with("127.0.0.1:") && !taken.ends_with(":0"), "{taken}");
    assert!(scraped(&pair, &taken).0.starts_with("HTTP/1.1 200 "));
    let same = "settings read again: nothing has changed\n";
    assert_eq!(reload("qsize = 512\nmetrics = '127.0.0.1:0'\n").out, same);
    assert_eq!(place(), *taken);

    let said = reload("qsize = 512\n");
    let none = "settings read again and in force; no metrics any more\n";
    assert_eq!((said.code, said.out.as_str()), (0, none), "{}", said.err);
    assert_eq!(place(), serde_json::Value::Null);
    let connect = || TcpStream::connect(taken.as_str()).is_err();
    assert!(pair.sink.run(connect).unwrap());
    steering.signal("TERM");
    let said = steering.end();
    assert!(said.err.contains(why), "{said:?}");
    let reach = "metrics: whoever reaches 0.0.0.0:9478 can read the counters";
    assert!(said.err.contains(reach), "{said:?}");
}

#[test]
fn metrics_say_what_status_says() {
    let test = "metrics_say_what_status_says";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let mut steering =
        Steering::new(&pair.sink, "attach rx0 --metrics 127.0.0.1:9477 --policy rps", |_| {});
    let (head, scrape) = scraped(&pair, "127.0.0.1:9477");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "before the first packet: {head}");
    for name in ["rxsteer_received_total", "rxsteer_cpumap_drops_total"] {
        let found = scrape.samples.iter().find(|sample| sample.metric == name);
        let value = found.map(|sample| sample.value.clone());
        assert_eq!(value, Some(prometheus_parse::Value::Counter(0.0)), "{name}");
    }
    for n in 0..25u8 {
        let send = || {
            let socket = UdpSocket::bind((Pair::SOURCE_V4, 0)).unwrap();
            socket.send_to(&[n], (Pair::SINK_V4, 9)).unwrap();
        };
        pair.source.run(send).unwrap();
    }
    let processed = |one: &serde_json::Value| -> u64 {
        let cpus = one["by_cpu"].as_array().unwrap();
        cpus.iter().map(|cpu| cpu["taken"].as_u64().unwrap()).sum()
    };
    let told = until(|| status(&pair), |one| processed(one) == 25);
    let (head, scrape) = scraped(&pair, "127.0.0.1:9477");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    let value = |sample: &prometheus_parse::Sample| match sample.value {
        prometheus_parse::Value::Counter(value) | prometheus_parse::Value::Gauge(value) => value,
        _ => panic!("{sample:?}"),
    };
    let of = |name: &str| -> Vec<_> {
        scrape.samples.iter().filter(|sample| sample.metric == name).collect()
    };
    let packets = of("rxsteer_packets_total");
    assert!(!packets.is_empty());
    for sample in &packets {
        let (class, reason) = (&sample.labels["class"], &sample.labels["reason"]);
        assert_eq!(told["classes"][class][reason].as_f64(), Some(value(sample)), "{sample:?}");
        assert_eq!([&sample.labels["device"], &sample.labels["policy"]], ["rx0", "rps"]);
    }
    assert!((packets.iter().map(|sample| value(sample)).sum::<f64>() - 25.0).abs() < 0.5);
    for sample in of("rxsteer_processed_total") {
        let number: u64 = sample.labels["cpu"].parse().unwrap();
        let of_cpu = |cpu: &&serde_json::Value| cpu["cpu"] == number;
        let told = told["by_cpu"].as_array().unwrap().iter().find(of_cpu).unwrap();
        assert_eq!(told["taken"].as_f64(), Some(value(sample)), "{sample:?}");
    }
    assert_eq!(told["process"]["metrics"], "127.0.0.1:9477");

    // Who does not ask keeps nobody from being answered, and steering goes on.
    let idle: Vec<TcpStream> = (0..4)
        .map(|_| pair.sink.run(|| TcpStream::connect("127.0.0.1:9477").unwrap()).unwrap())
        .collect();
    assert!(scraped(&pair, "127.0.0.1:9477").0.starts_with("HTTP/1.1 200 "));
    drop(idle);
    // An address that is taken is refused before anything is attached.
    let said = inside(&pair, "attach lo --mode skb --metrics 127.0.0.1:9477");
    assert_eq!(said.code, 1);
    assert!(said.err.contains("--metrics: cannot listen on 127.0.0.1:9477"), "{said:?}");
    steering.signal("TERM");
    assert_eq!(steering.end().code, 0);
}

#[test]
fn ports_that_carry_flows_are_in_the_file_and_what_came_of_answers_is_told() {
    let test = "ports_that_carry_flows_are_in_the_file_and_what_came_of_answers_is_told";
    let Some((_testbed, pair)) = pair(test, &PairSpec::default()) else { return };
    let said = inside(&pair, "attach rx0 --check --flow-ports 4433");
    let found = "answers from UDP ports 4433 are looked at on their way out";
    assert!(said.code == 0 && said.out.contains(found), "{said:?}");
    let file = scratch("flow-ports").join("rx0.toml");
    std::fs::write(&file, "flow-ports = [4433, '5000-5009']\n").unwrap();
    let line = format!("attach rx0 --metrics 127.0.0.1:9477 --config {}", file.display());
    let mut steering = Steering::new(&pair.sink, &line, |_| {});
    let bind = || UdpSocket::bind((Pair::SINK_V4, 4433)).unwrap();
    let server = pair.sink.run(bind).unwrap();
    let client = pair.source.run(|| UdpSocket::bind((Pair::SOURCE_V4, 0)).unwrap()).unwrap();
    client.connect((Pair::SINK_V4, 4433)).unwrap();
    let exchange = |count: usize| {
        for _ in 0..count {
            client.send(b"x").unwrap();
            let (_, peer) = server.recv_from(&mut [0; 8]).unwrap();
            server.send_to(b"y", peer).unwrap();
            client.recv(&mut [0; 8]).unwrap();
        }
    };
    // An answer is late if its thread is moved in the middle of sending it.
    pin_thread(allowed_cpus().unwrap().first().unwrap()).unwrap();
    exchange(10);
    let told = status(&pair);
    assert_eq!(told["flow_ports"], "4433,5000-5009");
    assert_eq!(told["process"]["settings"]["flow-ports"], "4433,5000-5009");
    let answers = serde_json::json!({
        "entered": 1, "full": 0, "known": 8, "late": 0, "strange": 1, "unread": 0
    });
    assert_eq!((&told["answers"], &told["flows"]["udp"]), (&answers, &1.into()));
    let text = inside(&pair, "status").out;
    let line = "  answers  10 from UDP ports 4433,5000-5009: 8 known, 1 entered, 1 strange\n";
    assert!(text.contains(line), "{text}");
    let (_, scrape) = scraped(&pair, "127.0.0.1:9477");
    let samples = scrape.samples.iter().filter(|one| one.metric == "rxsteer_answers_total");
    let mut results = 0;
    for sample in samples {
        let prometheus_parse::Value::Counter(value) = sample.value else { panic!("{sample:?}") };
        assert_eq!(answers[&sample.labels["result"]].as_f64(), Some(value), "{sample:?}");
        results += 1;
    }
    assert_eq!(results, 6);

    std::fs::write(&file, "flow-ports = 'none'\n").unwrap();
    let said = inside(&pair, "reload rx0");
    assert_eq!(said.code, 0, "{said:?}");
    exchange(5);
    let told = status(&pair);
    assert_eq!((&told["flow_ports"], &told["answers"]), (&"none".into(), &answers));
    std::fs::write(&file, "flow-ports = '4433,0'\n").unwrap();
    let said = inside(&pair, "reload rx0");
    assert!(said.code == 1 && said.err.contains("rx0.toml:1:14: flow-ports: part 2"), "{said:?}");
    steering.signal("TERM");
    assert_eq!(steering.end().code, 0);
}
