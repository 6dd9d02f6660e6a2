//! The built-in sample: a capture, its host and its consumers.
//!
//! Always true: the capture is what `cargo xtask sample` makes; a test makes it again and compares.

use rxsteer_lab::capture::{CaptureError, CaptureOptions, Captures};

/// Name of the sample in reports.
pub const NAME: &str = "built-in sample";

/// Its host, as TOML.
pub const HOST: &str = include_str!("../sample/host.toml");

/// Its consumers, as TOML.
pub const CONSUMERS: &str = include_str!("../sample/consumers.toml");

const CAPTURE: &[u8] = include_bytes!("../sample/sample.pcapng.zst");

/// Opens the capture.
///
/// # Errors
/// None while the file is what it should be.
pub fn open() -> Result<Captures, CaptureError> {
    Captures::from_reader(NAME, Box::new(CAPTURE), &CaptureOptions::default())
}

#[cfg(test)]
mod tests {
    use rxsteer_lab::generate;

    use super::*;

    #[test]
    fn the_capture_is_what_the_generator_makes() {
        let mut made = Vec::new();
        let mut frames = generate::sample().frames();
        let packets = generate::write_pcapng(&mut made, &mut frames, u64::MAX).unwrap();
        let kept = zstd::decode_all(CAPTURE).unwrap();
        assert!(kept == made, "run `cargo xtask sample`");
        assert!(packets > 15_000 && CAPTURE.len() < 400_000);
        let mut captures = open().unwrap();
        let mut read = 0;
        while captures.next_packet().unwrap().is_some() {
            read += 1;
        }
        assert_eq!(read, packets);
        assert_eq!(captures.notes(), []);
    }
}
