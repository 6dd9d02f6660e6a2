//! Handing a running attachment to another process, which goes on with it: an upgrade without a gap.
//!
//! | old process | new process |
//! | --- | --- |
//! | [`Attachment::handover`] → sends [`Handover::text`] and, by `SCM_RIGHTS`, [`Handover::fds`] | |
//! | keeps its attachment, and calls nothing of it meanwhile | puts a [`Handover`] together from what it received, calls [`Attachment::from_handover`] |
//! | | says that it is done, and steers from then on |
//! | drops its attachment: nothing is detached, for the link has another holder | |
//!
//! If the new process gives up or dies before it says that it is done, the old one calls
//! [`Attachment::retake`] and goes on.
//!
//! Both processes are in the network namespace of the interface. The descriptors are some fifteen, in
//! the order in which the text names them; the kernel takes up to 253 in one message. The text is
//! ASCII, a key and a value a line, below 1 KiB.
//!
//! Always true: whoever of the two dies at whatever moment, packets flow; when both are dead nothing is
//! attached, for nothing is pinned.
//! Elsewhere: what goes on from the old programs to the new ones ([`super::change`]).

use std::fmt::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rxsteer_core::CpuSet;
use rxsteer_core::steer::{Class, Reason};
use rxsteer_core::table::Recorded;
use rxsteer_ebpf::{MAX_CPUS, MAX_QUEUES, ORDER_SLOTS, cpu_state, program};

use super::backlogs::Backlogs;
use super::generation::MapFds;
use super::interface::index_of;
use super::maps::in_map;
use super::{
    AttachError, AttachedMode, Attachment, Change, LivePolicy, Settings, check, namespace_number,
    online_cpus,
};
use crate::link;

/// Number of the format of the text.
const FORMAT: u32 = 1;

/// To be raised whenever the programs that count what happens in the queues, or the maps that go on
/// from one generation to the next, get another meaning: those of the old process stay in use.
const LAYOUT: u32 = 4;

/// Most bytes of a text that is believed.
const MOST_BYTES: usize = 8192;

/// What another process needs to go on with an attachment.
#[derive(Debug)]
pub struct Handover {
    /// What the descriptors are, and how the interface is steered.
    pub text: Vec<u8>,
    /// The link of the interface, those of the programs that hear of the queues, and the maps.
    pub fds: Vec<OwnedFd>,
}

impl Handover {
    /// Returns the name of the interface that is handed over.
    ///
    /// # Errors
    /// [`AttachError::Handover`] if the text cannot be read.
    pub fn interface(&self) -> Result<String, AttachError> {
        Told::read(&self.text).map(|told| told.interface)
    }
}

/// What stands in the text.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Told {
    layout: String,
    interface: String,
    index: u32,
    namespace: u32,
    mode: AttachedMode,
    policy: LivePolicy,
    cpus: CpuSet,
    table_entries: u32,
    queue_packets: u32,
    all_namespaces: bool,
    /// Names of the descriptors, in their order.
    fds: Vec<String>,
}

const LINK: &str = "link";
const EVENT: &str = "event";

impl Told {
    fn write(&self) -> Vec<u8> {
        let mut text = format!("rxsteer-handover {FORMAT}\n");
        let mut say = |key: &str, value: &dyn std::fmt::Display| {
            writeln!(text, "{key} {value}").expect("a string takes everything");
        };
        say("layout", &self.layout);
        say("interface", &self.interface);
        say("index", &self.index);
        say("namespace", &self.namespace);
        say("mode", &self.mode);
        say("policy", &self.policy.name());
        say("cpus", &self.cpus.list());
        say("table-entries", &self.table_entries);
        say("queue-packets", &self.queue_packets);
        say("all-namespaces", &u32::from(self.all_namespaces));
        for name in &self.fds {
            say("fd", name);
        }
        text.into_bytes()
    }

    fn read(text: &[u8]) -> Result<Self, AttachError> {
        let wrong = |what: String| AttachError::Handover(what);
        if text.len() > MOST_BYTES {
            return Err(wrong(format!("{} bytes of text, at most {MOST_BYTES}", text.len())));
        }
        let text = std::str::from_utf8(text).map_err(|error| wrong(error.to_string()))?;
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        if first != format!("rxsteer-handover {FORMAT}") {
            return Err(wrong(format!("the first line is {first:?}")));
        }
        let lines: Vec<(&str, &str)> =
            lines.map(|line| line.split_once(' ').unwrap_or((line, ""))).collect();
        let value = |key: &str| {
            let found = lines.iter().find(|(this, _)| *this == key).map(|(_, value)| *value);
            found.ok_or_else(|| wrong(format!("it has no {key}")))
        };
        let number = |key: &str| {
            value(key)?.parse::<u32>().map_err(|error| wrong(format!("{key}: {error}")))
        };
        let fds = lines.iter().filter(|(key, _)| *key == "fd");
        Ok(Self {
            layout: value("layout")?.to_owned(),
            interface: value("interface")?.to_owned(),
            index: number("index")?,
            namespace: number("namespace")?,
            mode: match value("mode")? {
                "native" => AttachedMode::Native,
                "skb" => AttachedMode::Skb,
                other => return Err(wrong(format!("the mode {other:?}"))),
            },
            policy: value("policy")?.parse().map_err(|error| wrong(format!("policy: {error}")))?,
            cpus: CpuSet::from_list(value("cpus")?)
                .map_err(|error| wrong(format!("cpus: {error}")))?,
            table_entries: number("table-entries")?,
            queue_packets: number("queue-packets")?,
            all_namespaces: number("all-namespaces")? != 0,
            fds: fds.map(|(_, name)| (*name).to_owned()).collect(),
        })
    }
}

/// Returns what must be the same on both sides for maps to go on.
fn layout() -> String {
    let [classes, reasons] = [Class::COUNT, Reason::COUNT];
    let [words, records] = [cpu_state::WORDS, Recorded::COUNT];
    let config = rxsteer_ebpf::Config::WORDS;
    format!(
        "{LAYOUT}-{MAX_CPUS}-{MAX_QUEUES}-{ORDER_SLOTS}-{classes}-{reasons}-{words}-{records}-{config}"
    )
}

impl Attachment {
    /// Returns what another process needs to go on with this attachment; this one stays as it is.
    ///
    /// # Errors
    /// [`AttachError::Map`] if a descriptor cannot be duplicated.
    pub fn handover(&self) -> Result<Handover, AttachError> {
        let events = self.backlogs.links().iter().map(|link| (EVENT, link.as_fd()));
        let all: Vec<(&str, BorrowedFd<'_>)> =
            [(LINK, self.link())].into_iter().chain(events).chain(self.fds.iter()).collect();
        let told = Told {
            layout: layout(),
            interface: self.settings.interface.clone(),
            index: self.index,
            namespace: self.namespace,
            mode: self.mode,
            policy: self.settings.policy,
            cpus: self.settings.cpus,
            table_entries: self.settings.table_entries,
            queue_packets: self.settings.queue_packets,
            all_namespaces: self.settings.all_namespaces,
            fds: all.iter().map(|(name, _)| (*name).to_owned()).collect(),
        };
        let fds = all.into_iter().map(|(_, fd)| fd.try_clone_to_owned());
        let fds = fds.collect::<Result<_, _>>().map_err(in_map("of the attachment"))?;
        Ok(Handover { text: told.write(), fds })
    }

    /// Goes on with the attachment of another process, with these settings: its programs are replaced
    /// as by [`change`](Self::change). Until the other process drops its attachment both hear the
    /// sockets, which does no harm.
    ///
    /// If the other process is of a version whose maps differ, the interface is taken over without a gap
    /// all the same, but counters and tables begin anew, and packets that wait may be overtaken.
    ///
    /// # Errors
    /// [`AttachError::Handover`] for what does not belong here; those of [`change`](Self::change). The
    /// other process's attachment is as it was then.
    pub fn from_handover(
        handover: Handover,
        settings: Settings,
    ) -> Result<(Self, Change), AttachError> {
        check(&settings)?;
        let told = Told::read(&handover.text)?;
        let wrong = |what: String| Err(AttachError::Handover(what));
        if told.fds.len() != handover.fds.len() {
            let [named, got] = [told.fds.len(), handover.fds.len()];
            return wrong(format!("{named} descriptors are named, {got} came"));
        }
        if told.interface != settings.interface {
            return Err(AttachError::Fixed("the interface"));
        }
        if told.namespace != namespace_number() || index_of(&told.interface) != Some(told.index) {
            return wrong(format!("{} is not of this network namespace", told.interface));
        }
        let (mut xdp, mut events, mut maps) = (None, Vec::new(), Vec::new());
        for (name, fd) in told.fds.into_iter().zip(handover.fds) {
            match name.as_str() {
                LINK => xdp = Some(fd),
                EVENT => events.push(fd),
                _ => maps.push((name, fd)),
            }
        }
        let Some(xdp) = xdp else { return wrong("no link came".to_owned()) };
        if !settings.mode.allows(told.mode) {
            return Err(AttachError::Fixed("the mode"));
        }
        if told.layout != layout() {
            let mode = told.mode;
            let attachment = Self::begin(settings, told.index, |programs, _| {
                let program = programs.fd(program::STEER).map_err(in_map(program::STEER))?;
                link::update(&xdp, &program).map_err(AttachError::Update)?;
                Ok((xdp, mode))
            })?;
            return Ok((attachment, Change { may_overtake: None, ..Change::default() }));
        }
        let fds = MapFds::from_parts(maps);
        let (list, before) = fds.lists()?;
        let mut old = Settings::new(told.interface, told.cpus);
        old.mode = settings.mode;
        (old.policy, old.table_entries) = (told.policy, told.table_entries);
        (old.queue_packets, old.all_namespaces) = (told.queue_packets, told.all_namespaces);
        let mut attachment = Self {
            settings: old,
            index: told.index,
            namespace: told.namespace,
            mode: told.mode,
            hears_close: false,
            maps: fds.maps()?,
            programs: None,
            backlogs: Backlogs::new(&fds, events)?,
            fds,
            list,
            pending: before.into_iter().map(|cpu| (cpu, false)).collect(),
            link: Some(xdp),
            answers: None,
            swept: 0,
        };
        let online = online_cpus(&settings.cpus);
        let change = attachment.succeed(settings, &online)?;
        Ok((attachment, change))
    }

    /// Goes on after a handover that came to nothing, whatever the other process has done meanwhile.
    ///
    /// # Errors
    /// [`AttachError::Update`] if the interface is gone; [`AttachError::Map`].
    pub fn retake(&mut self) -> Result<(), AttachError> {
        let Some(programs) = &mut self.programs else { return Ok(()) };
        let links = std::mem::take(self.backlogs.links_mut());
        self.backlogs = Backlogs::new(&self.fds, links)?;
        let asked = super::cpus::usable(&self.settings.cpus, &online_cpus(&self.settings.cpus));
        let missing = asked.difference(&self.backlogs.open);
        self.backlogs.let_in(programs, &missing, self.settings.queue_packets)?;
        self.backlogs.hold(false);
        let program = programs.fd(program::STEER).map_err(in_map(program::STEER))?;
        link::update(&self.link(), &program).map_err(AttachError::Update)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Told {
        Told {
            layout: layout(),
            interface: "eth0".into(),
            index: 7,
            namespace: 4_026_531_840,
            mode: AttachedMode::Skb,
            policy: LivePolicy::Rps,
            cpus: CpuSet::from_list("0-2,5").unwrap(),
            table_entries: 1024,
            queue_packets: 99,
            all_namespaces: true,
            fds: vec!["link".into(), "event".into(), "CONFIG".into()],
        }
    }

    #[test]
    fn what_is_told_is_read_again() {
        assert_eq!(Told::read(&told().write()).unwrap(), told());
    }

    #[test]
    fn what_is_no_handover_is_refused_with_the_reason() {
        let said = |text: &[u8]| Told::read(text).unwrap_err().to_string();
        assert!(said(b"").ends_with("the first line is \"\""), "{}", said(b""));
        assert!(said(b"rxsteer-handover 1\n").ends_with("it has no layout"));
        assert!(said(&[0xff; 4]).contains("utf-8"));
        assert!(said(&[b'x'; MOST_BYTES + 1]).contains("bytes of text"));
        let text = String::from_utf8(told().write()).unwrap();
        for (from, to, reason) in [
            ("mode skb", "mode fast", "the mode \"fast\""),
            ("index 7", "index -7", "index: invalid digit"),
            ("cpus 0-2,5", "cpus 2-0", "cpus: "),
            ("policy rps", "policy rfs", "policy: there are flow-aware, rps, none"),
        ] {
            let said = said(text.replace(from, to).as_bytes());
            assert!(said.contains(reason), "{said}");
        }
    }

    #[test]
    fn a_text_cut_anywhere_is_no_panic() {
        let text = told().write();
        for end in 0..text.len() {
            let _ = Told::read(&text[..end]);
        }
    }
}
