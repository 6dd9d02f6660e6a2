//! The verb `flows`: one line a packet.

use std::io::{self, Write};

use rxsteer_lab::capture::{CaptureOptions, Captures};
use rxsteer_lab::listing::{Line, Lister, MOST_FLOWS};
use rxsteer_lab::replay::hasher;

use crate::Exit;
use crate::args::Format;
use crate::args::checked::Flows;
use crate::render::csv::io_error;
use crate::terminal::Terminal;

/// Version of the JSON form of a line.
pub const SCHEMA_VERSION: u32 = 1;

/// Lists the packets.
///
/// # Errors
/// A capture that cannot be read, or the output.
pub fn run(asked: &Flows, terminal: &Terminal) -> anyhow::Result<Exit> {
    let mut captures = Captures::open(&asked.files, &CaptureOptions::default())?;
    let mut lister = Lister::new(asked.hash.options, hasher(asked.hash.seed));
    if asked.verify {
        lister = lister.verify();
    }
    let mut progress = terminal.progress(captures.total_bytes());
    let mut out: Box<dyn Write> = match asked.form {
        Format::Text => Box::new(terminal.results()),
        Format::Json | Format::Csv => Box::new(terminal.data()),
    };
    let mut writer = Writer::new(asked, &mut out)?;
    let mut packets = 0u64;
    let fault = loop {
        let line = match captures.next_packet() {
            Ok(Some(packet)) => lister.line(&packet),
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        writer.line(&line)?;
        packets += 1;
        if packets.is_multiple_of(4096) {
            progress.update(captures.bytes_read(), packets);
        }
    };
    drop(progress);
    writer.finish()?;
    out.flush()?;
    if lister.ran_out_of_numbers() {
        terminal.note(format_args!("more than {MOST_FLOWS} flows; the others have no number"));
    }
    let notes = captures.notes();
    for note in &notes {
        terminal.note(note);
    }
    match fault {
        Some(error) => Err(error.into()),
        None if asked.strict && notes.iter().any(|note| note.is_damage()) => Ok(Exit::Usage),
        None => Ok(Exit::Fine),
    }
}

/// Writes lines in the form asked for.
enum Writer<'a> {
    Text(&'a mut dyn Write),
    Json { out: &'a mut dyn Write, pretty: bool },
    Csv(Box<csv::Writer<&'a mut dyn Write>>),
}

const COLUMNS: [&str; 23] = [
    "number",
    "time_ns",
    "file",
    "orig_len",
    "cap_len",
    "layers",
    "src",
    "dst",
    "src_port",
    "dst_port",
    "protocol",
    "ethertype",
    "vlan",
    "flow_label",
    "key_id",
    "class",
    "hash",
    "flow",
    "fragment",
    "tunnel",
    "control",
    "checksum",
    "reason",
];

impl<'a> Writer<'a> {
    fn new(asked: &Flows, out: &'a mut dyn Write) -> io::Result<Self> {
        match asked.form {
            Format::Text => {
                writeln!(
                    out,
                    "{:>7} {:>13} {:>6} {:>8} {:<7} {:<24} flow key; remarks",
                    "packet", "time, s", "flow", "hash", "class", "layers"
                )?;
                Ok(Self::Text(out))
            }
            Format::Json => Ok(Self::Json { out, pretty: asked.pretty }),
            Format::Csv => {
                let mut writer = csv::Writer::from_writer(out);
                writer.write_record(COLUMNS).map_err(io_error)?;
                Ok(Self::Csv(Box::new(writer)))
            }
        }
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        match self {
            Self::Text(out) => text(out, line),
            Self::Json { out, pretty } => {
                #[derive(serde::Serialize)]
                struct Versioned<'a> {
                    schema_version: u32,
                    #[serde(flatten)]
                    line: &'a Line,
                }
                let line = Versioned { schema_version: SCHEMA_VERSION, line };
                if *pretty {
                    serde_json::to_writer_pretty(&mut **out, &line)?;
                } else {
                    serde_json::to_writer(&mut **out, &line)?;
                }
                writeln!(out)
            }
            Self::Csv(writer) => writer.write_record(record(line)).map_err(io_error),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Text(_) | Self::Json { .. } => Ok(()),
            Self::Csv(mut writer) => writer.flush(),
        }
    }
}

fn text(out: &mut dyn Write, line: &Line) -> io::Result<()> {
    let sign = if line.time_ns < 0 { "-" } else { "" };
    let ns = line.time_ns.unsigned_abs();
    let time = format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let flow = line.flow.map_or_else(|| "-".into(), |flow| flow.to_string());
    let hash = line.hash.map_or_else(|| "-".into(), |hash| format!("{hash:08x}"));
    let layers = line.layers.join("/");
    write!(
        out,
        "{:>7} {time:>13} {flow:>6} {hash:>8} {:<7} {layers:<24}",
        line.number, line.class
    )?;
    if let Some(key) = &line.key {
        write!(out, " {key}")?;
    }
    let remarks = [
        line.fragment.map(|fragment| format!("{fragment} fragment")),
        line.control.map(ToOwned::to_owned),
        line.checksum.as_ref().map(|checksum| format!("checksum {checksum}")),
        line.reason.clone(),
    ];
    for remark in remarks.into_iter().flatten() {
        write!(out, "; {remark}")?;
    }
    writeln!(out)
}

fn record(line: &Line) -> [String; 23] {
    fn optional(value: Option<impl ToString>) -> String {
        value.map_or_else(String::new, |value| value.to_string())
    }
    let key = line.key.as_ref();
    [
        line.number.to_string(),
        line.time_ns.to_string(),
        line.file.to_string(),
        line.orig_len.to_string(),
        line.cap_len.to_string(),
        line.layers.join("/"),
        optional(key.and_then(|key| key.src)),
        optional(key.and_then(|key| key.dst)),
        optional(key.map(|key| key.src_port)),
        optional(key.map(|key| key.dst_port)),
        optional(key.map(|key| key.protocol)),
        optional(key.map(|key| key.ethertype)),
        optional(key.and_then(|key| key.vlan)),
        optional(key.map(|key| key.flow_label)),
        optional(key.map(|key| key.key_id)),
        line.class.to_owned(),
        optional(line.hash.map(|hash| format!("{hash:08x}"))),
        optional(line.flow),
        optional(line.fragment),
        optional(line.tunnel),
        optional(line.control),
        optional(line.checksum.as_ref()),
        optional(line.reason.as_ref()),
    ]
}
