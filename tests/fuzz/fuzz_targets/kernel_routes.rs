#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| srv6d_differential::routes::kernel::kernel_routes(data));
