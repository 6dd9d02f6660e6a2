//! The kernel's truth: which packets are in one flow, and whether its hash counts as layer 4.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use anyhow::{Context, Result, bail};
use rxsteer_core::FlowKey;
use rxsteer_core::dissect::{Dissected, Options, Start, dissect};

use super::Mismatch;
use super::table::Row;

/// The two maps of a bijection between the kernel's numbers and our keys, each with the first
/// packet that it was seen in.
#[derive(Default)]
pub(crate) struct Partition {
    by_number: HashMap<u64, (FlowKey, String)>,
    by_key: HashMap<FlowKey, (u64, String)>,
}

/// Compares one packet.
pub(crate) fn check(
    row: &Row<'_>,
    data: &[u8],
    partition: &mut Partition,
    mismatches: &mut Vec<Mismatch>,
) -> Result<()> {
    let Some(start) = handed(row.get("handed"))? else {
        // Not given to the kernel: nothing to compare.
        return Ok(());
    };
    let mut out = Dissected::EMPTY;
    // The reason of a stop does not matter here: Linux hashes what was read before it.
    let _ = dissect(data, start, &Options::KERNEL, &mut out);
    let number: i64 = row
        .get("kflow")
        .parse()
        .with_context(|| format!("kflow is {:?}, not a number", row.get("kflow")))?;
    let kind = match (out.has_key(), out.is_random()) {
        (false, _) => "0 (no hash)",
        (true, true) => "-1 (random)",
        (true, false) => "a flow",
    };
    match number {
        // Neither way of asking took the frame: no answer of the kernel, unless the frame is too
        // short to be one.
        0 if row.get("kvia") == "none" && data.len() >= 14 => {}
        0 if out.has_key() => mismatches.push(Mismatch::new("kflow", kind, "0")),
        0 => {}
        -1 if !out.is_random() => mismatches.push(Mismatch::new("kflow", kind, "-1")),
        -1 => check_l4(row, &out, mismatches),
        1.. if !out.has_key() || out.is_random() => {
            mismatches.push(Mismatch::new("kflow", kind, row.get("kflow")));
        }
        1.. => {
            check_l4(row, &out, mismatches);
            let here = format!("{} packet {}", row.capture(), row.number());
            partition.check(number.unsigned_abs(), out.key.canonical(), here, mismatches);
        }
        _ => bail!("kflow is {number}"),
    }
    Ok(())
}

fn check_l4(row: &Row<'_>, out: &Dissected, mismatches: &mut Vec<Mismatch>) {
    let ours = if out.key.is_l4() { "1" } else { "0" };
    if row.get("kl4") != ours {
        mismatches.push(Mismatch::new("kl4", ours, row.get("kl4")));
    }
}

impl Partition {
    fn check(&mut self, number: u64, key: FlowKey, here: String, mismatches: &mut Vec<Mismatch>) {
        match self.by_number.entry(number) {
            Entry::Vacant(entry) => {
                entry.insert((key, here.clone()));
            }
            Entry::Occupied(entry) if entry.get().0 != key => {
                let (other, place) = entry.get();
                let ours = format!("another flow than {place} ({key:?} and {other:?})");
                mismatches.push(Mismatch::new("kflow", ours, &format!("both {number}")));
            }
            Entry::Occupied(_) => {}
        }
        match self.by_key.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert((number, here));
            }
            Entry::Occupied(entry) if entry.get().0 != number => {
                let (other, place) = entry.get();
                let ours = format!("the flow of {place} ({key:?})");
                let theirs = format!("{number}, and {other} there");
                mismatches.push(Mismatch::new("kflow", ours, &theirs));
            }
            Entry::Occupied(_) => {}
        }
    }
}

/// Returns how the bytes were given to the kernel, `None` if they were not.
fn handed(text: &str) -> Result<Option<Start>> {
    match text {
        "-" => return Ok(None),
        "asis" => return Ok(Some(Start::Ethernet)),
        _ => {}
    }
    let parsed = text.strip_prefix("eth:").and_then(|rest| rest.split_once('+')).and_then(
        |(ethertype, offset)| {
            let ethertype = u16::from_str_radix(ethertype, 16).ok()?;
            Some(Start::Network { ethertype, offset: offset.parse().ok()? })
        },
    );
    parsed.map(Some).with_context(|| format!("handed is {text:?}, not asis, eth:HHHH+N or -"))
}
