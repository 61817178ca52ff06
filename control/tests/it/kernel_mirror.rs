//! Tests that the copy of the kernel's routes, which follows events, is always equal to a dump.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use srv6d_daemon::kernel::Mirror;
use srv6d_netns as netns;
use srv6d_plan::Environment;
use support::rig::{Rig, run};

/// Number of steps of a random walk.
const STEPS: usize = 300;

#[test]
#[ignore = "needs root"]
fn events_keep_what_a_dump_says() {
    for compat in [1, 0] {
        let rig = Rig::new(1);
        rig.inside("router", &format!("sysctl -qw net.ipv4.nexthop_compat_mode={compat}"));
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
        println!("SEED={seed} nexthop_compat_mode={compat}");
        let namespace = rig.ns("router");
        let walk = std::thread::spawn(move || {
            netns::move_thread(&namespace).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(walk(seed));
        });
        walk.join().unwrap();
    }
}

async fn walk(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut mirror = Mirror::start().unwrap();
    mirror.follow_routes(true).unwrap();
    let mut environment = mirror.environment().await.unwrap();
    let mut history = String::new();
    for _ in 0..STEPS {
        // Several changes are made together, so that their events interact.
        let mut changed = false;
        for _ in 0..random.u8(1..4) {
            let command = change(&mut random);
            let done = run(&format!("ip {command}")).status.success();
            changed |= done;
            writeln!(history, "{} ip {command}", if done { "+" } else { "-" }).unwrap();
        }
        if changed {
            agree(&mut mirror, &mut environment, &history).await;
        }
    }
    let dumps = mirror.route_dumps();
    println!("{dumps} dumps in {STEPS} steps");
    assert!(dumps < STEPS as u64 * 3 / 4, "events hardly ever sufficed");
}

async fn agree(mirror: &mut Mirror, environment: &mut Environment, history: &str) {
    let end = Instant::now() + Duration::from_mins(1);
    loop {
        // Some changes cause no event, so the test continues after a timeout.
        let _ = tokio::time::timeout(Duration::from_millis(20), mirror.changed()).await;
        mirror.look(environment).await.unwrap();
        let mut another = Mirror::start().unwrap();
        another.follow_routes(true).unwrap();
        let fresh = another.environment().await.unwrap();
        let (kept, dumped) = (shown(environment), shown(&fresh));
        if kept == dumped {
            return;
        }
        if Instant::now() > end {
            let last: Vec<&str> = history.lines().rev().filter(|line| line.starts_with('+')).take(12).collect();
            let only = |one: &[String], other: &[String]| -> Vec<String> {
                one.iter().filter(|route| !other.contains(route)).cloned().collect()
            };
            let (kept, dumped) = (only(&kept, &dumped), only(&dumped, &kept));
            assert_eq!(kept, dumped, "kept, and dumped, after (newest first): {last:#?}");
        }
    }
}

fn shown(environment: &Environment) -> Vec<String> {
    let routes = environment.routes.used().map(|route| format!("{route:?}"));
    routes.chain(environment.routes.rules().iter().map(ToString::to_string)).collect()
}

/// Returns the arguments of one `ip` command, with few prefixes, ports and objects, so that commands interact.
fn change(random: &mut fastrand::Rng) -> String {
    match random.u8(0..24) {
        0 => return "link set eth2 down".to_owned(),
        1 | 2 => return "link set eth2 up".to_owned(),
        3 => return "addr del 10.2.0.1/24 dev eth2".to_owned(),
        4 => return "addr replace 10.2.0.1/24 dev eth2".to_owned(),
        5 => return "addr replace 10.1.0.1/24 dev eth1".to_owned(),
        6 => return "-6 addr replace 2001:db8:b::1/64 dev eth2 nodad".to_owned(),
        7 => return rule(random),
        8..12 => return next_hop_object(random),
        _ => {}
    }
    route(random)
}

fn rule(random: &mut fastrand::Rng) -> String {
    let family = if random.bool() { "-6" } else { "-4" };
    let verb = if random.bool() { "add" } else { "del" };
    let which = ["iif eth1 lookup 100", "lookup 100", "fwmark 7 lookup 100", "blackhole"];
    format!("{family} rule {verb} prio {} {}", random.u16(100..103), which[random.usize(0..4)])
}

fn next_hop_object(random: &mut fastrand::Rng) -> String {
    let id = random.u8(1..5);
    let last = random.u8(2..6);
    match random.u8(0..9) {
        0 => format!("nexthop del id {id}"),
        1 => format!("nexthop del id {}", random.u8(10..14)),
        2 => format!("nexthop replace id {} group 1,3/2,{}", random.u8(10..12), random.u8(1..4)),
        3 => format!("nexthop replace id {} group 2/5/4", random.u8(12..14)),
        4 if random.bool() => format!("nexthop replace id {id} blackhole"),
        4 => format!(
            "nexthop replace id {id} encap seg6 mode encap segs fcbb:0:1::{last} via 2001:db8:a::{last} dev eth1"
        ),
        5 | 6 => format!("nexthop replace id {id} via 2001:db8:a::{last} dev eth1"),
        _ if id == 2 || id == 4 => format!("nexthop replace id {id} via 10.2.0.{last} dev eth2"),
        _ => format!("nexthop replace id {id} via 2001:db8:b::{last} dev eth2"),
    }
}

fn route(random: &mut fastrand::Rng) -> String {
    let v6 = random.bool();
    let family = if v6 { "-6" } else { "-4" };
    let prefix = match (v6, random.u8(0..4)) {
        (true, 0) => "::/0".to_owned(),
        (true, _) => format!("fcbb:0:{}::/48", random.u8(1..3)),
        (false, 0) => "0.0.0.0/0".to_owned(),
        (false, _) => format!("172.16.{}.0/24", random.u8(1..3)),
    };
    let hop = |random: &mut fastrand::Rng| {
        let (port, net) = if random.bool() { ("eth1", "a") } else { ("eth2", "b") };
        let last = random.u8(2..5);
        match (v6, random.u8(0..8)) {
            (false, 0) => format!("dev {port}"),
            (true, 0 | 1) => {
                format!("encap seg6 mode encap segs fcbb:0:9::{last} via 2001:db8:{net}::{last} dev {port}")
            }
            (true, _) => format!("via 2001:db8:{net}::{last} dev {port}"),
            (false, 1) => format!("via inet6 2001:db8:{net}::{last} dev {port}"),
            (false, _) => format!("via 10.{}.0.{last} dev {port}", if net == "a" { 1 } else { 2 }),
        }
    };
    let metric = if random.u8(0..3) == 0 { format!("metric {}", random.u8(1..3)) } else { String::new() };
    let table = if random.u8(0..4) == 0 { "table 100" } else { "" };
    let verb = ["add", "replace", "del", "append", "prepend", "change"][random.usize(0..6)];
    // Between the next hops of a multipath IPv6 route, Linux can hold a route of the same metric that cannot be one of
    // them. No dump shows it until a next hop is removed, so it cannot be followed. Here, such routes have other
    // metrics.
    let apart = if v6 { format!("metric {}", random.u8(5..7)) } else { metric.clone() };
    let body = match random.u8(0..10) {
        0 => return format!("{family} route {verb} blackhole {prefix} {apart} {table}"),
        1 => return format!("{family} route {verb} {prefix} {apart} {table} nhid {}", random.u8(1..5)),
        2 => return format!("{family} route {verb} {prefix} {apart} {table} nhid {}", random.u8(10..14)),
        3 | 4 => format!("nexthop {} weight {} nexthop {}", hop(random), random.u8(1..4), hop(random)),
        5 if verb == "del" => String::new(),
        6 if !v6 => return format!("{family} route {verb} {prefix} {metric} {table} tos 16 {}", hop(random)),
        7 if !v6 => return format!("{family} route {verb} local {prefix} {metric} {table} dev lo"),
        _ => hop(random),
    };
    format!("{family} route {verb} {prefix} {metric} {table} {body}")
}
