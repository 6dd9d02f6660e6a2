//! `attach --replace`: going on with the attachment of a running process.

use anyhow::Context as _;
use rxsteer_kernel::{Attachment, Settings, holders, programs_on_interfaces};

use super::control::{Answer, Answerless, ask_for_attachment};
use crate::terminal::Terminal;

/// Takes over from the process that steers the interface, or attaches anew if there is none. Returns
/// what there is to say of it.
pub(super) fn take_over(
    settings: Settings,
    terminal: &Terminal,
) -> anyhow::Result<(Attachment, String)> {
    let name = settings.interface.clone();
    let there = programs_on_interfaces().context("cannot ask for the XDP programs")?;
    let Some(on) = there.into_iter().find(|on| on.interface == name) else {
        terminal.note(format_args!("nothing is attached to {name}: nothing to take over"));
        return Ok((Attachment::new(settings)?, String::new()));
    };
    let given = match ask_for_attachment(on.index) {
        Ok(given) => given.map_err(anyhow::Error::msg),
        Err(Answerless::NoSocket) if !on.is_ours() => {
            // Says whose it is, and what may be done.
            return Ok((Attachment::new(settings)?, String::new()));
        }
        Err(Answerless::NoSocket) => Err(anyhow::anyhow!("nobody listens in /run/rxsteer")),
        Err(Answerless::Failed(error)) => Err(error.into()),
    };
    let given = given.with_context(|| {
        let held: Vec<String> = holders(on.id).iter().map(ToString::to_string).collect();
        let held = if held.is_empty() { "its process".to_owned() } else { held.join(", ") };
        format!("{held} does not hand {name} over")
    })?;
    let (handover, taken) = given.split();
    let (attachment, change) = Attachment::from_handover(handover, settings)?;
    let last = taken.done().with_context(|| {
        format!("the process that held {name} does not say that it lets go, and keeps it")
    })?;
    let Answer::Done(seen) = last else { anyhow::bail!("{name}: {last:?} instead of the end") };
    if change.may_overtake != Some(0) {
        let packets = change.may_overtake.map_or("the".to_owned(), |packets| packets.to_string());
        terminal.note(format_args!(
            "{packets} packets that waited may be overtaken by later ones of their flow"
        ));
    }
    Ok((attachment, format!(", taken over with {seen}")))
}
