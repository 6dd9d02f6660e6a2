//! Values put in place of others in the text of an experiment: by a case, a sweep, or `--set`.
//!
//! A key is a path with dots: `host.tables.rps_sock_flow_entries`. In a list of tables a part is
//! the number of an element, from 0, or the value of its key `name`.

use std::fmt;
use std::str::FromStr;

use toml::{Table, Value};

/// A value for a key of an experiment, as `--set` takes it: `traffic.flood.per_second=1000`.
///
/// # Examples
/// ```
/// use rxsteer_lab::experiment::Setting;
/// let setting: Setting = "host.cpus=16".parse()?;
/// assert_eq!(setting.to_string(), "host.cpus=16");
/// assert!("host.cpus".parse::<Setting>().is_err());
/// # Ok::<(), rxsteer_lab::experiment::SettingError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Path of the key.
    pub key: String,
    /// Its value.
    pub value: Value,
}

/// A text that is no setting, or a setting that has no place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SettingError(pub(super) String);

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingError {}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let refused =
            |why: &str| SettingError(format!("`{text}`: {why}; a setting looks like host.cpus=16"));
        let more_lines = || SettingError(format!("{text:?}: a setting is one line"));
        if text.contains(char::is_control) {
            return Err(more_lines());
        }
        let Some((key, value)) = text.split_once('=') else { return Err(refused("no `=`")) };
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || value.is_empty() {
            return Err(refused("nothing on one side of the `=`"));
        }
        // What is no value of TOML is taken as the text that it is: duration=100ms.
        let value = toml::from_str::<Table>(&format!("value = {value}"))
            .ok()
            .and_then(|mut table| table.remove("value"))
            .unwrap_or_else(|| Value::String(value.to_owned()));
        // Outputs name the setting, so what its value spells as an escape must not break them either.
        if value.to_string().contains(char::is_control) {
            return Err(more_lines());
        }
        Ok(Self { key: key.to_owned(), value })
    }
}

/// Parts that the path of a value may have.
const MOST_PARTS: usize = 16;

/// Puts a value in its place; tables on the way are made, elements of lists are not.
pub(super) fn put(document: &mut Table, key: &str, value: &Value) -> Result<(), SettingError> {
    if key.split('.').nth(MOST_PARTS).is_some() {
        let begin: String = key.chars().take(40).collect();
        return Err(SettingError(format!(
            "`{begin}...`: more than {MOST_PARTS} parts; no value is that deep"
        )));
    }
    let no = |why: String| Err(SettingError(format!("`{key}`: {why}")));
    let mut parts: Vec<&str> = key.split('.').collect();
    let last = parts.pop().unwrap_or_default();
    if last.is_empty() || parts.iter().any(|part| part.is_empty()) {
        return no("a part of the path is empty".into());
    }
    let mut at: &mut Table = document;
    let mut parts = parts.into_iter();
    while let Some(part) = parts.next() {
        let next = at.entry(part).or_insert_with(|| Value::Table(Table::new()));
        at = match next {
            Value::Table(table) => table,
            Value::Array(list) => {
                let Some(which) = parts.next() else {
                    return no(format!("`{part}` is a list; say which element"));
                };
                let element = element(list, which);
                let Some(Value::Table(table)) = element else {
                    return no(format!("`{part}` has no element {which}"));
                };
                table
            }
            _ => return no(format!("`{part}` is no table")),
        };
    }
    at.insert(last.to_owned(), value.clone());
    Ok(())
}

fn element<'a>(list: &'a mut [Value], which: &str) -> Option<&'a mut Value> {
    if let Ok(index) = which.parse::<usize>() {
        return list.get_mut(index);
    }
    list.iter_mut().find(|value| value.get("name").and_then(Value::as_str) == Some(which))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_end_is_refused_before_it_is_walked() {
        let key = format!("{}x", "a.".repeat(60_000));
        let refused = put(&mut Table::new(), &key, &Value::Integer(1)).unwrap_err();
        assert!(refused.0.contains("more than 16 parts") && refused.0.len() < 200, "{}", refused.0);
        let deepest = format!("{}x", "a.".repeat(15));
        assert!(put(&mut Table::new(), &deepest, &Value::Integer(1)).is_ok());
    }

    fn patched(text: &str, setting: &str) -> Result<String, SettingError> {
        let mut document: Table = toml::from_str(text).unwrap();
        let setting: Setting = setting.parse()?;
        put(&mut document, &setting.key, &setting.value)?;
        Ok(toml::to_string(&document).unwrap())
    }

    #[test]
    fn a_value_is_found_by_path_number_and_name() {
        assert_eq!(patched("[host]\ncpus = 8\n", "host.cpus=16").unwrap(), "[host]\ncpus = 16\n");
        let list = "[[t]]\nname = \"a\"\n[[t]]\nname = \"b\"\nn = 1\n";
        assert!(patched(list, "t.b.n=2").unwrap().ends_with("n = 2\nname = \"b\"\n"));
        assert!(patched(list, "t.0.n=3").unwrap().starts_with("[[t]]\nn = 3\nname = \"a\"\n"));
        assert_eq!(patched("", "host.costs.take=9").unwrap(), "[host.costs]\ntake = 9\n");
        assert_eq!(patched("", "duration=100ms").unwrap(), "duration = \"100ms\"\n");
    }

    #[test]
    fn a_setting_without_a_place_says_so() {
        let list = "a = 1\n[[t]]\nname = \"a\"\n";
        let cases = [
            ("t.x.n=1", "no element x"),
            ("t.1.n=1", "no element 1"),
            ("t.n=1", "say which element"),
            ("a.b=1", "is no table"),
            ("a..b=1", "empty"),
            ("=1", "one side"),
            ("a=", "one side"),
            ("a", "no `=`"),
            ("a=\"b\nc\"", "one line"),
            ("a\r=1", "one line"),
            ("a=\"b\\nc\"", "one line"),
        ];
        for (setting, part) in cases {
            let said = patched(list, setting);
            let Err(error) = said else { panic!("{setting} was taken") };
            assert!(error.to_string().contains(part), "{setting}: {error}");
        }
    }
}
