//! Fuzz target: the datagram checks. See `src/datagram.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rxsteer_fuzz::datagram::check(data));
