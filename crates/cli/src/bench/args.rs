//! The command line of `bench` as it was typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) const AFTER_HELP: &str = "\
Without an address, all happens in network namespaces that are made for it and removed again, and needs \
root. What a killed run left behind is removed by the next one. Results go to the standard output; \
messages, and a line each second, to the standard error.

Exit codes: 0 all went well; 1 an error, such as a missing privilege, or packets that no counter \
explains; 2 wrong usage.";

/// The verbs of `bench`.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchVerb {
    /// Send packets and count them at the other end
    #[command(after_help = AFTER_HELP)]
    Gen(Box<GenArgs>),
    /// Receive UDP datagrams and account for every packet that was sent
    #[command(after_help = AFTER_HELP)]
    Sink(Box<SinkArgs>),
    /// Ask and answer: transactions a second, and how long each takes
    #[command(after_help = AFTER_HELP)]
    Rr(Box<RrArgs>),
    /// Run the same traffic under several receive set-ups of the host in turn, and compare
    #[command(subcommand, after_help = AFTER_HELP)]
    Compare(CompareVerb),
    /// Measure what steps of the receive path cost on this host, for lab and replay; takes 12 seconds or more
    #[command(after_help = AFTER_HELP)]
    Calibrate(CalibrateArgs),
    /// Put back the settings and remove the namespaces that killed runs left
    #[command(after_help = AFTER_HELP)]
    Restore(RestoreArgs),
}

/// What is sent.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Traffic")]
pub struct TrafficArgs {
    /// Kind of packets: udp, tcp-syn, vxlan or fragments; all but udp in the testbed only
    /// [default: udp]
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// Flows, each with its source port; k is 1,000 [default: 64]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub flows: Option<String>,
    /// Which flow comes next: in-turn, uniform, heavy-tail (flow k as often as 1/k), or random (each
    /// packet a new source; in the testbed only) [default: in-turn]
    #[arg(long, value_name = "PATTERN")]
    pub pattern: Option<String>,
    /// Bytes of payload: 20, or a mixture such as 20x7,548x4,1472 [default: 20]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub size: Option<String>,
    /// Packets a second, such as 100k; k is 1,000 [default: as many as possible]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub rate: Option<String>,
    /// How to send: live (XDP frames by BPF test run) or packet (AF_PACKET), in the testbed only; mmsg,
    /// gso or send (UDP sockets) [default: the fastest that can]
    #[arg(long, value_name = "MEANS")]
    pub means: Option<String>,
    /// Packets with one system call [default: 64]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub send_batch: Option<String>,
    /// CPU of the sender [default: where the scheduler puts it]
    #[arg(long, value_name = "CPU", allow_negative_numbers = true)]
    pub source_cpu: Option<String>,
    /// Seed of all that is drawn [default: 1]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub seed: Option<String>,
    /// When to end
    #[command(flatten)]
    pub until: UntilArgs,
}

/// When to end.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Traffic")]
pub struct UntilArgs {
    /// End after so many packets or transactions; k is 1,000 [default: 100M]
    #[arg(short, long, value_name = "COUNT", allow_negative_numbers = true)]
    pub count: Option<String>,
    /// End after this time, in seconds [default: 5]
    #[arg(short, long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub duration: Option<String>,
}

/// Who allows load.
#[derive(Args, Clone, Debug, Default)]
pub struct PermitArgs {
    /// Say that sending load to this address is yours to allow; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub i_own_this_network: Vec<String>,
}

/// The link of the testbed.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Testbed")]
pub struct LinkArgs {
    /// IPv6 in the testbed
    #[arg(short = '6', long)]
    pub ipv6: bool,
    /// Queues of both ends of the link [default: 1]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub queues: Option<String>,
    /// Most bytes of an IP packet [default: 1500]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub mtu: Option<String>,
    /// Offloads of the sender's end: none, all, or of tx-checksum, gro, gso, tso, udp-gso with commas
    /// [default: none]
    #[arg(long, value_name = "OFFLOADS")]
    pub source_offloads: Option<String>,
    /// Offloads of the receiver's end; gro also makes it poll (NAPI), as a network card does
    /// [default: gro]
    #[arg(long, value_name = "OFFLOADS")]
    pub sink_offloads: Option<String>,
    /// CPUs to which RPS spreads at the receiver's end, as a list: 0-3,8 [default: no RPS]
    #[arg(long, value_name = "CPUS", allow_negative_numbers = true)]
    pub rps_cpus: Option<String>,
    /// Poll the receiver's end in a thread of its own (threaded NAPI); needs gro there
    #[arg(long)]
    pub threaded: bool,
}

/// How to print a result.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct FormArgs {
    /// JSON on one line, with a schema version
    #[arg(short, long)]
    pub json: bool,
    /// JSON with line breaks
    #[arg(short, long)]
    pub pretty: bool,
}

/// What `bench gen` is told.
#[derive(Args, Clone, Debug, Default)]
pub struct GenArgs {
    /// Send to this address and port instead of a testbed; refused unless the address is named by
    /// --i-own-this-network
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub to: Option<String>,
    /// Who allows load
    #[command(flatten)]
    pub permit: PermitArgs,
    /// What is sent
    #[command(flatten)]
    pub traffic: TrafficArgs,
    /// A capture that is sent instead
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// The link of the testbed
    #[command(flatten)]
    pub link: LinkArgs,
    /// How to print the result
    #[command(flatten)]
    pub form: FormArgs,
}

/// A capture to send.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Capture")]
pub struct CaptureArgs {
    /// Send the packets of this capture (pcap or pcapng, also in gzip or zstd) with their timing, in the
    /// testbed; several are merged by time
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub capture: Vec<PathBuf>,
    /// So many times as fast as it was captured, such as 2 or 0.5; max for as fast as possible; --rate
    /// sends at a steady rate instead [default: 1]
    #[arg(long, value_name = "FACTOR", requires = "capture", allow_negative_numbers = true)]
    pub speed: Option<String>,
    /// Send it so many times; 0 for until --count or --duration ends it [default: 1]
    #[arg(long, value_name = "COUNT", requires = "capture", allow_negative_numbers = true)]
    pub r#loop: Option<String>,
    /// Fill packets that are not all in the capture with zeroes, instead of leaving them out
    #[arg(long, requires = "capture")]
    pub pad: bool,
}

/// What `bench sink` is told.
#[derive(Args, Clone, Debug, Default)]
pub struct SinkArgs {
    /// Receive at this address and port of the host what others send, instead of a testbed; needs no
    /// root
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// How to read
    #[command(flatten)]
    pub read: ReadArgs,
    /// What is sent, in the testbed
    #[command(flatten)]
    pub traffic: TrafficArgs,
    /// The link of the testbed
    #[command(flatten)]
    pub link: LinkArgs,
    /// How to print the result
    #[command(flatten)]
    pub form: FormArgs,
}

/// How to read.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Reading")]
pub struct ReadArgs {
    /// System call: recv, recvmsg, recvmmsg, or io-uring (one request for each socket that goes on;
    /// takes Linux 6.0) [default: recvmmsg]
    #[arg(long, value_name = "CALL")]
    pub call: Option<String>,
    /// Datagrams with one recvmmsg; buffers of io-uring, rounded up to a power of two [default: 64]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub batch: Option<String>,
    /// Take datagrams that the kernel merged (UDP_GRO)
    #[arg(long)]
    pub gro: bool,
    /// Reading threads [default: 1]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub threads: Option<String>,
    /// A socket for each thread (SO_REUSEPORT) instead of one for all
    #[arg(long)]
    pub reuseport: bool,
    /// Connected sockets, for the first so many flows; in the testbed only [default: none]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub connect: Option<String>,
    /// Work for so many nanoseconds on each datagram that was read, as an application does, up to 10M;
    /// k is 1,000 [default: 0]
    #[arg(long, value_name = "NANOSECONDS", allow_negative_numbers = true)]
    pub work: Option<String>,
    /// CPUs of the threads in turn, as a list: 0-3,8 [default: where the scheduler puts them]
    #[arg(long, value_name = "CPUS", allow_negative_numbers = true)]
    pub cpus: Option<String>,
    /// Poll the device for so many microseconds while there is nothing to read (SO_BUSY_POLL)
    /// [default: 0]
    #[arg(long, value_name = "MICROSECONDS", allow_negative_numbers = true)]
    pub busy_poll: Option<String>,
    /// Receive buffer of each socket in bytes [default: the host's]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub receive_buffer: Option<String>,
}

/// What `bench rr` is told.
#[derive(Args, Clone, Debug, Default)]
pub struct RrArgs {
    /// Ask a server elsewhere (bench rr --serve); refused unless its address is named by
    /// --i-own-this-network
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "serve")]
    pub to: Option<String>,
    /// Answer at this address and port, those alone whose addresses are named by --i-own-this-network
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub serve: Option<String>,
    /// Who allows load
    #[command(flatten)]
    pub permit: PermitArgs,
    /// What is asked
    #[command(flatten)]
    pub asking: AskingArgs,
    /// Where it runs
    #[command(flatten)]
    pub threads: ThreadArgs,
    /// The link of the testbed
    #[command(flatten)]
    pub link: LinkArgs,
    /// How to print the result
    #[command(flatten)]
    pub form: FormArgs,
}

/// What `bench rr` asks.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Traffic")]
pub struct AskingArgs {
    /// udp or tcp [default: udp]
    #[arg(long, value_name = "PROTOCOL")]
    pub protocol: Option<String>,
    /// UDP sockets that are not connected
    #[arg(long)]
    pub unconnected: bool,
    /// Flows, each with its socket; k is 1,000 [default: 1]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub flows: Option<String>,
    /// Bytes of a request [default: 1, or 8 in an open loop over UDP]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub request: Option<String>,
    /// Bytes of a response [default: 1, or 8 in an open loop over UDP]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub response: Option<String>,
    /// Ask so many requests a second whatever happens, and count each from when it was due; k is 1,000
    /// [default: each flow asks again when it has its answer]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub open_loop: Option<String>,
    /// Give a request up after this time, in seconds [default: 1]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub timeout: Option<String>,
    /// When to end
    #[command(flatten)]
    pub until: UntilArgs,
}

/// The threads of `bench rr`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Threads")]
pub struct ThreadArgs {
    /// Asking threads [default: 1]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub client_threads: Option<String>,
    /// Answering threads [default: 1]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub server_threads: Option<String>,
    /// CPUs of the asking threads in turn, as a list [default: where the scheduler puts them]
    #[arg(long, value_name = "CPUS", allow_negative_numbers = true)]
    pub client_cpus: Option<String>,
    /// CPUs of the answering threads in turn, as a list [default: where the scheduler puts them]
    #[arg(long, value_name = "CPUS", allow_negative_numbers = true)]
    pub server_cpus: Option<String>,
}

/// The traffic of a comparison.
#[derive(Clone, Debug, Subcommand)]
pub enum CompareVerb {
    /// Datagrams to a reader, as bench sink does; a run takes 1 second unless -d says otherwise
    #[command(after_help = AFTER_HELP)]
    Sink {
        /// How to compare
        #[command(flatten)]
        compare: CompareArgs,
        /// Send so many times the highest rate that the host delivers when nothing is set up, which is
        /// searched for first, or --rate if that is given; several with commas: 1,2,4
        #[arg(long, value_name = "TIMES", value_delimiter = ',', help_heading = "Comparison")]
        #[arg(allow_negative_numbers = true)]
        overload: Vec<String>,
        /// The traffic
        #[command(flatten)]
        sink: Box<SinkArgs>,
    },
    /// Requests and responses, as bench rr does; a run takes 1 second unless -d says otherwise
    #[command(after_help = AFTER_HELP)]
    Rr {
        /// How to compare
        #[command(flatten)]
        compare: CompareArgs,
        /// The traffic
        #[command(flatten)]
        rr: Box<RrArgs>,
    },
    /// Requests and responses beside a flood of UDP datagrams from random sources; a run takes 1 second
    /// unless -d says otherwise
    #[command(after_help = AFTER_HELP)]
    Mixed {
        /// How to compare
        #[command(flatten)]
        compare: CompareArgs,
        /// The flood
        #[command(flatten)]
        flood: FloodArgs,
        /// The requests
        #[command(flatten)]
        rr: Box<RrArgs>,
    },
}

/// The flood of `bench compare mixed`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Flood")]
pub struct FloodArgs {
    /// Datagrams a second, or max: as many as possible; k is 1,000 [default: 1M]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub flood: Option<String>,
    /// Bytes of payload of each [default: 20]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub flood_size: Option<String>,
    /// CPU of the sender of the flood [default: where the scheduler puts it]
    #[arg(long, value_name = "CPU", allow_negative_numbers = true)]
    pub flood_cpu: Option<String>,
    /// CPU of the thread that reads the flood [default: where the scheduler puts it]
    #[arg(long, value_name = "CPU", allow_negative_numbers = true)]
    pub flood_reader_cpu: Option<String>,
}

impl CompareVerb {
    /// Returns how to print the result.
    pub(super) fn form(&self) -> FormArgs {
        match self {
            Self::Sink { sink, .. } => sink.form,
            Self::Rr { rr, .. } | Self::Mixed { rr, .. } => rr.form,
        }
    }
}

/// How to compare.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Comparison")]
pub struct CompareArgs {
    /// Set-ups, with commas: none, rps, rfs, threaded (NAPI), flow-limit, rxsteer (attached for each
    /// run), or all; the first is what the others are measured against. RPS, RFS and rxsteer spread over
    /// --rps-cpus, or all CPUs [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub setups: Vec<String>,
    /// How often each is run [default: 5]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub repeats: Option<String>,
}

/// What `bench calibrate` is told.
#[derive(Args, Clone, Debug, Default)]
pub struct CalibrateArgs {
    /// Write the costs as a host file, which lab and replay take with --host
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// How to print the result
    #[command(flatten)]
    pub form: FormArgs,
}

/// What `bench restore` is told.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct RestoreArgs {
    /// How to print the result
    #[command(flatten)]
    pub form: FormArgs,
}
