//! Tests that a configuration is read and planned in time proportional to its size, for every kind of entry.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use srv6d_config as config;
use srv6d_plan::{self as plan, Environment};
use srv6d_sonic_switch as sonic;

/// Makes a configuration with so many entries of a kind.
type Text = fn(usize) -> String;

const SMALL: usize = 3_000;
const TIMES: usize = 4;
/// Largest number of pairs that are measured.
const PAIRS: usize = 6;

fn items(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect()
}

/// Returns the nth block of 32 bits, without its zeros.
fn block(n: usize) -> String {
    format!("{:x}:{:x}", 0x3000 + (n >> 12), n & 0xfff)
}

fn blocks(count: usize) -> String {
    items(count, |n| format!("[[block]]\nprefix = \"{}::/32\"\n", block(n)))
}

const PORT: &str = "[node]\nsource = \"2001:db8::1\"\n[[port]]\nname = \"eth1\"\nrole = \"fabric\"\n";

const KINDS: [(&str, Text); 6] = [
    ("[[block]]", blocks),
    ("[[sid]] in blocks", |n| {
        blocks(n) + &items(n, |n| format!("[[sid]]\nsid = \"{}:1::/48\"\nbehavior = \"uN\"\n", block(n)))
    }),
    ("hosts of a block, beside SIDs", |n| {
        let hosts: Vec<String> = (0..n).map(|n| format!("\"fcbb:0:2:{n:x}::/64\"")).collect();
        let sids = items(n, |n| format!("[[sid]]\nsid = \"fcbb:0:1:{n:x}::/64\"\nbehavior = \"uDT6\"\n"));
        format!("[[block]]\nprefix = \"fcbb::/32\"\nhosts = [{}]\n{sids}", hosts.join(", "))
    }),
    ("uA to the neighbours of ports", |n| {
        let neighbors = items(n, |n| {
            format!("[[neighbor]]\naddress = \"fe80::{n:x}\"\nport = \"eth1\"\nmac = \"02:00:00:00:00:01\"\n")
        });
        let sids = items(n / 100, |n| {
            format!("[[sid]]\nsid = \"fcbb:0:{n:x}::/48\"\nbehavior = \"uA\"\nvia = \"fe80::{n:x}\"\nport = \"eth1\"\n")
        });
        format!("{PORT}[[block]]\nprefix = \"fcbb::/32\"\n{neighbors}{sids}")
    }),
    ("[[route]] to blocks", |n| {
        let route = |n| format!("[[route]]\nprefix = \"{}:1::/48\"\nvia = \"fe80::2\"\nport = \"eth1\"\n", block(n));
        PORT.to_owned() + &blocks(n) + &items(n, route)
    }),
    ("[[steer]] into blocks", |n| {
        let steer = |n: usize| {
            format!(
                "[[steer]]\nprefix = \"2001:db8:{n:x}::/48\"\nsegments = [\"{}:1::\"]\nvia = \"fe80::2\"\nport = \"eth1\"\n",
                block(n)
            )
        };
        PORT.to_owned() + &blocks(n) + &items(n, steer)
    }),
];

fn time(run: impl Fn()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

/// Whatever disturbs a run makes it longer, so some pairs are measured, each one right behind the other. Work in
/// proportion to the square takes twice as long as is allowed in each of them.
fn assert_in_proportion(kind: &str, run: impl Fn(usize)) {
    let pair = |_| (time(|| run(SMALL)), time(|| run(TIMES * SMALL)));
    let is_in_proportion = |(short, long): &(Duration, Duration)| *long < *short * 2 * u32::try_from(TIMES).unwrap();
    let pairs: Vec<(Duration, Duration)> = (0..PAIRS).map(pair).take_while(|pair| !is_in_proportion(pair)).collect();
    assert!(pairs.len() < PAIRS, "{kind}: {SMALL} and {TIMES} times as many take {pairs:?}");
}

#[test]
fn every_kind_of_entry_takes_time_in_proportion_to_its_number() {
    for (kind, text) in KINDS {
        let texts = [SMALL, TIMES * SMALL].map(text);
        assert_in_proportion(kind, |count| {
            let [small, large] = &texts;
            let text = if count > SMALL { large } else { small };
            plan::plan(&config::parse(text, "srv6d.toml").unwrap(), &Environment::default()).unwrap();
        });
    }
}

#[test]
fn the_kernel_of_a_switch_is_planned_in_time_proportional_to_its_files() {
    let files = |count: usize| {
        let port = |n: usize| {
            format!(r#","Ethernet{}": {{"vrf_name": "Vrf{n}"}},"Ethernet{}|fd91:{n:x}::1/64": {{}}"#, 4 * n, 4 * n)
        };
        let config_db = format!(r#"{{"INTERFACE": {{"Loopback0": {{}}{}}}}}"#, items(count, port));
        let frr = items(count, |n| format!("vrf Vrf{n}\n ipv6 route fd92:{n:x}::/64 fd91:{n:x}::2\n"));
        srv6d_sonic::read(Some(&config_db), Some(&frr), None, false).unwrap().switch
    };
    let switches = [files(SMALL), files(TIMES * SMALL)];
    assert_in_proportion("Wanted", |count| {
        let switch = switches.iter().find(|switch| switch.ports.len() == count).unwrap();
        assert_eq!(sonic::Wanted::of(switch, false).ports.len(), count);
    });
}
