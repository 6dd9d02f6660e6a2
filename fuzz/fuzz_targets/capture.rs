//! Fuzz target: the capture reader. See `src/capture.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rxsteer_fuzz::capture::check(data));
