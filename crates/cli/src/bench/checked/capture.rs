//! `bench gen --capture` as it is meant.

use rxsteer_bench::{CapturePace, CaptureSpec};

use super::{Link, cpu, making, number, rate, refused, send_batch};
use crate::args::checked::UsageError;
use crate::bench::args::{CaptureArgs, GenArgs};

/// What `bench gen --capture` does.
#[derive(Clone, Debug)]
pub struct Capture {
    /// What is sent, and how.
    pub spec: CaptureSpec,
    /// The link of the testbed.
    pub link: Link,
}

impl TryFrom<&GenArgs> for Capture {
    type Error = UsageError;

    fn try_from(args: &GenArgs) -> Result<Self, UsageError> {
        let CaptureArgs { capture, speed, r#loop, pad } = &args.capture;
        if args.to.is_some() || !args.permit.i_own_this_network.is_empty() {
            return Err(refused("--to", "packets of a capture stay in the testbed"));
        }
        let made = making(&args.traffic).or(args.link.ipv6.then_some("--ipv6"));
        if let Some(flag) = made {
            return Err(refused(flag, "is for packets that are made, and --capture has its own"));
        }
        let pace = match (speed.as_deref(), rate(&args.traffic)?) {
            (None, 0) => CapturePace::Recorded(1.0),
            (None, rate) => CapturePace::Rate(rate),
            (Some(_), 1..) => {
                return Err(refused("--speed", "goes by the capture's times, and --rate does not"));
            }
            (Some("max"), 0) => CapturePace::Fastest,
            (Some(text), 0) => CapturePace::Recorded(factor(text)?),
        };
        let spec = CaptureSpec {
            files: capture.clone(),
            pace,
            rounds: number("--loop", r#loop.as_ref(), 1, 0..=u64::MAX)?,
            pads: *pad,
            until: (&args.traffic.until).try_into()?,
            batch: send_batch(&args.traffic)?,
            cpu: cpu("--source-cpu", args.traffic.source_cpu.as_ref())?,
        };
        Ok(Self { spec, link: (&args.link).try_into()? })
    }
}

fn factor(text: &str) -> Result<f64, UsageError> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value = text.parse().ok().filter(|_| is_plain);
    match value.filter(|value| CapturePace::ALLOWED_SPEED.contains(value)) {
        Some(value) => Ok(value),
        None => {
            let message =
                format!("`{text}`: allowed are 0.001 to 1000000, such as 2 or 0.5, and max");
            Err(refused("--speed", message))
        }
    }
}
