//! Fuzz target: the dissector. See `src/dissect.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rxsteer_fuzz::dissect::check(data));
