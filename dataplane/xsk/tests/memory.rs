//! Measures the kernel memory of the claim program and its maps. It is the only test of its process, because maps of
//! other tests would be counted, too.
#![allow(clippy::unwrap_used)] // a failure here is a failed test

mod netns;

use std::net::Ipv6Addr;

use netns::{enter, ip};
use srv6d_xsk::{Capacity, ClaimProgram, Mode, Program, ProgramSettings, View, kernel_memory};

/// The number of ports of a switch.
const PORTS: u32 = 24;
const CLAIMS: u16 = 500;
const MIB: u64 = 1 << 20;

fn used() -> u64 {
    kernel_memory(std::process::id()).unwrap()
}

#[test]
#[ignore = "needs root"]
fn claims_take_memory_once_for_all_ports_and_none_for_what_is_not_there() {
    enter();
    let before = used();
    let loaded = ClaimProgram::load(Capacity { ports: 256, queues: 1 }).unwrap();
    let mut programs = Vec::new();
    for number in 0..PORTS {
        ip(&format!("link add name port{number} type veth peer name peer{number}"));
        let port = format!("port{number}");
        let settings = ProgramSettings { untagged: true, vlans: vec![100], ..ProgramSettings::default() };
        programs.push(Program::attach_loaded(&loaded, number, &port, Mode::Auto, &settings).unwrap());
    }
    let empty = used() - before;
    assert!(empty > 0, "the kernel says nothing of its maps");
    assert!(empty < MIB * 3 / 4, "{empty} bytes for {PORTS} ports without a claim");

    let claims: Vec<_> = (0..CLAIMS).map(|n| (Ipv6Addr::new(0xfcbb, 0, n, 0, 0, 0, 0, 0), 48, true)).collect();
    loaded.set_claims(View(1), &claims, &[]).unwrap();
    loaded.set_outer_sources(View(1), &["2001:db8::1".parse().unwrap()].into()).unwrap();
    for program in &mut programs {
        program.set_view(View(1)).unwrap();
    }
    let full = used() - before;
    assert!(full < MIB, "{full} bytes for {PORTS} ports with {CLAIMS} claims");
    println!("{PORTS} ports: {empty} bytes without a claim, {full} with {CLAIMS}");

    loaded.drop_view(View(1)).unwrap();
    assert!(used() - before <= empty, "what was claimed once takes memory for ever");
}
