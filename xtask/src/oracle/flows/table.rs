//! The table `flows.tsv`: one line a packet, tab-separated, the first line names the columns.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fs, ops};

use anyhow::{Context, Result, bail, ensure};

/// Columns that the table must have, in any order; others are ignored.
const COLUMNS: [&str; 30] = [
    "capture", "pkt", "linktype", "caplen", "wirelen", "handed", "kflow", "kl4", "kvia", "layers",
    "vlan", "vlan_in", "tunnel", "o_src", "o_dst", "o_proto", "o_sport", "o_dport", "o_frag",
    "o_mf", "o_label", "i_src", "i_dst", "i_proto", "i_sport", "i_dport", "i_frag", "i_mf",
    "i_label", "icmp",
];

/// The table in memory.
pub(crate) struct Table {
    path: PathBuf,
    columns: Vec<String>,
    /// Fields of all lines, one after the other.
    fields: Vec<String>,
    /// Lines of each capture.
    captures: Vec<ops::Range<usize>>,
}

/// One line.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    columns: &'a [String],
    fields: &'a [String],
    line: usize,
}

impl Table {
    /// Reads a table and checks its shape.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let text =
            String::from_utf8(text).with_context(|| format!("{}: not in UTF-8", path.display()))?;
        let mut lines = text.lines().map(|line| line.strip_suffix('\r').unwrap_or(line));
        let first = lines.next().with_context(|| format!("{}: empty", path.display()))?;
        let columns: Vec<String> = first.split('\t').map(Into::into).collect();
        for needed in COLUMNS {
            let found = columns.iter().filter(|column| *column == needed).count();
            ensure!(found == 1, "{}:1: column {needed} stands there {found} times", path.display());
        }
        let mut table = Self { path: path.into(), columns, fields: vec![], captures: vec![] };
        for (index, line) in lines.enumerate() {
            table.push(line).with_context(|| format!("{}:{}", path.display(), index + 2))?;
        }
        ensure!(!table.captures.is_empty(), "{}: no packets", path.display());
        table.check_order()?;
        Ok(table)
    }

    fn push(&mut self, line: &str) -> Result<()> {
        let before = self.fields.len();
        self.fields.extend(line.split('\t').map(String::from));
        let (found, wanted) = (self.fields.len() - before, self.columns.len());
        ensure!(found == wanted, "{found} fields in a table of {wanted} columns");
        let index = before / wanted;
        let row = self.row(index);
        let number: usize = row
            .get("pkt")
            .parse()
            .ok()
            .filter(|number| *number > 0)
            .with_context(|| format!("pkt is {:?}, not a number from 1 on", row.get("pkt")))?;
        match self.captures.last_mut() {
            Some(last) if number > 1 => last.end = index + 1,
            _ => self.captures.push(index..index + 1),
        }
        let last = self.captures.last().cloned().expect("one was pushed if none was there");
        let expected = index - last.start + 1;
        ensure!(number == expected, "pkt is {number} where {expected} comes next");
        ensure!(
            self.row(last.start).capture() == self.row(index).capture(),
            "capture changes to {:?} but pkt is not 1",
            self.row(index).capture()
        );
        Ok(())
    }

    /// A capture that comes twice would have its packets counted twice.
    fn check_order(&self) -> Result<()> {
        let mut seen = HashSet::new();
        for range in &self.captures {
            let row = self.row(range.start);
            if !seen.insert(row.capture()) {
                bail!("{}: {} comes a second time", self.place(&row), row.capture());
            }
            let path = Path::new(row.capture());
            let inside =
                path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
            ensure!(inside, "{}: {:?} leaves the folder", self.place(&row), row.capture());
        }
        Ok(())
    }

    fn row(&self, index: usize) -> Row<'_> {
        let width = self.columns.len();
        let fields = &self.fields[index * width..(index + 1) * width];
        Row { columns: &self.columns, fields, line: index + 2 }
    }

    /// Returns the lines, capture by capture.
    pub(crate) fn captures(&self) -> impl Iterator<Item = Vec<Row<'_>>> {
        self.captures.iter().map(|range| range.clone().map(|index| self.row(index)).collect())
    }

    /// Returns file and line of a row, for messages.
    pub(crate) fn place(&self, row: &Row<'_>) -> String {
        format!("{}:{}", self.path.display(), row.line)
    }
}

impl<'a> Row<'a> {
    /// Returns a field; the columns in [`COLUMNS`] are there.
    pub(crate) fn get(&self, column: &str) -> &'a str {
        let place = self.columns.iter().position(|name| name == column);
        place.map_or("-", |place| &self.fields[place])
    }

    /// Returns the capture's path below the folder.
    pub(crate) fn capture(&self) -> &'a str {
        self.get("capture")
    }

    /// Returns the packet's number, from 1.
    pub(crate) fn number(&self) -> &'a str {
        self.get("pkt")
    }
}
