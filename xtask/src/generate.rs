//! Captures made by the generator: the sample, and large ones for benches.

use std::fs::File;
use std::io::BufWriter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use rxsteer_lab::generate::{
    self, Crowd, CrowdKind, EPOCH_NS, Flow, Payload, Rng, Scenario, TcpConversation,
    UdpConversation,
};

/// Level of the packed sample: slow to make, small, as fast to read as any.
const ZSTD_LEVEL: i32 = 19;

/// The sample must stay below this.
const MAX_SAMPLE_BYTES: usize = 400_000;

/// What `sample` is told.
#[derive(clap::Args)]
pub(crate) struct SampleArgs {
    /// Where it goes [default: crates/cli/sample/sample.pcapng.zst of this repository].
    #[arg(long)]
    out: Option<PathBuf>,
}

/// What `generate` is told.
#[derive(clap::Args)]
pub(crate) struct GenerateArgs {
    /// Number of packets; k, M stand for thousand and million.
    #[arg(long, default_value = "5M", value_parser = count)]
    packets: u64,
    /// Conversations that run at the same time.
    #[arg(long, default_value = "4k", value_parser = count)]
    flows: u64,
    /// Seed; the same seed gives the same file.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bytes captured of each packet.
    #[arg(long, default_value_t = 64)]
    snap_len: u32,
    /// Where they go: pcap if the name ends so, otherwise pcapng with the direction of each packet.
    #[arg(long)]
    out: PathBuf,
}

fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'M']) {
        Some(digits) if text.ends_with('k') => (digits, 1000),
        Some(digits) => (digits, 1_000_000),
        None => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|error| format!("{error}"))?;
    number.checked_mul(factor).ok_or_else(|| "too large".into())
}

/// Writes the sample.
pub(crate) fn sample(args: &SampleArgs) -> anyhow::Result<ExitCode> {
    let mut plain = Vec::new();
    let mut frames = generate::sample().frames();
    let packets = generate::write_pcapng(&mut plain, &mut frames, u64::MAX)?;
    let packed = zstd::encode_all(plain.as_slice(), ZSTD_LEVEL)?;
    if packed.len() > MAX_SAMPLE_BYTES {
        bail!("the sample has {} bytes, at most {MAX_SAMPLE_BYTES} are allowed", packed.len());
    }
    let beside_cli = || crate::repository().join("crates/cli/sample/sample.pcapng.zst");
    let out = args.out.clone().unwrap_or_else(beside_cli);
    std::fs::write(&out, &packed).with_context(|| format!("writing {}", out.display()))?;
    println!("{packets} packets, {} bytes, {} packed", plain.len(), packed.len());
    Ok(ExitCode::SUCCESS)
}

/// Writes a large capture.
pub(crate) fn generate(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    let file =
        File::create(&args.out).with_context(|| format!("writing {}", args.out.display()))?;
    let mut frames = mix(args).frames();
    let out = BufWriter::with_capacity(1 << 20, file);
    let pcap = args.out.extension().is_some_and(|extension| extension == "pcap");
    let write = if pcap { generate::write_pcap } else { generate::write_pcapng };
    let packets = write(out, &mut frames, args.packets)?;
    println!("{packets} packets in {}", args.out.display());
    Ok(ExitCode::SUCCESS)
}

/// About two thirds of the packets are of long conversations (TCP, connected UDP, QUIC), one third
/// of clients that come once (requests like DNS, a SYN flood); a million packets a second.
fn mix(args: &GenerateArgs) -> Scenario {
    let server = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10)), port);
    let mut rng = Rng::new(args.seed, u64::MAX);
    let mut scenario = Scenario::new(args.seed).snap_len(args.snap_len as usize);
    // Packets of one conversation a gap, on average of the three kinds: (4 + 2 + 3) / 3.
    let gap_ns = (args.flows * 3 * 1500).max(100_000);
    for index in 0..args.flows {
        let client = generate::uniform_client(index);
        let start_ns = EPOCH_NS + rng.below(gap_ns);
        let udp = |port| UdpConversation {
            requests: u32::MAX,
            gap_ns,
            ..UdpConversation::new(Flow::new(client, server(port)), start_ns)
        };
        match index % 3 {
            0 => scenario.add(TcpConversation {
                requests: u32::MAX,
                response_bytes: 2000,
                gap_ns,
                ..TcpConversation::new(Flow::new(client, server(443)), start_ns)
            }),
            1 => scenario.add(udp(5004)),
            _ => scenario.add(UdpConversation { responses: 2, payload: Payload::Quic, ..udp(443) }),
        };
    }
    let crowd = |port, kind, gap_ns| Crowd {
        requests: u64::MAX,
        gap_ns,
        ..Crowd::new(server(port), kind, EPOCH_NS)
    };
    scenario.add(crowd(53, CrowdKind::Dns, 8_000));
    scenario.add(crowd(80, CrowdKind::SynFlood, 40_000));
    scenario
}
