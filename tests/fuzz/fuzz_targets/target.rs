//! Every fuzz target in one binary: `SRV6D_FUZZ_TARGET` names the one to run.
#![no_main]

use std::sync::OnceLock;

use srv6d_differential::fuzz::{TARGETS, Target};

libfuzzer_sys::fuzz_target!(|data: &[u8]| target().check(data));

/// Returns the fuzz target that the environment names.
fn target() -> &'static Target {
    static TARGET: OnceLock<&'static Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var("SRV6D_FUZZ_TARGET").unwrap_or_default();
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        let found = TARGETS.iter().find(|target| target.name == name);
        found.unwrap_or_else(|| panic!("SRV6D_FUZZ_TARGET is {name:?}, not one of {names:?}"))
    })
}
