//! Settings of the running kernel, changed for a while and put back.
//!
//! Each change is written to a journal, and the journal to the disk, before it is made. Dropping
//! [`Settings`] puts everything back, last change first, and removes the journal. A process that is
//! killed leaves its journal; [`restore`] finds it, sees by the lease in its name that its owner is
//! gone, and does the same.
//!
//! Always true: a value that was changed is in a journal until it is back, or until the file that
//! held it is gone.
//! Elsewhere: settings inside a namespace of our own, which go with it and need no journal
//! ([`crate::Namespace::set_sysctl`]).

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::During as _;
use crate::namespace::{enter, path_of};
use crate::reap::names_in;
use crate::{Lease, Namespace, TestbedError};

/// Where journals are: settings do not outlive the machine's uptime, nor does this directory.
pub(crate) const JOURNAL_DIR: &str = "/run/rxsteer";

const SUFFIX: &str = ".journal";

/// Where a setting is.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The network namespace of this process, and what is of the whole machine.
    #[default]
    Host,
    /// A namespace of this name.
    Namespace(String),
}

impl From<&Namespace> for Place {
    fn from(namespace: &Namespace) -> Self {
        Self::Namespace(namespace.name())
    }
}

/// A setting that was changed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Change {
    /// Where it is.
    pub place: Place,
    /// The file that holds it, under `/proc/sys` or `/sys`.
    pub path: String,
    /// What it was.
    pub old: String,
    /// What it was set to.
    pub new: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.path, self.old, self.new)?;
        match &self.place {
            Place::Host => Ok(()),
            Place::Namespace(name) => write!(f, " (in {name})"),
        }
    }
}

/// What became of the changes of owners that are gone.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Restored {
    /// Changes that were undone, in the order in which that was done.
    pub back: Vec<Change>,
    /// Changes of files that are no more: of a device or a namespace that was removed.
    pub gone: Vec<Change>,
    /// What could not be undone, with its file, the reason and what to do. Its lines are all that is
    /// left of that journal, so it is told again until somebody has looked after it.
    pub left: Vec<String>,
}

/// Where changes are written down before they are made.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    fn open(dir: &Path) -> Result<Self, TestbedError> {
        let lease = Lease::next().during(|| "name a journal".into())?;
        let path = dir.join(format!("{lease}{SUFFIX}"));
        fs::create_dir_all(dir).during(|| format!("create {}", dir.display()))?;
        let file = File::create_new(&path).during(|| format!("create {}", path.display()))?;
        Ok(Self { path, file })
    }

    fn write(&mut self, change: &Change) -> io::Result<()> {
        let mut line = serde_json::to_string(change)?;
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()
    }
}

/// Changes settings and puts them back.
#[derive(Debug)]
pub struct Settings {
    journal: Journal,
    changes: Vec<Change>,
}

impl Settings {
    /// Opens a journal in `/run/rxsteer`.
    ///
    /// # Errors
    /// If the journal cannot be made.
    pub fn new() -> Result<Self, TestbedError> {
        Self::with_journal_in(JOURNAL_DIR.as_ref())
    }

    /// Opens a journal in another directory, which only [`restore`] of that directory finds.
    ///
    /// # Errors
    /// If the journal cannot be made.
    pub fn with_journal_in(dir: &Path) -> Result<Self, TestbedError> {
        Ok(Self { journal: Journal::open(dir)?, changes: Vec::new() })
    }

    /// Sets a file under `/proc/sys` or `/sys` to a value; nothing if it has it already.
    ///
    /// # Errors
    /// If the file cannot be read or written, or the journal cannot; then nothing has changed.
    pub fn set(&mut self, place: &Place, path: &str, new: &str) -> Result<(), TestbedError> {
        let old = read(place, path).during(|| format!("read {path}"))?;
        if old == new {
            return Ok(());
        }
        let change = Change { place: place.clone(), path: path.into(), old, new: new.to_owned() };
        self.journal
            .write(&change)
            .during(|| format!("write the journal {}", self.journal.path.display()))?;
        self.changes.push(change);
        write(place, path, new).during(|| format!("write {new} to {path}"))
    }

    /// Returns the changes made so far, oldest first.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Puts everything back and ends the journal. Dropping does the same, but cannot tell.
    ///
    /// # Errors
    /// The first that could not be put back; the journal stays, for [`restore`] after this process
    /// has ended.
    pub fn put_back(mut self) -> Result<Restored, TestbedError> {
        let changes = std::mem::take(&mut self.changes);
        let mut restored = Restored::default();
        let failed = changes.iter().rev().filter_map(|change| undo(change, &mut restored).err());
        // All of them, also if one fails.
        match failed.collect::<Vec<_>>().into_iter().next() {
            Some(error) => Err(error),
            None => {
                self.end();
                Ok(restored)
            }
        }
    }

    fn end(&self) {
        let _ = fs::remove_file(&self.journal.path);
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        let mut restored = Restored::default();
        let failed = changes.iter().rev().filter(|change| undo(change, &mut restored).is_err());
        if failed.count() == 0 && !changes.is_empty() || self.is_unused() {
            self.end();
        }
    }
}

impl Settings {
    /// Whether the journal is empty: then it may go in any case.
    fn is_unused(&self) -> bool {
        self.journal.file.metadata().is_ok_and(|data| data.len() == 0)
    }
}

/// Puts back the settings of all journals in `dir` whose owners are gone, and removes those.
///
/// What cannot be read or put back keeps nothing else: it stays in its journal, alone, and is told in
/// [`Restored::left`].
///
/// # Errors
/// If the directory cannot be listed.
pub fn restore(dir: &Path) -> Result<Restored, TestbedError> {
    let mut all = Restored::default();
    let mut names = names_in(dir).during(|| format!("list {}", dir.display()))?;
    names.sort();
    for name in names {
        let lease = name.strip_suffix(SUFFIX).and_then(|lease| lease.parse::<Lease>().ok());
        if !lease.is_some_and(|lease| lease.owner.is_gone()) {
            continue;
        }
        let path = dir.join(&name);
        if let Err(error) = restore_journal(&path, &mut all) {
            all.left.push(error.to_string());
        }
    }
    Ok(all)
}

fn restore_journal(path: &Path, all: &mut Restored) -> Result<(), TestbedError> {
    let bytes = match fs::read(path) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        bytes => bytes.during(|| format!("read the journal {}", path.display()))?,
    };
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    // A line without its end was being written when its owner died: the change was never made.
    lines.pop();
    let mut left = Vec::new();
    for (index, line) in lines.into_iter().enumerate().rev() {
        let undone = match serde_json::from_slice(line) {
            Ok(change) => undo(&change, all).map_err(|error| error.to_string()),
            Err(error) => Err(format!("damaged: {error}")),
        };
        if let Err(message) = undone {
            let error = TestbedError::Journal {
                file: path.display().to_string(),
                line: index + 1,
                message,
            };
            all.left.push(error.to_string());
            left.push(line);
        }
    }
    if left.is_empty() {
        return match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.during(|| format!("remove {}", path.display())),
        };
    }
    // What is back is not put back a second time, over what others may have set since.
    let rest: Vec<u8> = left.iter().rev().flat_map(|line| [line, &b"\n"[..]].concat()).collect();
    let new = path.with_extension("rest");
    fs::write(&new, rest)
        .and_then(|()| fs::rename(&new, path))
        .during(|| format!("shorten the journal {}", path.display()))
}

/// Undoes a change, and records what became of it.
fn undo(change: &Change, restored: &mut Restored) -> Result<(), TestbedError> {
    match write(&change.place, &change.path, &change.old) {
        Ok(()) => restored.back.push(change.clone()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            restored.gone.push(change.clone());
        }
        undone => undone.during(|| format!("put {} back into {}", change.old, change.path))?,
    }
    Ok(())
}

fn read(place: &Place, path: &str) -> io::Result<String> {
    let text = at(place, path, || fs::read_to_string(path))?;
    Ok(text.trim_end_matches('\n').to_owned())
}

fn write(place: &Place, path: &str, value: &str) -> io::Result<()> {
    // Never creates a file: one that is not there is an error of the kind `NotFound`.
    at(place, path, || File::options().write(true).open(path)?.write_all(value.as_bytes()))
}

fn at<T: Send>(
    place: &Place,
    path: &str,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    match place {
        Place::Host => work(),
        Place::Namespace(name) => enter(&namespace(name)?, path.starts_with("/sys/"), work)?,
    }
}

/// Opens a namespace by name; one that is no more, and its empty file, count as not found.
fn namespace(name: &str) -> io::Result<File> {
    let not_ours = || io::Error::new(io::ErrorKind::InvalidInput, "not a namespace of ours");
    let _: Lease = name.parse().map_err(|_| not_ours())?;
    let file = File::open(path_of(name))?;
    let kind = nix::sys::statfs::fstatfs(&file)?.filesystem_type();
    if kind == nix::sys::statfs::NSFS_MAGIC {
        Ok(file)
    } else {
        Err(io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("rxs-settings-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// A file that stands for a setting; these tests need no rights.
    fn setting(dir: &Path, name: &str, value: &str) -> String {
        let path = dir.join(name);
        fs::write(&path, format!("{value}\n")).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn value(path: &str) -> String {
        fs::read_to_string(path).unwrap().trim_end().to_owned()
    }

    fn journals(dir: &Path) -> usize {
        names_in(dir).unwrap().iter().filter(|name| name.ends_with(SUFFIX)).count()
    }

    #[test]
    fn everything_is_back_after_a_drop_and_the_journal_is_gone() {
        let dir = scratch("drop");
        let (a, b) = (setting(&dir, "a", "1"), setting(&dir, "b", "x y"));
        let mut settings = Settings::with_journal_in(&dir).unwrap();
        settings.set(&Place::Host, &a, "2").unwrap();
        settings.set(&Place::Host, &b, "").unwrap();
        settings.set(&Place::Host, &a, "3").unwrap();
        settings.set(&Place::Host, &a, "3").unwrap();
        assert_eq!(settings.changes().len(), 3);
        assert_eq!(value(&a), "3");
        assert_eq!(journals(&dir), 1);
        drop(settings);
        assert_eq!((value(&a).as_str(), value(&b).as_str()), ("1", "x y"));
        assert_eq!(journals(&dir), 0);
    }

    #[test]
    fn a_setting_that_is_not_there_is_an_error_and_is_not_made() {
        let dir = scratch("absent");
        let path = dir.join("absent");
        let mut settings = Settings::with_journal_in(&dir).unwrap();
        let error = settings.set(&Place::Host, path.to_str().unwrap(), "1").unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot read {}", path.display())));
        assert!(!path.exists());
        drop(settings);
        assert_eq!(journals(&dir), 0);
    }

    /// Writes the journal of a process that has ended.
    fn journal_of_the_dead(dir: &Path, text: &str) -> PathBuf {
        let mut lease = Lease::next().unwrap();
        lease.owner.start_ticks += 1;
        let path = dir.join(format!("{lease}{SUFFIX}"));
        fs::write(&path, text).unwrap();
        path
    }

    fn line(path: &str, old: &str) -> String {
        let change =
            Change { place: Place::Host, path: path.into(), old: old.into(), new: "9".into() };
        serde_json::to_string(&change).unwrap() + "\n"
    }

    #[test]
    fn the_journal_of_a_dead_owner_is_undone_from_its_end() {
        let dir = scratch("dead");
        let a = setting(&dir, "a", "9");
        let text = line(&a, "1") + &line("/proc/sys/net/no/such", "7") + &line(&a, "2");
        let path = journal_of_the_dead(&dir, &text);
        let restored = restore(&dir).unwrap();
        assert_eq!(value(&a), "1");
        assert_eq!(restored.back.iter().map(|c| c.old.as_str()).collect::<Vec<_>>(), ["2", "1"]);
        assert_eq!(restored.gone.len(), 1);
        assert!(!path.exists());
    }

    #[test]
    fn a_line_cut_by_the_end_of_its_owner_was_never_carried_out() {
        let dir = scratch("cut");
        let a = setting(&dir, "a", "9");
        let whole = line(&a, "1");
        for cut in 0..whole.len() {
            let path = journal_of_the_dead(&dir, &whole[..cut]);
            assert_eq!(restore(&dir).unwrap(), Restored::default(), "{cut}");
            assert!(!path.exists());
        }
        assert_eq!(value(&a), "9");
    }

    #[test]
    fn a_damaged_line_is_named_and_keeps_nothing_else() {
        let dir = scratch("damaged");
        let (a, b) = (setting(&dir, "a", "9"), setting(&dir, "b", "9"));
        for damage in [&b"{\"path\":7}"[..], b"", b"\xff\xfe"] {
            fs::write(&a, "9").unwrap();
            fs::write(&b, "9").unwrap();
            let path = journal_of_the_dead(&dir, "");
            let whole = line(&a, "1");
            fs::write(&path, [whole.as_bytes(), damage, b"\n"].concat()).unwrap();
            let other = journal_of_the_dead(&dir, &line(&b, "1"));
            let restored = restore(&dir).unwrap();
            assert_eq!((value(&a).as_str(), value(&b).as_str()), ("1", "1"));
            assert_eq!((restored.back.len(), restored.gone.len()), (2, 0));
            let [said] = restored.left.as_slice() else { panic!("{restored:?}") };
            let start = format!("journal {}, line 2: damaged: ", path.display());
            assert!(said.starts_with(&start) && said.contains("remove the file"), "{said}");
            assert!(!other.exists());
            // It is told again, and what is back is left alone.
            fs::write(&a, "5").unwrap();
            let again = restore(&dir).unwrap();
            assert_eq!((again.back.len(), again.left.len()), (0, 1));
            assert_eq!(value(&a), "5");
            assert_eq!(fs::read(&path).unwrap(), [damage, b"\n"].concat());
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn what_a_file_does_not_take_back_stays_in_the_journal() {
        let dir = scratch("refused");
        let (a, b) = (setting(&dir, "a", "9"), dir.join("b"));
        fs::create_dir(&b).unwrap();
        let of_b = line(b.to_str().unwrap(), "1");
        let path = journal_of_the_dead(&dir, &(of_b.clone() + &line(&a, "1")));
        let restored = restore(&dir).unwrap();
        assert_eq!((value(&a).as_str(), restored.back.len()), ("1", 1));
        assert!(restored.left[0].contains(&format!("cannot put 1 back into {}", b.display())));
        assert_eq!(fs::read_to_string(&path).unwrap(), of_b);
    }

    #[test]
    fn journals_of_the_living_and_of_others_are_left_alone() {
        let dir = scratch("living");
        let a = setting(&dir, "a", "1");
        let mut settings = Settings::with_journal_in(&dir).unwrap();
        settings.set(&Place::Host, &a, "2").unwrap();
        fs::write(dir.join("notes.journal"), line(&a, "5")).unwrap();
        assert_eq!(restore(&dir).unwrap(), Restored::default());
        assert_eq!(value(&a), "2");
        assert_eq!(settings.put_back().unwrap().back.len(), 1);
        assert_eq!(value(&a), "1");
        assert!(dir.join("notes.journal").exists());
    }

    #[test]
    fn one_that_cannot_be_put_back_does_not_keep_the_others() {
        let dir = scratch("others");
        let (a, b) = (setting(&dir, "a", "1"), setting(&dir, "b", "1"));
        let mut settings = Settings::with_journal_in(&dir).unwrap();
        settings.set(&Place::Host, &a, "2").unwrap();
        settings.set(&Place::Host, &b, "2").unwrap();
        fs::remove_file(&b).unwrap();
        fs::create_dir(&b).unwrap();
        let error = settings.put_back().unwrap_err().to_string();
        assert!(error.contains(&b), "{error}");
        assert_eq!(value(&a), "1");
        assert_eq!(journals(&dir), 1);
    }
}
