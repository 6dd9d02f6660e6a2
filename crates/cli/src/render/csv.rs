//! One line a policy: the numbers of its part of the JSON, with dots between the keys.
//!
//! Lists (CPUs, the course over time) are left to the JSON.

use std::io::{self, Write};

use rxsteer_lab::report::Report;
use serde_json::Value;

/// Writes a heading line and one line a policy.
///
/// # Errors
/// What the writer says.
pub fn write<W: Write>(out: &mut W, report: &Report) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    let mut header_done = false;
    for policy in &report.policies {
        let value = serde_json::to_value(policy)?;
        let mut columns = vec![("policy".to_owned(), policy.policy.clone())];
        flatten(String::new(), &value, &mut columns);
        if !header_done {
            writer.write_record(columns.iter().map(|(name, _)| name)).map_err(io_error)?;
            header_done = true;
        }
        writer.write_record(columns.iter().map(|(_, text)| text)).map_err(io_error)?;
    }
    writer.flush()
}

/// Returns the cause of a failed write as it was: a closed pipe stays one.
pub(crate) fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

fn flatten(name: String, value: &Value, columns: &mut Vec<(String, String)>) {
    match value {
        // It is the first column.
        Value::String(_) if name == "policy" => {}
        Value::Object(map) => {
            for (key, value) in map {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(name, value, columns);
            }
        }
        Value::Array(_) => {}
        Value::Null => columns.push((name, String::new())),
        Value::String(text) => columns.push((name, text.clone())),
        other => columns.push((name, other.to_string())),
    }
}
