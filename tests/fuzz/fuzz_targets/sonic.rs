#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| srv6d_differential::sonic::sonic(data));
