//! What was typed and what stands in the file, as words that know where they are from.
//!
//! Always true: each key of the file is a flag without its dashes, and a flag goes before it.
//! Elsewhere: what the words mean ([`super::checked`]).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeArray, DeTable, DeValue};

use super::args::AttachArgs;

/// What a key of the file may hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// A text or a number.
    Word,
    /// A list of CPUs: a text, or a list of texts and numbers. A number by itself could be how many.
    Cpus,
    /// A text, a number, or a list of these: a number is the port.
    Ports,
    /// `true` or `false`, or the words `on` and `off`.
    Switch,
}

/// The keys of the file.
pub(super) const KEYS: [(&str, Kind); 12] = [
    ("interface", Kind::Word),
    ("cpus", Kind::Cpus),
    ("mode", Kind::Word),
    ("policy", Kind::Word),
    ("table-entries", Kind::Word),
    ("qsize", Kind::Word),
    ("all-namespaces", Kind::Switch),
    ("ports", Kind::Switch),
    ("flow-ports", Kind::Ports),
    ("shed", Kind::Switch),
    ("beside", Kind::Switch),
    ("metrics", Kind::Word),
];

/// Where a word stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// On the command line.
    Flag(&'static str),
    /// In a file.
    File {
        /// Which.
        path: PathBuf,
        /// Line and column, both from 1.
        at: (usize, usize),
        /// The key.
        key: &'static str,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag("interface") => f.write_str("IFACE"),
            Self::Flag(key) => write!(f, "--{key}"),
            Self::File { path, at: (line, column), key } => {
                write!(f, "{}:{line}:{column}: {key}", path.display())
            }
        }
    }
}

/// A word and its place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Word {
    /// The word; `on` or `off` for a switch of a file.
    pub(super) text: String,
    /// Where it stands.
    pub(super) place: Place,
}

/// Words by their keys.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Given(BTreeMap<&'static str, Word>);

impl Given {
    /// Takes what was typed.
    pub(super) fn from_args(args: &AttachArgs) -> Self {
        let is_on = |switch: bool| switch.then(|| "on".to_owned());
        let typed = [
            ("interface", args.interface.clone()),
            ("cpus", args.cpus.clone()),
            ("mode", args.mode.clone()),
            ("policy", args.policy.clone()),
            ("table-entries", args.table_entries.clone()),
            ("qsize", args.qsize.clone()),
            ("all-namespaces", is_on(args.all_namespaces)),
            ("ports", args.ports.clone()),
            ("flow-ports", args.flow_ports.clone()),
            ("shed", args.shed.clone()),
            ("beside", args.beside.clone()),
            ("metrics", args.metrics.clone()),
        ];
        let words = typed
            .into_iter()
            .filter_map(|(key, text)| Some((key, Word { text: text?, place: Place::Flag(key) })));
        Self(words.collect())
    }

    /// Takes what stands in a file.
    ///
    /// # Errors
    /// All that is wrong, a line each, with its line and column.
    pub(super) fn from_toml(path: &Path, text: &str) -> Result<Self, Vec<String>> {
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or((1, 1), |span| position(text, &span));
            vec![format!("{}:{}:{}: {}", path.display(), at.0, at.1, error.message())]
        })?;
        let mut words = BTreeMap::new();
        let mut wrong = Vec::new();
        for (key, value) in table.get_ref() {
            let at = position(text, &key.span());
            let name = key.get_ref().as_ref();
            let Some((key, kind)) = KEYS.into_iter().find(|(this, _)| *this == name) else {
                let hint = nearest(name).map_or_else(
                    || format!("there are {}", KEYS.map(|(key, _)| key).join(", ")),
                    |key| format!("did you mean {key}?"),
                );
                wrong.push(format!(
                    "{}:{}:{}: {name}: there is no such key; {hint}",
                    path.display(),
                    at.0,
                    at.1
                ));
                continue;
            };
            let at = position(text, &value.span());
            let place = Place::File { path: path.to_owned(), at, key };
            match word(value.get_ref(), kind) {
                Ok(text) => {
                    words.insert(key, Word { text, place });
                }
                Err(why) => wrong.push(format!("{place}: {why}")),
            }
        }
        if wrong.is_empty() { Ok(Self(words)) } else { Err(wrong) }
    }

    /// Adds the words of `other` for keys that have none here.
    pub(super) fn or(mut self, other: Self) -> Self {
        for (key, word) in other.0 {
            self.0.entry(key).or_insert(word);
        }
        self
    }

    /// Returns the word of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Word> {
        debug_assert!(KEYS.iter().any(|(this, _)| *this == key), "{key} is not a key");
        self.0.get(key)
    }
}

/// Returns a value as it would be typed, or what is wrong with it.
fn word(value: &DeValue<'_>, kind: Kind) -> Result<String, String> {
    let word = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => {
            let number = i64::from_str_radix(number.as_str(), number.radix());
            number.map(|number| number.to_string()).map_err(|_| "must be of at most 63 bits".into())
        }
        _ => Err("must be a text or a number".to_owned()),
    };
    let joined = |list: &DeArray<'_>, expected: &str| {
        let words = list.iter().map(|value| word(value.get_ref()));
        let words = words.collect::<Result<Vec<_>, _>>().map_err(|_| expected.to_owned())?;
        Ok(words.join(","))
    };
    match (kind, value) {
        (Kind::Switch, DeValue::Boolean(on)) => Ok(if *on { "on" } else { "off" }.to_owned()),
        (Kind::Switch, DeValue::String(text)) if matches!(&**text, "on" | "off") => {
            Ok(text.to_string())
        }
        (Kind::Switch, _) => Err("must be true or false, or \"on\" or \"off\"".to_owned()),
        (Kind::Cpus, DeValue::Integer(_)) => {
            let number = word(value)?;
            Err(match number.parse::<u16>() {
                Ok(count @ 2..) => format!(
                    "the number {number} could be which CPU or how many: write \"{number}\" for CPU \
                     {number} alone, \"0-{}\" for the first {count}",
                    count - 1
                ),
                Ok(_) => format!("must be a text: \"{number}\" for CPU {number}"),
                Err(_) => format!("there is no CPU {number}"),
            })
        }
        (Kind::Cpus, DeValue::Array(list)) => {
            joined(list, "must be a text or a list of texts and numbers")
        }
        (Kind::Cpus, DeValue::String(text)) => Ok(text.to_string()),
        (Kind::Cpus, _) => Err("must be a text such as \"0-3,8\", or a list".to_owned()),
        (Kind::Ports, DeValue::Array(list)) => {
            joined(list, "must be a text, a number, or a list of these")
        }
        (Kind::Word | Kind::Ports, value) => word(value),
    }
}

/// Returns line and column of the start of a span, in characters and from 1.
fn position(text: &str, span: &Range<usize>) -> (usize, usize) {
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// Returns the key that was probably meant.
fn nearest(name: &str) -> Option<&'static str> {
    /// Below this two words have little in common.
    const ALIKE: f64 = 0.8;
    let name = name.replace('_', "-").to_lowercase();
    let likeness = |key: &str| strsim::jaro_winkler(&name, key);
    let best = KEYS.into_iter().map(|(key, _)| (likeness(key), key));
    best.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(alike, _)| *alike >= ALIKE).map(|(_, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> Vec<String> {
        Given::from_toml(Path::new("x.toml"), text).unwrap_err()
    }

    #[test]
    fn every_unknown_key_is_told_with_its_place_and_what_was_meant() {
        assert_eq!(
            wrong("mode = 'skb'\ncpu = '1'\n\n  table_entries = 5\n"),
            [
                "x.toml:2:1: cpu: there is no such key; did you mean cpus?",
                "x.toml:4:3: table_entries: there is no such key; did you mean table-entries?"
            ]
        );
        let far = wrong("zzz = 1");
        assert!(far[0].contains("there are interface, cpus, mode"), "{far:?}");
        assert!(wrong("[eth0]\nmode = 'skb'")[0].starts_with("x.toml:1:2: eth0: "));
    }

    #[test]
    fn a_value_of_the_wrong_kind_and_broken_toml_are_told_with_their_place() {
        assert_eq!(
            wrong("mode = true\nall-namespaces = 'yes'\n"),
            [
                "x.toml:2:18: all-namespaces: must be true or false, or \"on\" or \"off\"",
                "x.toml:1:8: mode: must be a text or a number"
            ]
        );
        assert!(wrong("mode = \n")[0].starts_with("x.toml:1:"), "{:?}", wrong("mode = \n"));
        assert!(wrong("mode = 'a'\nmode = 'b'\n")[0].starts_with("x.toml:2:1: "));
    }

    #[test]
    fn numbers_texts_and_lists_become_words() {
        let text =
            "qsize = 0x400\ncpus = [0, '2-3']\ntable-entries = '8k'\nall-namespaces = false\n";
        let given = Given::from_toml(Path::new("x.toml"), text).unwrap();
        let word = |key| given.get(key).map(|word| word.text.as_str());
        assert_eq!((word("qsize"), word("cpus")), (Some("1024"), Some("0,2-3")));
        assert_eq!((word("table-entries"), word("mode")), (Some("8k"), None));
        assert_eq!(word("all-namespaces"), Some("off"));
    }

    #[test]
    fn a_number_of_cpus_is_refused_with_both_things_that_it_could_mean() {
        assert_eq!(
            wrong("cpus = 4"),
            [
                "x.toml:1:8: cpus: the number 4 could be which CPU or how many: write \"4\" for CPU 4 alone, \
              \"0-3\" for the first 4"
            ]
        );
        assert_eq!(wrong("cpus = 0"), ["x.toml:1:8: cpus: must be a text: \"0\" for CPU 0"]);
        assert_eq!(wrong("cpus = -1"), ["x.toml:1:8: cpus: there is no CPU -1"]);
    }

    #[test]
    fn a_switch_takes_both_spellings_and_nothing_else() {
        for (text, on) in [("true", "on"), ("'on'", "on"), ("false", "off"), ("'off'", "off")] {
            for key in ["ports", "shed", "beside", "all-namespaces"] {
                let text = format!("{key} = {text}");
                let given = Given::from_toml(Path::new("x.toml"), &text).unwrap();
                assert_eq!(given.get(key).map(|word| word.text.as_str()), Some(on), "{text}");
            }
        }
        for text in ["ports = 1", "shed = 'yes'", "shed = 'true'", "ports = ['on']"] {
            let said = wrong(text).remove(0);
            assert!(said.ends_with("must be true or false, or \"on\" or \"off\""), "{said}");
        }
    }

    #[test]
    fn a_flag_goes_before_the_file() {
        let args = AttachArgs { mode: Some("skb".into()), ..AttachArgs::default() };
        let file = Given::from_toml(Path::new("x.toml"), "mode = 'native'\nqsize = 5").unwrap();
        let given = Given::from_args(&args).or(file);
        let mode = given.get("mode").unwrap();
        assert_eq!((mode.text.as_str(), mode.place.to_string().as_str()), ("skb", "--mode"));
        assert_eq!(given.get("qsize").unwrap().place.to_string(), "x.toml:2:9: qsize");
    }

    #[test]
    fn every_key_is_a_flag() {
        use clap::CommandFactory as _;
        let command = crate::args::Cli::command();
        let attach = command.find_subcommand("attach").unwrap();
        for (key, kind) in KEYS {
            let flag = attach
                .get_arguments()
                .find(|flag| flag.get_long() == Some(key) || flag.get_id().as_str() == key);
            let takes_value = flag.unwrap().get_action().takes_values();
            let is_switch = kind == Kind::Switch && key == "all-namespaces";
            assert_eq!(takes_value, !is_switch, "{key}");
        }
    }
}
