//! The process that holds an attachment: one loop that owns it, and threads that bring it questions.
//!
//! Signals, the control socket and the metrics each have a thread, and put what they want into the
//! loop's inbox; so nothing that a client does can keep the loop from its work, and steering itself is
//! in the kernel and waits for none of this.
//!
//! Always true: the service manager hears of the watchdog only from the loop itself.

use std::io::Write as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rxsteer_core::cpu::CpuStates;
use rxsteer_kernel::{Attachment, Change, OnInterface, host_cpus, programs_on_interfaces};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

use super::args::AttachArgs;
use super::checked::Asked;
use super::control::{About, Answer, Listener, Verb, answer_all, give, say};
use super::file::read_bounded;
use super::metrics::{Place, Scrape};
use super::notify::Notifier;
use super::{keys_of, note_reach};
use crate::render::numbers::{count, percent};
use crate::terminal::Terminal;
use crate::{Exit, interrupt};

/// How long the loop rests at most.
const TURN: Duration = Duration::from_millis(500);
/// The same, if it looks whether a CPU is overloaded.
const SHORT_TURN: Duration = Duration::from_millis(50);
/// How often the tables are looked after.
const UPKEEP: Duration = Duration::from_secs(2);
/// How often the service manager is told what happens.
const TELLING: Duration = Duration::from_secs(10);
/// How long a question may wait for the loop.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the loop is brought.
pub(super) enum Message {
    /// A signal.
    Signal(i32),
    /// A question of the control socket.
    Control(Verb, SyncSender<Answer>),
    /// Another process wants to go on with the attachment, and waits at the other end.
    HandOver(UnixStream),
    /// A scrape of the metrics.
    Scrape(SyncSender<Scrape>),
}

/// The inbox, and what fills it with signals; made before anything is attached, so that no signal is
/// missed.
pub(super) struct Inbox {
    sender: Sender<Message>,
    receiver: Receiver<Message>,
}

impl Inbox {
    /// Hears signals from now on; with `reloads` SIGHUP also where it was ignored, since it does not end
    /// the process then.
    ///
    /// # Errors
    /// If the process cannot.
    pub(super) fn new(reloads: bool) -> anyhow::Result<Self> {
        let (sender, receiver) = channel();
        let mut heard = interrupt::heard();
        if reloads && !heard.contains(&SIGHUP) {
            heard.push(SIGHUP);
        }
        let mut signals = Signals::new(heard).context("cannot hear signals")?;
        let to = sender.clone();
        let hear = move || {
            for signal in signals.forever() {
                if to.send(Message::Signal(signal)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("signals".into()).spawn(hear).context("no thread")?;
        Ok(Self { sender, receiver })
    }

    /// Returns what puts messages into it.
    pub(super) fn sender(&self) -> Sender<Message> {
        self.sender.clone()
    }

    /// Answers control questions that come to a listener.
    fn hear_control(&self, listener: UnixListener) -> std::io::Result<thread::JoinHandle<()>> {
        let to = self.sender.clone();
        let answer = move || {
            let answer = |verb| {
                let (reply, answer) = sync_channel(1);
                to.send(Message::Control(verb, reply)).ok()?;
                answer.recv_timeout(PATIENCE).ok()
            };
            // If there is nobody to take it, the other side sees that it is closed.
            let hand_over = |stream| drop(to.send(Message::HandOver(stream)));
            answer_all(&listener, answer, hand_over);
        };
        thread::Builder::new().name("control".into()).spawn(answer)
    }
}

/// An attachment and what its process knows of it.
pub(super) struct Service<'a> {
    attachment: Attachment,
    on: OnInterface,
    args: &'a AttachArgs,
    terminal: &'a Terminal,
    inbox: Inbox,
    notifier: Notifier,
    started: Instant,
    metrics: Place,
    reloads: [u64; 2],
    reload_error: Option<String>,
    /// What was said last of CPUs.
    said: Option<String>,
    flows: FlowCount,
}

/// Why the loop ends.
enum End {
    /// It was told to.
    Told(Option<SyncSender<Answer>>),
    /// Another process goes on, which waits for a last word.
    HandedOver(UnixStream),
    /// The interface is gone, or another program is on it.
    Lost(String),
}

impl<'a> Service<'a> {
    /// Takes an attachment that was just made.
    ///
    /// # Errors
    /// If its interface is gone already.
    pub(super) fn new(
        attachment: Attachment,
        args: &'a AttachArgs,
        terminal: &'a Terminal,
        inbox: Inbox,
        metrics: Place,
    ) -> anyhow::Result<Self> {
        let there = programs_on_interfaces().context("cannot ask for the program just attached")?;
        let name = &attachment.settings().interface;
        let on = there.into_iter().find(|on| on.interface == *name);
        let on = on.with_context(|| format!("{name} went away while it was attached"))?;
        Ok(Self {
            attachment,
            on,
            args,
            terminal,
            inbox,
            notifier: Notifier::new(),
            started: Instant::now(),
            metrics,
            reloads: [0; 2],
            reload_error: None,
            said: None,
            flows: FlowCount::default(),
        })
    }

    /// Serves until it is told to end.
    ///
    /// # Errors
    /// If the output is gone, or no thread can be made.
    pub(super) fn run(mut self) -> anyhow::Result<Exit> {
        let control = match Listener::new(self.on.index) {
            Ok((held, listener)) => Some((held, self.inbox.hear_control(listener)?)),
            Err(error) => {
                self.terminal.note(format_args!(
                    "no control socket in /run/rxsteer ({error}): `detach` will send SIGTERM, and `status` \
                     shows what the kernel tells"
                ));
                None
            }
        };
        self.notifier.ready(&self.sentence());
        let end = self.serve();
        self.notifier.stopping();
        let Self { attachment, terminal, .. } = self;
        let seen = attachment.counters().map(|counters| counters.seen());
        drop(attachment);
        let control = control.map(|(_held, thread)| thread);
        let mut out = terminal.results();
        let seen = match seen {
            Ok(seen) => format!("{seen} packets seen"),
            Err(error) => format!("what was seen is not known: {error}"),
        };
        let (exit, reply) = match end {
            End::Told(reply) => (Exit::Fine, reply),
            End::HandedOver(stream) => {
                let _ = say(&stream, &Answer::Done(seen.clone()));
                writeln!(out, "handed over; {seen}")?;
                out.flush()?;
                // Closed by the end of this process, when all else that it had is free as well.
                std::mem::forget(stream);
                return Ok(Exit::Fine);
            }
            End::Lost(why) => {
                terminal.error(why);
                (Exit::Error, None)
            }
        };
        if let Some(reply) = reply {
            let _ = reply.send(Answer::Done(seen.clone()));
            // It ends when the answer is on its way.
            let _ = control.map(thread::JoinHandle::join);
        }
        writeln!(out, "detached; {seen}")?;
        out.flush()?;
        Ok(exit)
    }

    fn serve(&mut self) -> End {
        let mut upkeep = Instant::now();
        let mut told = Instant::now();
        let most = self.notifier.watchdog().map_or(TURN, |most| TURN.min(most / 3));
        loop {
            self.notifier.alive();
            let turn = if self.attachment.settings().beside { most.min(SHORT_TURN) } else { most };
            match self.inbox.receiver.recv_timeout(turn) {
                Ok(message) => {
                    if let Some(end) = self.take(message) {
                        return end;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return End::Told(None),
            }
            self.attachment.relieve();
            if upkeep.elapsed() >= UPKEEP {
                upkeep = Instant::now();
                self.attachment.maintain();
                self.follow_cpus();
                if let Some(why) = self.lost() {
                    return End::Lost(why);
                }
            }
            if told.elapsed() >= TELLING {
                told = Instant::now();
                self.notifier.status(&self.sentence());
            }
        }
    }

    fn take(&mut self, message: Message) -> Option<End> {
        match message {
            Message::Signal(SIGHUP) if self.args.config.is_some() => {
                match self.reload() {
                    Ok(said) => self.terminal.line(said),
                    Err(said) => self.terminal.error(said),
                }
                None
            }
            Message::Signal(_) => Some(End::Told(None)),
            Message::Control(Verb::Detach, reply) => Some(End::Told(Some(reply))),
            Message::Control(Verb::About, reply) => {
                let _ = reply.send(Answer::About(Box::new(self.about())));
                None
            }
            Message::Control(Verb::Reload, reply) => {
                let answer = match self.reload() {
                    Ok(said) => Answer::Done(said),
                    Err(said) => {
                        // Whoever reads what this process says shall know of it, too.
                        self.terminal.error(&said);
                        Answer::Refused(said)
                    }
                };
                let _ = reply.send(answer);
                None
            }
            Message::HandOver(stream) => self.hand_over(stream),
            Message::Control(Verb::HandOver, reply) => {
                // It comes with its connection, or not at all.
                let _ = reply.send(Answer::Refused("no connection to hand over to".to_owned()));
                None
            }
            Message::Scrape(reply) => {
                if let Ok(scrape) = self.scrape() {
                    let _ = reply.send(scrape);
                }
                None
            }
        }
    }

    /// Lets another process go on; if it does not, this one does.
    fn hand_over(&mut self, stream: UnixStream) -> Option<End> {
        let handover = match self.attachment.handover() {
            Ok(handover) => handover,
            Err(error) => {
                let _ = say(&stream, &Answer::Refused(error.to_string()));
                return None;
            }
        };
        let notifier = self.notifier;
        match give(&stream, &handover, || notifier.alive()) {
            Ok(()) => Some(End::HandedOver(stream)),
            Err(why) => {
                self.terminal.note(format_args!("not handed over, and going on: {why}"));
                let retaken = self.attachment.retake();
                self.look_again();
                retaken.err().map(|error| End::Lost(error.to_string()))
            }
        }
    }

    /// Reads the settings again; wrong ones change nothing.
    fn reload(&mut self) -> Result<String, String> {
        self.notifier.reloading();
        let done = self.read_again();
        self.reloads[usize::from(done.is_err())] += 1;
        self.reload_error = done.as_ref().err().cloned();
        self.notifier.ready(&self.sentence());
        done
    }

    fn read_again(&mut self) -> Result<String, String> {
        let kept =
            |error: &dyn std::fmt::Display| format!("{error}\nthe settings stay as they were");
        if self.args.config.is_none() {
            return Err(kept(&"attached without --config: there is nothing to read again"));
        }
        let host: CpuStates = host_cpus().map_err(|error| kept(&error))?;
        let asked = Asked::new(self.args, &host, read_bounded).map_err(|error| kept(&error))?;
        let former = self.metrics.move_to(asked.metrics);
        let former =
            former.map_err(|error| kept(&format_args!("{}: {error:#}", asked.metrics_place)))?;
        let overtaken = if asked.settings == *self.attachment.settings() {
            None
        } else {
            match self.attachment.change(asked.settings) {
                Ok(change) => {
                    self.look_again();
                    Some(overtaken(&change))
                }
                Err(error) => {
                    if let Some(former) = former {
                        self.metrics.back_to(former);
                    }
                    return Err(kept(&error));
                }
            }
        };
        if overtaken.is_none() && former.is_none() {
            return Ok("settings read again: nothing has changed".to_owned());
        }
        let moved = match (former, self.metrics.address()) {
            (None, _) => String::new(),
            (Some(_), None) => "; no metrics any more".to_owned(),
            (Some(_), Some(address)) => {
                note_reach(address, self.terminal);
                format!("; metrics at http://{address}/metrics")
            }
        };
        Ok(format!("settings read again and in force{moved}{}", overtaken.unwrap_or_default()))
    }

    /// Follows CPUs that went offline or came back.
    fn follow_cpus(&mut self) {
        let Ok(host) = host_cpus() else { return };
        let said = match self.attachment.follow_cpus(&host.online) {
            Ok(None) => return,
            Ok(Some(change)) => {
                self.look_again();
                format!(
                    "CPUs went offline or came back: packets go to others{}",
                    overtaken(&change)
                )
            }
            Err(error) => format!("CPUs went offline or came back, and nothing changes: {error}"),
        };
        // What does not get better is said once.
        if self.said.as_ref() != Some(&said) {
            self.terminal.note(&said);
            self.said = Some(said);
        }
    }

    /// A change puts another program on the interface.
    fn look_again(&mut self) {
        let there = programs_on_interfaces().unwrap_or_default();
        if let Some(on) = there.into_iter().find(|on| on.index == self.on.index) {
            self.on = on;
        }
    }

    /// Returns why the interface is not steered by this process any more; `None` if it is.
    fn lost(&self) -> Option<String> {
        let OnInterface { interface, index, .. } = &self.on;
        if !self.attachment.has_interface() {
            return Some(format!("the interface {interface} is gone from this network namespace"));
        }
        // What cannot be asked is not known to be lost.
        let there = programs_on_interfaces().ok()?;
        match there.into_iter().find(|on| on.index == *index) {
            Some(on) if on.id == self.on.id => None,
            Some(on) => Some(format!(
                "{interface} has another XDP program now, {} (number {}): ours was taken off",
                on.program, on.id
            )),
            None => Some(format!("our program was taken off {interface}")),
        }
    }

    fn about(&self) -> About {
        About {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            interface: self.on.interface.clone(),
            uptime_s: self.started.elapsed().as_secs(),
            config: self.args.config.as_ref().map(absolute),
            metrics: self.metrics.address().map(|address| address.to_string()),
            reloads: self.reloads[0],
            reloads_failed: self.reloads[1],
            reload_error: self.reload_error.clone(),
            settings: keys_of(self.attachment.settings()),
        }
    }

    fn scrape(&mut self) -> anyhow::Result<Scrape> {
        let counters = self.attachment.counters()?;
        let settings = self.attachment.settings();
        Ok(Scrape {
            device: settings.interface.clone(),
            policy: settings.policy.name(),
            mode: self.attachment.mode().to_string(),
            counters,
            online: host_cpus().map_or(settings.cpus, |host| host.online),
            serving: settings.cpus,
            flows: self.flows.now(&self.attachment),
            table_entries: settings.table_entries,
            uptime: self.started.elapsed(),
            reloads: self.reloads,
        })
    }

    /// Returns what a service manager shows.
    fn sentence(&self) -> String {
        let settings = self.attachment.settings();
        let head = format!(
            "{} in {} mode, {}, CPUs {}",
            settings.interface,
            self.attachment.mode(),
            settings.policy.name(),
            settings.cpus.list()
        );
        let seen = self.attachment.counters().map_or_else(
            |_| String::new(),
            |counters| {
                let rate = counters.hit_rate().map_or("-".to_owned(), percent);
                format!("; {} packets, hit rate {rate}", count(counters.seen()))
            },
        );
        let failed = if self.reload_error.is_some() { "; the last reload failed" } else { "" };
        format!("{head}{seen}{failed}")
    }
}

/// Returns what a change means for the order of packets, where it is not nothing.
fn overtaken(change: &Change) -> String {
    match change.may_overtake {
        Some(0) => String::new(),
        Some(packets) => {
            format!("; {packets} packets may be overtaken by later ones of their flow")
        }
        None => "; packets that waited may be overtaken by later ones of their flow".to_owned(),
    }
}

/// Returns a path that holds in whatever directory it is read.
fn absolute(path: &PathBuf) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.clone())
}

/// The number of flows in the tables, which takes a look at all of them: not more often than costs a
/// hundredth of a CPU.
#[derive(Default)]
struct FlowCount {
    counted: Option<(Instant, Duration, [usize; 2])>,
}

impl FlowCount {
    fn now(&mut self, attachment: &Attachment) -> [usize; 2] {
        if let Some((at, took, flows)) = self.counted
            && at.elapsed() < took * 100
        {
            return flows;
        }
        let start = Instant::now();
        let flows = attachment.flows();
        self.counted = Some((Instant::now(), start.elapsed(), flows));
        flows
    }
}
