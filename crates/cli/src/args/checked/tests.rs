use clap::Parser as _;

use super::*;
use crate::args::{Cli, Verb};

fn replay(line: &str) -> Result<Replay, UsageError> {
    let words = ["rxsteer", "replay"].into_iter().chain(line.split_whitespace());
    match Cli::try_parse_from(words).unwrap().verb {
        Verb::Replay(args) => Replay::try_from(&*args),
        other => panic!("{other:?}"),
    }
}

fn refusal(line: &str) -> String {
    replay(line).unwrap_err().to_string()
}

#[test]
fn nothing_means_the_sample_all_policies_and_linux_as_it_is() {
    let replay = replay("").unwrap();
    assert_eq!(replay.inputs, Inputs::Sample);
    assert_eq!(replay.policies, PolicyKind::ALL);
    assert_eq!(replay.kernel, KernelVersion::NEWEST);
    assert_eq!(replay.host, HostChoice::Default);
    assert_eq!(replay.hash, Hashing { options: Options::KERNEL, seed: 1 });
    assert_eq!((replay.form, replay.sweep.len(), replay.table_entries), (Format::Text, 0, None));
}

#[test]
fn policies_keep_their_order_and_come_once() {
    let policies = |line| replay(line).unwrap().policies;
    assert_eq!(policies("-p rfs,rps -p rfs"), [PolicyKind::Rfs, PolicyKind::Rps]);
    assert_eq!(policies("--policy all"), PolicyKind::ALL);
    let message = refusal("-p rps,rfs2");
    assert!(message.starts_with("--policy: `rfs2`"), "{message}");
    assert!(PolicyKind::ALL.iter().all(|kind| message.contains(kind.name())), "{message}");
}

#[test]
fn cpus_are_a_number_a_list_a_mask_or_a_word() {
    let host = |line| replay(line).unwrap().host;
    let simple = |cpus, queues| HostChoice::Simple { cpus: Box::new(cpus), queues };
    let first = CpuSet::first_n;
    let set = CpuSet::from_list("0-3,8").unwrap();
    assert_eq!(host("--cpus 16"), simple(first(16), None));
    assert_eq!(host("--cpus 0-3,8 --queues 4"), simple(set, Some(4)));
    assert_eq!(host("--cpu-mask 10f"), simple(set, None));
    assert_eq!(host("--queues 2"), simple(first(8), Some(2)));
    assert_eq!(host("--host h.toml"), HostChoice::File("h.toml".into()));
    let words = replay("--cpus 4 --cpus none").unwrap();
    assert_eq!((words.host, words.rps_cpus), (simple(first(4), None), Some(Mask::None)));
    assert_eq!(replay("--rps-cpus 1-3 --cpus all").unwrap().rps_cpus, Some("1-3".parse().unwrap()));
    for (line, flag) in [
        ("--cpus 3-1", "--cpus"),
        ("--cpus 0", "--cpus"),
        ("--cpus 5000", "--cpus"),
        ("--cpus some", "--cpus"),
        ("--cpu-mask xyz", "--cpu-mask"),
        ("--cpu-mask 0", "--cpu-mask"),
        ("--queues 0", "--queues"),
        ("--queues 2000", "--queues"),
        ("--rps-cpus most", "--rps-cpus"),
    ] {
        assert!(refusal(line).starts_with(&format!("{flag}: ")), "{line}: {}", refusal(line));
    }
}

#[test]
fn sizes_are_rounded_up_as_the_kernel_does_and_refused_above_its_ceiling() {
    assert_eq!(replay("--table-entries 3000").unwrap().table_entries, Some(4096));
    assert_eq!(replay("--table-entries 0").unwrap().table_entries, Some(0));
    assert_eq!(replay("--flow-cnt 2k").unwrap().flow_cnt, Some(2048));
    assert!(refusal("--table-entries 8G").contains("rps_sock_flow_entries"));
    assert!(refusal("--flow-cnt many").contains("64k"));
}

#[test]
fn a_sweep_doubles_from_one_size_to_another_or_takes_a_list() {
    let sweep = |line| replay(line).unwrap().sweep;
    assert_eq!(sweep("--sweep table-entries=1k..8k"), [1024, 2048, 4096, 8192]);
    assert_eq!(sweep("--sweep table-entries=1000..1024"), [1024]);
    assert_eq!(sweep("--sweep table-entries=64k,1k,64k"), [1024, 65_536]);
    for bad in ["table-entries", "rings=1..2", "table-entries=8k..1k", "table-entries=0..4"] {
        let message = refusal(&format!("--sweep {bad}"));
        assert!(message.contains("allowed are table-entries=1k..1M"), "{message}");
    }
}

#[test]
fn local_addresses_may_be_prefixes() {
    let local = |line| match replay(line).unwrap().local {
        LocalRule::Prefixes(prefixes) => prefixes.iter().map(ToString::to_string).collect(),
        other => vec![format!("{other:?}")],
    };
    assert_eq!(local("--local 192.0.2.1,2001:db8::/32"), ["192.0.2.1", "2001:db8::/32"]);
    assert_eq!(local("--local all"), ["All"]);
    assert_eq!(local(""), ["Infer"]);
    for bad in ["192.0.2.1/33", "192.0.2", "host", "::/129", "1.2.3.4/", "all,192.0.2.1"] {
        assert!(refusal(&format!("--local {bad}")).contains("192.0.2.0/24"), "{bad}");
    }
}

#[test]
fn modes_versions_seeds_and_workers_are_checked() {
    let good = replay("--mode inner --flow-label ignore --seed 0xff --kernel 4.1 --workers 8");
    let good = good.unwrap();
    let options = Options { ignore_flow_label: true, ..Options::INNER };
    assert_eq!(good.hash, Hashing { options, seed: 255 });
    assert_eq!((good.kernel, good.workers), (KernelVersion(4, 1), 8));
    assert!(refusal("--mode outer").contains("kernel, inner"));
    assert!(refusal("--flow-label maybe").contains("use, ignore"));
    let good = replay("--vlan ignore --outer --wireguard-index --mode inner").unwrap().hash.options;
    assert!(good.outer_only && good.wireguard_index && good.vlan == VlanHash::Ignore);
    assert!(refusal("--wireguard-index").contains("--mode inner"));
    assert!(refusal("--vlan id").contains("tag, tag-unless-priority, ignore"));
    assert!(refusal("--seed x").contains("2^64"));
    assert!(refusal("--kernel 1.0").contains("2.6.35"));
    assert!(refusal("--workers 0").contains("1 to 4096"));
    let ports = replay("--flow-ports 443,5000-5009").unwrap().flow_ports;
    assert_eq!(ports.to_string(), "443,5000-5009");
    assert!(refusal("--flow-ports quic").contains("part 1 is no port"));
}

#[test]
fn files_come_by_flag_and_by_place_and_stdin_once() {
    let files = replay("-r a.pcap b.pcap").unwrap().inputs;
    assert_eq!(files, Inputs::Files(vec!["a.pcap".into(), "b.pcap".into()]));
    assert!(refusal("- -").contains("only once"));
    let args = FlowsArgs::default();
    assert!(Flows::try_from(&args).unwrap_err().to_string().contains("name a capture"));
}

#[test]
fn the_three_ways_to_name_a_form_exclude_each_other() {
    assert_eq!(replay("-j").unwrap().form, Format::Json);
    assert_eq!(replay("--pretty").unwrap().form, Format::Json);
    assert_eq!(replay("--csv").unwrap().form, Format::Csv);
    assert_eq!(replay("--format csv").unwrap().form, Format::Csv);
    for line in ["-j --csv", "-j --format text", "--csv --format json", "--cpus 2 --host h.toml"] {
        let words = ["rxsteer", "replay"].into_iter().chain(line.split(' '));
        assert!(Cli::try_parse_from(words).is_err(), "{line}");
    }
}

#[test]
fn the_command_is_consistent() {
    use clap::CommandFactory as _;
    Cli::command().debug_assert();
}
