//! Tests of following the kernel's routes: srv6d forwards by all routes that `ip route` accepts.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use serde_json::Value;
use support::rig::{self, Rig, run, wait_for};

/// Prefix and treatment of its packets, in one notation for both sides.
type Fib = BTreeMap<String, String>;

fn config() -> String {
    format!("{}\n[kernel]\n", rig::CONFIG)
}

fn started() -> Rig {
    let mut rig = Rig::new(1);
    rig.start("node", &config());
    wait_for("daemon", || rig.ask("node", "show ports").status.success().then_some(()));
    rig
}

fn show(rig: &Rig, what: &str) -> Vec<Value> {
    serde_json::from_slice(&rig.ask("node", &format!("show {what} --json")).stdout).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the routes that srv6d has in the main table.
fn followed(rig: &Rig) -> Fib {
    let mut fib = Fib::new();
    for route in show(rig, "routes").iter().filter(|route| route["table"] == 254) {
        let hop = |hop: &Value| {
            let via = hop["via"].as_str().unwrap_or("-");
            format!("{via} {} {}", text(&hop["port"]), hop["weight"])
        };
        let mut hops: Vec<String> = route["next_hops"].as_array().unwrap().iter().map(hop).collect();
        hops.sort();
        fib.insert(
            text(&route["prefix"]).to_owned(),
            format!("{} {}", text(&route["type"]), hops.join(", ")).trim().to_owned(),
        );
    }
    for path in show(rig, "paths") {
        let segments: Vec<&str> = path["segments"].as_array().unwrap().iter().map(text).collect();
        let entry = fib.entry(text(&path["prefix"]).to_owned()).or_insert_with(|| "seg6".to_owned());
        write!(entry, " [{} {} {}]", text(&path["mode"]), segments.join(","), path["weight"]).unwrap();
    }
    fib
}

/// Returns the routes of the kernel, from `ip -j route`.
fn kernel(rig: &Rig) -> Fib {
    let mut best: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for family in ["-4", "-6"] {
        let routes: Vec<Value> =
            serde_json::from_str(&rig.inside("router", &format!("ip -j {family} route show table main"))).unwrap();
        for route in &routes {
            let prefix = full(text(&route["dst"]), family);
            if prefix.starts_with("fe80") || prefix.starts_with("ff00") {
                continue;
            }
            let metric = route["metric"].as_u64().unwrap_or(0);
            let kept = best.get(&prefix).is_none_or(|(kept, _)| metric < *kept);
            if kept {
                best.insert(prefix, (metric, meaning(route)));
            }
        }
    }
    best.into_iter().map(|(prefix, (_, meaning))| (prefix, meaning)).collect()
}

fn full(prefix: &str, family: &str) -> String {
    match (prefix, family) {
        ("default", "-4") => "0.0.0.0/0".to_owned(),
        ("default", _) => "::/0".to_owned(),
        (prefix, _) if prefix.contains('/') => prefix.to_owned(),
        (host, "-4") => format!("{host}/32"),
        (host, _) => format!("{host}/128"),
    }
}

fn meaning(route: &Value) -> String {
    if let Some(kind) = route["type"].as_str() {
        return kind.to_owned();
    }
    let mut hops = route["nexthops"].as_array().cloned().unwrap_or_else(|| vec![route.clone()]);
    let encapsulates = |hop: &Value| hop["encap"] == "seg6";
    let in_part = hops.iter().any(encapsulates) && !hops.iter().all(encapsulates);
    let alive = |hop: &Value| {
        !hop["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "dead" || flag == "linkdown"))
    };
    if hops.len() > 1 {
        hops.retain(alive);
    }
    // srv6d does not support a route that encapsulates for some next hops only, or in two modes.
    let in_two_modes = hops.iter().any(|hop| hop["mode"] != hops[0]["mode"]);
    if hops.is_empty() || in_part || in_two_modes {
        return "kernel".to_owned();
    }
    if hops[0]["encap"] == "seg6" {
        let encap = |hop: &Value| {
            let segments: Vec<&str> = hop["segs"].as_array().unwrap().iter().map(text).collect();
            format!("[{} {} {}]", text(&hop["mode"]), segments.join(","), hop["weight"].as_u64().unwrap_or(1))
        };
        return format!("seg6 {}", hops.iter().map(encap).collect::<Vec<_>>().join(" "));
    }
    let hop = |hop: &Value| {
        let via = hop["gateway"].as_str().or(hop["via"]["host"].as_str()).unwrap_or("-");
        format!("{via} {} {}", text(&hop["dev"]), hop["weight"].as_u64().unwrap_or(1))
    };
    let mut hops: Vec<String> = hops.iter().map(hop).collect();
    hops.sort();
    format!("unicast {}", hops.join(", "))
}

/// Removes encapsulating routes without a route to their first segment, which stay with the kernel and are reported.
fn leave_out_what_is_named(rig: &Rig, (kernel, followed): &mut (Fib, Fib)) {
    for row in show(rig, "routes --unfollowed") {
        let (prefix, why) = (text(&row["prefix"]), text(&row["why"]));
        // Any other reason may be outdated, and both sides differ until srv6d has seen later changes.
        if kernel.get(prefix).is_some_and(|meaning| meaning.starts_with("seg6"))
            && followed.get(prefix).is_some_and(|meaning| meaning == "kernel")
            && (why.contains("segment") || why.contains("circle"))
        {
            kernel.remove(prefix);
            followed.remove(prefix);
        }
    }
}

#[track_caller]
fn agree(rig: &Rig, after: &str) {
    let mut seen = (Fib::new(), Fib::new());
    let end = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while std::time::Instant::now() < end {
        seen = (kernel(rig), followed(rig));
        leave_out_what_is_named(rig, &mut seen);
        if seen.0 == seen.1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(seen.0, seen.1, "the kernel, and srv6d, after: {after}");
}

#[test]
#[ignore = "needs root"]
fn a_random_walk_of_route_changes_ends_where_the_kernel_does() {
    let rig = started();
    rig.inside("router", "ip addr add 10.1.0.1/24 dev eth1");
    rig.inside("router", "ip addr add 10.2.0.1/24 dev eth2");
    agree(&rig, "the start");
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut history = format!("SEED={seed}\n");
    for _ in 0..80 {
        let command = change(&mut random);
        // Some commands are refused (nothing to delete, or it exists already). Both sides must agree nevertheless.
        let done = rig.output("router", &command).status.success();
        writeln!(history, "{} {command}", if done { "+" } else { "-" }).unwrap();
        agree(&rig, &history);
    }
}

/// The kernel combines appended routes into one.
#[test]
#[ignore = "needs root"]
fn what_encapsulates_in_part_or_in_two_modes_stays_with_the_kernel() {
    let rig = started();
    for change in [
        "add 2001:db8:77::/48 encap seg6 mode encap segs fcbb:0:2001:: via 2001:db8:a::2 dev eth1",
        "append 2001:db8:77::/48 via 2001:db8:a::3 dev eth1",
        "del 2001:db8:77::/48 via 2001:db8:a::3 dev eth1",
        "append 2001:db8:77::/48 encap seg6 mode encap.red segs fcbb:0:2001:: via 2001:db8:a::3 dev eth1",
    ] {
        rig.inside("router", &format!("ip -6 route {change}"));
        agree(&rig, change);
    }
}

/// A route with another action is amended in place, if nothing else changes with it.
#[test]
#[ignore = "needs root"]
fn amendments_are_counted() {
    let rig = started();
    let amended = || {
        let view: Value = serde_json::from_slice(&rig.ask("node", "show generation --json").stdout).unwrap();
        assert!(view["tables"]["whole"].as_u64().unwrap() > 0, "{view}");
        view["tables"]["in_place"].as_u64().unwrap()
    };
    rig.inside("router", "ip route add blackhole 10.44.0.0/16");
    agree(&rig, "a route");
    let before = amended();
    let mut meanings = ["unreachable", "blackhole"].into_iter().cycle();
    wait_for("an amendment", || {
        let meaning = meanings.next().unwrap_or_default();
        rig.inside("router", &format!("ip route replace {meaning} 10.44.0.0/16"));
        agree(&rig, meaning);
        (amended() > before).then_some(())
    });
    let text = String::from_utf8(rig.ask("node", "show generation").stdout).unwrap();
    assert!(text.contains("\ntables: compiled whole "), "{text}");
}

/// Returns one `ip` command with few prefixes, so that commands interact. Sometimes it changes something that routes
/// depend on.
fn change(random: &mut fastrand::Rng) -> String {
    match random.u8(0..20) {
        16 | 17 => return next_hop_object(random),
        0 => return "ip link set eth2 down".to_owned(),
        1 | 2 => return "ip link set eth2 up".to_owned(),
        3 => return "ip addr del 10.2.0.1/24 dev eth2".to_owned(),
        4 => return "ip addr replace 10.2.0.1/24 dev eth2".to_owned(),
        5 => return "ip -6 addr replace 2001:db8:b::1/64 dev eth2 nodad".to_owned(),
        _ => {}
    }
    let v6 = random.bool();
    let family = if v6 { "-6" } else { "-4" };
    let prefix = match (v6, random.u8(0..4)) {
        (true, 0) => "::/0".to_owned(),
        (true, 1) => "2001:db8:77::/48".to_owned(),
        (true, _) => format!("fcbb:0:{}::/48", random.u8(1..4)),
        (false, 0) => "0.0.0.0/0".to_owned(),
        (false, 1) => "172.16.0.0/12".to_owned(),
        (false, _) => format!("172.16.{}.0/24", random.u8(1..4)),
    };
    let hop = |random: &mut fastrand::Rng| {
        let (port, net) = if random.bool() { ("eth1", "a") } else { ("eth2", "b") };
        let last = random.u8(2..6);
        if v6 {
            format!("via 2001:db8:{net}::{last} dev {port}")
        } else {
            format!("via 10.{}.0.{last} dev {port}", if net == "a" { 1 } else { 2 })
        }
    };
    let encap = |random: &mut fastrand::Rng| {
        let mode = if random.bool() { "encap" } else { "encap.red" };
        let second = if random.bool() { ",fcbb:0:2005::" } else { "" };
        format!("encap seg6 mode {mode} segs 2001:db8:b::{:x}{second}", random.u16(1..))
    };
    let metric = if random.u8(0..3) == 0 { format!("metric {}", random.u8(1..4)) } else { String::new() };
    let verb = ["add", "replace", "del", "add", "append"][random.usize(0..5)];
    let body = match random.u8(0..6) {
        _ if verb == "del" => String::new(),
        0 => return format!("ip {family} route {verb} blackhole {prefix} {metric}"),
        1 => return format!("ip {family} route {verb} unreachable {prefix} {metric}"),
        2 => format!("nexthop {} weight {} nexthop {}", hop(random), random.u8(1..5), hop(random)),
        3 => format!("{} {}", encap(random), hop(random)),
        4 => format!("nhid {}", [1, 2, 9][random.usize(0..3)]),
        _ => hop(random),
    };
    format!("ip {family} route {verb} {prefix} {metric} {body}")
}

/// Objects 1 and 2 are next hops, and 9 is a group of them.
fn next_hop_object(random: &mut fastrand::Rng) -> String {
    let last = random.u8(2..6);
    match random.u8(0..6) {
        0 => "ip nexthop del id 9".to_owned(),
        1 => format!("ip nexthop del id {}", random.u8(1..3)),
        2 => format!("ip nexthop replace id 9 group 1,{}/2", random.u8(1..4)),
        3 => format!("ip nexthop replace id 2 via 2001:db8:b::{last} dev eth2"),
        _ => format!("ip nexthop replace id 1 via 2001:db8:a::{last} dev eth1"),
    }
}

/// Routes have only the number of an object. When the object changes, the kernel reports nothing about the routes.
#[test]
#[ignore = "needs root"]
fn next_hop_objects_are_followed_without_their_attributes() {
    let rig = Rig::new(1);
    rig.inside("router", "sysctl -qw net.ipv4.nexthop_compat_mode=0");
    let mut rig = rig;
    rig.start("node", &config());
    wait_for("daemon", || rig.ask("node", "show ports").status.success().then_some(()));
    let ip = |words: &str| rig.inside("router", &format!("ip {words}"));
    let becomes = |prefix: &str, meaning: &str| {
        let mut seen = String::new();
        let end = std::time::Instant::now() + std::time::Duration::from_mins(1);
        while std::time::Instant::now() < end {
            seen = followed(&rig).get(prefix).cloned().unwrap_or_default();
            if seen == meaning {
                return;
            }
        }
        assert_eq!(seen, meaning, "{prefix}");
    };
    ip("nexthop add id 1 via 2001:db8:a::2 dev eth1");
    ip("nexthop add id 2 via 2001:db8:b::2 dev eth2");
    ip("nexthop add id 3 encap seg6 mode encap.red segs 2001:db8:b::9 via 2001:db8:b::2 dev eth2");
    ip("nexthop add id 4 blackhole");
    ip("nexthop add id 9 group 1,3/2");
    ip("-6 route add fcbb:0:1::/48 nhid 1");
    ip("-6 route add fcbb:0:2::/48 nhid 9");
    ip("-6 route add fcbb:0:3::/48 nhid 3");
    ip("route add 10.78.0.0/16 nhid 4");
    ip("route add 10.77.0.0/16 nhid 9");
    becomes("fcbb:0:1::/48", "unicast 2001:db8:a::2 eth1 1");
    becomes("fcbb:0:2::/48", "unicast 2001:db8:a::2 eth1 3, 2001:db8:b::2 eth2 1");
    becomes("fcbb:0:3::/48", "seg6 [encap.red 2001:db8:b::9 1]");
    becomes("10.78.0.0/16", "blackhole");
    becomes("10.77.0.0/16", "unicast 2001:db8:a::2 eth1 3, 2001:db8:b::2 eth2 1");
    ip("nexthop replace id 1 via 2001:db8:a::5 dev eth1");
    becomes("fcbb:0:1::/48", "unicast 2001:db8:a::5 eth1 1");
    becomes("10.77.0.0/16", "unicast 2001:db8:a::5 eth1 3, 2001:db8:b::2 eth2 1");
    // The routes of an object are removed with it; the kernel does not report those of IPv4.
    ip("nexthop del id 9");
    becomes("10.77.0.0/16", "");
    becomes("fcbb:0:2::/48", "");
    ip("nexthop replace id 3 via 2001:db8:b::7 dev eth2");
    becomes("fcbb:0:3::/48", "unicast 2001:db8:b::7 eth2 1");
}

/// Addresses inside and outside of the prefixes in the rules' tables.
const PROBES: [&str; 6] = ["172.16.1.1", "172.16.2.1", "172.17.1.1", "fcbb:0:1::1", "fcbb:0:2::1", "fcbb:1::1"];

/// Returns how the kernel forwards a packet that arrives on a port: `via dev`, or `none`.
fn kernel_decides(rig: &Rig, port: &str, address: &str) -> String {
    let from = match (address.contains(':'), port) {
        (true, "eth1") => "2001:db8:a::9",
        (true, _) => "2001:db8:b::9",
        (false, "eth1") => "10.1.0.9",
        (false, _) => "10.2.0.9",
    };
    let output = rig.output("router", &format!("ip -j route get {address} from {from} iif {port}"));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
    rows.first().filter(|row| row["type"].is_null() && row["dev"] != "lo").map_or_else(
        || "none".to_owned(),
        |row| format!("{} {}", row["gateway"].as_str().unwrap_or("-"), text(&row["dev"])),
    )
}

/// Returns how srv6d forwards it, by the longest match in the table of the port; `kernel` means that the kernel does
/// it.
fn srv6d_decides(routes: &[Value], table: u64, address: &str) -> String {
    let address: std::net::IpAddr = address.parse().unwrap();
    let prefix = |route: &Value| text(&route["prefix"]).parse::<ipnet::IpNet>().unwrap();
    let covering = routes.iter().filter(|route| route["table"] == table && prefix(route).contains(&address));
    let Some(best) = covering.max_by_key(|route| prefix(route).prefix_len()) else {
        // srv6d does not claim the packet. The kernel forwards it, unless it has no route either.
        return "kernel".to_owned();
    };
    match text(&best["type"]) {
        "kernel" => "kernel".to_owned(),
        "blackhole" | "unreachable" => "none".to_owned(),
        _ => {
            let hop = &best["next_hops"][0];
            format!("{} {}", hop["via"].as_str().unwrap_or("-"), text(&hop["port"]))
        }
    }
}

fn change_of_rules(random: &mut fastrand::Rng) -> String {
    let v6 = random.bool();
    let (family, net) = if v6 { ("-6", "fcbb:0") } else { ("-4", "172.16") };
    let number = random.u8(1..3);
    let within = if v6 { format!("{net}:{number}::/48") } else { format!("{net}.{number}.0/24") };
    if random.bool() {
        let table = [100, 101, 254][random.usize(0..3)];
        let prefix = match random.u8(0..3) {
            0 if v6 => "fcbb::/16".to_owned(),
            0 => "172.16.0.0/12".to_owned(),
            _ => within,
        };
        let hop = match (v6, random.u8(0..4)) {
            (_, 0) => return format!("ip {family} route replace blackhole {prefix} table {table}"),
            (_, 1) => return format!("ip {family} route del {prefix} table {table}"),
            (true, _) => format!("via 2001:db8:a::{} dev eth1", random.u8(2..9)),
            (false, _) => format!("via 10.1.0.{} dev eth1", random.u8(2..9)),
        };
        return format!("ip {family} route replace {prefix} {hop} table {table}");
    }
    let verb = if random.u8(0..3) == 0 { "del" } else { "add" };
    let table = random.u8(100..102);
    let rule = match random.u8(0..8) {
        0 => format!("iif eth2 lookup {table}"),
        1 => format!("to {within} lookup {table}"),
        2 => format!("fwmark 7 lookup {table}"),
        3 => format!("from 10.77.0.0/16 lookup {table}")
            .replace("10.77.0.0/16", if v6 { "fd77::/16" } else { "10.77.0.0/16" }),
        4 => format!("to {within} unreachable"),
        5 => format!("iif lo lookup {table}"),
        _ => format!("lookup {table}"),
    };
    let both = if rule.starts_with("iif eth2") && random.bool() {
        format!("; ip -4 rule {verb} prio 90 {rule}; ip -6 rule {verb} prio 90 {rule}")
    } else {
        String::new()
    };
    format!("sh -c 'ip {family} rule {verb} prio {} {rule}{both}'", random.u16(100..104))
}

/// srv6d decides like the kernel, or leaves the packet to it.
#[test]
#[ignore = "needs root"]
fn rules_choose_as_they_do_in_the_kernel() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    let mut decided = 0;
    // A history may begin with a rule that leaves everything to the kernel, and keep it to its end.
    for seed in (0..4).map(|more| seed.wrapping_add(more)) {
        decided += decisions_beside_the_kernel(seed);
        println!("{decided} decisions");
        if decided > 20 {
            return;
        }
    }
    panic!("hardly anything was followed");
}

/// Changes rules at random, compares each decision with the kernel's, and returns how many were srv6d's own.
fn decisions_beside_the_kernel(seed: u64) -> usize {
    let rig = started();
    rig.inside("router", "sysctl -qw net.ipv4.conf.all.forwarding=1 net.ipv6.conf.all.forwarding=1");
    rig.inside(
        "router",
        "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth1.rp_filter=0 net.ipv4.conf.eth2.rp_filter=0",
    );
    rig.inside("router", "ip addr add 10.1.0.1/24 dev eth1");
    rig.inside("router", "ip addr add 10.2.0.1/24 dev eth2");
    println!("SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut history = format!("SEED={seed}\n");
    let mut decided = 0;
    for _ in 0..40 {
        let command = change_of_rules(&mut random);
        let done = rig.output("router", &command).status.success();
        writeln!(history, "{} {command}", if done { "+" } else { "-" }).unwrap();
        let mut differing = Vec::new();
        let end = std::time::Instant::now() + std::time::Duration::from_mins(1);
        while std::time::Instant::now() < end {
            let (ports, routes) = (show(&rig, "ports"), show(&rig, "routes"));
            let table = |name: &str| ports.iter().find(|port| port["name"] == name).unwrap()["table"].as_u64().unwrap();
            differing.clear();
            for (port, address) in
                ["eth1", "eth2"].iter().flat_map(|port| PROBES.iter().map(move |address| (port, address)))
            {
                let (kernel, srv6d) =
                    (kernel_decides(&rig, port, address), srv6d_decides(&routes, table(port), address));
                if kernel != srv6d && srv6d != "kernel" {
                    differing.push(format!("{address} from {port}: kernel {kernel}, srv6d {srv6d}"));
                }
                decided += usize::from(srv6d != "kernel");
            }
            if differing.is_empty() {
                break;
            }
        }
        assert!(differing.is_empty(), "{differing:#?} after {history}");
    }
    decided
}

#[test]
#[ignore = "needs root"]
fn rules_that_choose_by_more_than_a_destination_are_named() {
    let rig = started();
    let follows = |prefix: &str| followed(&rig).get(prefix).cloned().unwrap_or_default();
    rig.inside("router", "ip -6 route add fcbb:0:1::/48 via 2001:db8:b::2");
    rig.inside("router", "ip -6 route add fcbb:0:1::/48 via 2001:db8:b::7 table 100");
    wait_for("the route", || (follows("fcbb:0:1::/48") == "unicast 2001:db8:b::2 eth2 1").then_some(()));
    rig.inside("router", "ip -6 rule add prio 100 to fcbb::/16 lookup 100");
    wait_for("the rule", || (follows("fcbb:0:1::/48") == "unicast 2001:db8:b::7 eth2 1").then_some(()));
    rig.inside("router", "ip -6 rule add prio 90 from fd00::/8 lookup 100");
    let rows = wait_for("the row", || Some(show(&rig, "routes --unfollowed")).filter(|rows| !rows.is_empty()));
    assert!(text(&rows[0]["why"]).contains("90: from fd00::/8 lookup 100"), "{rows:?}");
    assert_eq!(follows("fcbb:0:1::/48"), "kernel");
    let doctor = format!("{} --socket {} doctor", support::rig::SRV6D, rig.socket_of("node").display());
    let said = String::from_utf8(rig.output("router", &doctor).stdout).unwrap();
    assert!(said.contains("stays with the kernel: the rule \"90: from fd00::/8 lookup 100\""), "{said}");
    assert!(said.contains("eth1: driver") && !said.contains("srv6d0"), "not its own veth: {said}");
    rig.inside("router", "ip -6 rule del prio 90");
    rig.inside("router", "ip -6 rule add prio 90 iif eth1 lookup 100");
    let table = |rig: &Rig| show(rig, "ports").iter().find(|port| port["name"] == "eth1").unwrap()["table"].clone();
    wait_for("the port in its table", || (table(&rig) == 100).then_some(()));
    let rows = wait_for("the row", || Some(show(&rig, "routes --unfollowed")).filter(|rows| !rows.is_empty()));
    assert!(text(&rows[0]["why"]).contains("is for IPv6 alone"), "{rows:?}");
    rig.inside("router", "ip -6 rule del prio 90");
    wait_for("the port in main", || (table(&rig) == 254).then_some(()));
}

#[test]
#[ignore = "needs root"]
fn events_that_the_socket_could_not_hold_are_made_up_for() {
    let mut rig = Rig::new(1);
    let number = rig.start("node", &config());
    wait_for("daemon", || rig.ask("node", "show ports").status.success().then_some(()));
    let pid = rig.pid(number);
    assert!(run(&format!("kill -STOP {pid}")).status.success());
    let mut batch = String::new();
    for round in 0..3 {
        for number in 0..2000 {
            let verb = if round == 1 { "del" } else { "add" };
            writeln!(batch, "route {verb} 2001:db8:{:x}:{number:x}::/64 via 2001:db8:b::2", 0x1000).unwrap();
        }
    }
    let file = rig.file("batch");
    fs::write(&file, batch).unwrap();
    rig.inside("router", &format!("ip -6 -batch {}", file.display()));
    assert!(run(&format!("kill -CONT {pid}")).status.success());
    agree(&rig, "6000 changes while srv6d could not read");
    assert!(followed(&rig).len() > 2000);
}

#[test]
#[ignore = "needs root"]
fn sids_of_the_kernel_are_sids_here_and_the_rest_is_named() {
    let rig = started();
    let add = |what: &str| rig.inside("router", &format!("ip -6 route add {what}"));
    add("fcbb:0:1::/48 encap seg6local action End flavors next-csid,psp lblen 32 nflen 16 dev eth1");
    add(
        "fcbb:0:1:e001::/64 encap seg6local action End.X nh6 2001:db8:b::2 flavors next-csid lblen 32 nflen 32 dev eth1",
    );
    add("fcbb:0:1:fe06::/64 encap seg6local action End.DT6 table 254 count dev eth1");
    add("fcbb:0:1:d006::/64 encap seg6local action End.DX6 nh6 2001:db8:a::2 dev eth1");
    add("fcbb:0:1:b006::/64 encap seg6local action End.T table 254 dev eth1");
    add("prohibit 2001:db8:66::/48");
    add("2001:db8:67::/48 dev lo");
    rig.inside("router", "ip addr add 10.1.0.1/24 dev eth1");
    rig.inside("router", "ip route add 10.68.0.0/16 nexthop dev eth1 nexthop via 10.1.0.2");
    let sids = wait_for("all SIDs", || Some(show(&rig, "sids")).filter(|sids| sids.len() == 4));
    let row = |prefix: &str| sids.iter().find(|row| row["sid"] == prefix).unwrap();
    assert_eq!(
        (text(&row("fcbb:0:1::/48")["behavior"]), row("fcbb:0:1::/48")["flavors"].as_array().unwrap().len()),
        ("uN", 1)
    );
    assert_eq!(row("fcbb:0:1:e001::/64")["behavior"], "uA");
    assert_eq!(row("fcbb:0:1:fe06::/64")["behavior"], "End.DT6");
    assert_eq!(row("fcbb:0:1:d006::/64")["behavior"], "End.DX6");
    let rows =
        wait_for("what is not followed", || Some(show(&rig, "routes --unfollowed")).filter(|rows| rows.len() == 4));
    let why = |prefix: &str| text(&rows.iter().find(|row| row["prefix"] == prefix).unwrap()["why"]).to_owned();
    assert!(why("fcbb:0:1:b006::/64").contains("End.T"), "{rows:?}");
    assert!(why("2001:db8:66::/48").contains("prohibit"), "{rows:?}");
    assert!(why("10.68.0.0/16").contains("not all of them are neighbours"), "{rows:?}");
    assert!(why("2001:db8:67::/48").contains("lo, which is no [[port]]"), "{rows:?}");
}

/// A path programmer deletes and adds a route by netlink. Local traffic passes through srv6d, and through the kernel
/// when srv6d is killed.
#[test]
#[ignore = "needs root"]
fn routes_of_a_path_programmer_work_unmodified() {
    let mut rig = Rig::new(1);
    rig.inside("b", "ip addr add 2001:db8:99::2/128 dev lo");
    rig.inside("b", "ip -6 route add fcbb:0:6:fe06::/64 encap seg6local action End.DT6 table 255 dev wire");
    rig.inside("b", "ip -6 route add fcbb:0:7:fe06::/64 encap seg6local action End.DT6 table 255 dev wire");
    rig.inside(
        "b",
        "sysctl -qw net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf.wire.seg6_enabled=1 net.ipv6.conf.all.forwarding=1",
    );
    rig.inside("router", "ip -6 route add fcbb::/32 via 2001:db8:b::2");
    let program = |segment: &str| {
        rig.inside(
            "router",
            &format!("ip -6 route add 2001:db8:99::/64 encap seg6 mode encap segs {segment} dev eth2 table 254"),
        );
    };
    program("fcbb:0:6:fe06::");
    let ping = |rig: &Rig| rig.output("router", "ping -n -c 3 -i 0.2 -W 5 2001:db8:99::2").status.success();
    assert!(ping(&rig), "the kernel does it alone");
    let config = config();
    let number = rig.start("node", &config);
    let path = |rig: &Rig, segment: &str| {
        let shown = show(rig, "paths");
        let row = shown.iter().find(|row| row["segments"][0] == segment)?;
        Some((row["packets"].as_u64().unwrap(), text(&row["mode"]).to_owned()))
    };
    wait_for("the followed path", || path(&rig, "fcbb:0:6:fe06::"));
    assert!(ping(&rig));
    let (packets, mode) = path(&rig, "fcbb:0:6:fe06::").unwrap();
    assert!(packets >= 3 && mode == "encap", "{packets} packets, mode {mode}");

    rig.inside("router", "ip -6 route del 2001:db8:99::/64");
    rig.inside(
        "router",
        "ip -6 route add 2001:db8:99::/64 encap seg6 mode encap.red segs fcbb:0:7:fe06:: dev eth2 table 254",
    );
    wait_for("the new path", || path(&rig, "fcbb:0:7:fe06::"));
    assert!(ping(&rig));
    let (packets, mode) = path(&rig, "fcbb:0:7:fe06::").unwrap();
    assert!(packets >= 3 && mode == "encap.red", "{packets} packets, mode {mode}");

    rig.inside("router", "ip -6 route del 2001:db8:99::/64");
    wait_for("no path", || show(&rig, "paths").is_empty().then_some(()));
    rig.inside("router", "ip -6 route add 2001:db8:99::/64 encap seg6 mode encap segs fcbb:0:6:fe06:: dev eth2");
    wait_for("the path again", || path(&rig, "fcbb:0:6:fe06::"));
    assert!(run(&format!("kill -KILL {}", rig.pid(number))).status.success());
    wait_for("the kernel's own encapsulation", || ping(&rig).then_some(()));
    let rules = rig.inside("router", "ip -6 rule");
    wait_for("no rule left", || (!rig.inside("router", "ip -6 rule").contains("8986")).then_some(()));
    assert!(rules.contains("main"));
}

/// IPv4 routes as BGP unnumbered makes them: with a next hop of the other family (RFC 8950), or with an address outside
/// of all subnets whose neighbour entry is added explicitly.
#[test]
#[ignore = "needs root"]
fn ipv4_goes_over_ipv6_next_hops() {
    let rig = started();
    rig.inside("router", "ip neigh replace 169.254.0.1 lladdr 02:00:00:00:00:99 dev eth2 nud permanent");
    rig.inside("router", "ip route add 10.1.0.0/16 via inet6 2001:db8:b::2 dev eth2");
    rig.inside(
        "router",
        "ip route add 10.2.0.0/16 nexthop via inet6 2001:db8:a::2 dev eth1 weight 2 nexthop via inet6 2001:db8:b::2 dev eth2",
    );
    rig.inside("router", "ip route add 10.3.0.0/16 via 169.254.0.1 dev eth2 onlink");
    let expected = [
        ("10.1.0.0/16", "unicast 2001:db8:b::2 eth2 1"),
        ("10.2.0.0/16", "unicast 2001:db8:a::2 eth1 2, 2001:db8:b::2 eth2 1"),
        ("10.3.0.0/16", "unicast 169.254.0.1 eth2 1"),
    ];
    for (prefix, meaning) in expected {
        let shown = || followed(&rig).get(prefix).cloned().unwrap_or_default();
        wait_for(prefix, || (shown() == meaning).then_some(()));
    }
    for host in ["a", "b"] {
        rig.inside(host, "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.wire.rp_filter=0");
    }
    rig.inside("a", "ip addr add 10.9.0.2/32 dev lo");
    rig.inside("b", "ip addr add 10.1.0.2/32 dev lo");
    rig.inside("a", "ip route add 10.0.0.0/8 via inet6 2001:db8:a::1 dev wire");
    rig.inside("b", "ip route add 10.0.0.0/8 via inet6 2001:db8:b::1 dev wire");
    rig.inside("router", "ip route add 10.9.0.0/16 via inet6 2001:db8:a::2 dev eth1");
    wait_for("an IPv4 ping over IPv6 next hops", || {
        rig.output("a", "ping -n -c 1 -W 1 -I 10.9.0.2 10.1.0.2").status.success().then_some(())
    });
    assert!(rig.counter("tx") > 0);
}

/// Only one srv6d of a namespace can own the table that leads to it. A second one cannot use that table, and does not
/// change it.
#[test]
#[ignore = "needs root"]
fn a_second_daemon_leaves_the_steered_traffic_of_the_first_alone() {
    let mut rig = Rig::new(1);
    rig.inside("router", "ip -6 route add fcbb::/32 via 2001:db8:b::2");
    let steer = |prefix: &str| {
        format!(
            "[[steer]]\nprefix = \"{prefix}\"\nsegments = [\"fcbb:0:6:fe06::\"]\nvia = \"2001:db8:b::2\"\nport = \"eth2\"\n"
        )
    };
    rig.ready(&format!("{}{}", rig::CONFIG, steer("2001:db8:99::/64")));
    let table =
        |rig: &Rig| String::from_utf8_lossy(&rig.output("router", "ip -6 route show table 8986").stdout).into_owned();
    wait_for("the steered route", || table(&rig).contains("dev srv6d0").then_some(()));
    let of_the_first = table(&rig);

    let head = "[node]\nsource = \"2001:db8:a::1\"\n[workers]\nframes = 2048\nring = 512\n[api]\nmetrics = \"off\"\n";
    let another = |host: &str, steer: &str| {
        format!(
            "{head}[host]\ninterface = \"srv6d1\"\n{host}[[port]]\nname = \"eth9\"\n{}",
            steer.replace("eth2", "eth9")
        )
    };
    let says = "the srv6d with interface srv6d0 steers local applications' traffic in this network namespace";
    let refused = rig.start("another", &another("", &steer("2001:db8:88::/64")));
    assert_eq!(rig.ended(refused), Some(1), "{}", rig.log("another"));
    let log = rig.log("another");
    assert!(log.contains(says) && log.contains("write steer_local = false under [host]"), "{log}");
    assert!(!rig.output("router", "ip link show srv6d1").status.success(), "its veth is gone again");
    assert_eq!(table(&rig), of_the_first);

    // Without steered prefixes the second one runs. A reload with one is accepted, but the prefix is not steered, which
    // the log reports. The first one steers the same prefix.
    let second = rig.start("another", &another("", ""));
    wait_for("the second", || rig.ask("another", "show ports").status.success().then_some(()));
    fs::write(rig.file("another.toml"), another("", &steer("2001:db8:99::/64"))).unwrap();
    assert!(rig.ask("another", "reload").status.success());
    wait_for("what it says", || rig.log("another").contains(says).then_some(()));
    assert_eq!(table(&rig), of_the_first);
    fs::write(rig.file("another.toml"), another("steer_local = false\n", &steer("2001:db8:99::/64"))).unwrap();
    assert!(rig.ask("another", "reload").status.success());
    assert_eq!(rig.stop(second, "TERM"), Some(0), "{}", rig.log("another"));
    assert_eq!(table(&rig), of_the_first, "the second took the route of the first along");
    assert!(rig.inside("router", "ip -6 rule").contains("iif srv6d0 lookup 8986"));
}

/// A node that steers nothing has nothing of srv6d's in the way of what its applications send.
#[test]
#[ignore = "needs root"]
fn the_rule_is_there_only_while_something_is_steered() {
    let mut rig = Rig::new(1);
    rig.inside("router", "ip -6 route add fcbb::/32 via 2001:db8:b::2");
    let steers = format!(
        "{}[[steer]]\nprefix = \"2001:db8:99::/64\"\nsegments = [\"fcbb:0:6:fe06::\"]\nvia = \"2001:db8:b::2\"\nport = \"eth2\"\n",
        rig::CONFIG
    );
    let rules = |rig: &Rig| ["-4", "-6"].map(|family| rig.inside("router", &format!("ip {family} rule")));
    let without = rules(&rig);
    rig.ready(rig::CONFIG);
    assert_eq!(rules(&rig), without);
    for _ in 0..2 {
        rig.reload(&steers);
        let is_led = |rule: &String| rule.contains("iif srv6d0 lookup 8986");
        wait_for("the rules", || rules(&rig).iter().all(is_led).then_some(()));
        rig.reload(rig::CONFIG);
        wait_for("no rules", || (rules(&rig) == without).then_some(()));
        let table = rig.output("router", "ip -6 route show table 8986").stdout;
        assert!(table.is_empty(), "{}", String::from_utf8_lossy(&table));
    }
    rig.reload(&steers.replace("[workers]", "[host]\nsteer_local = false\n[workers]"));
    assert_eq!(rules(&rig), without);
}

/// A path programmer moves a prefix in this way.
#[test]
#[ignore = "needs root"]
fn a_prefix_whose_route_is_deleted_and_added_keeps_its_carrier() {
    let mut rig = Rig::new(1);
    rig.start("node", &format!("{}hold_time = \"1m\"\n", config()));
    wait_for("daemon", || rig.ask("node", "show ports").status.success().then_some(()));
    let ip = |words: &str| rig.inside("router", &format!("ip -6 route {words}"));
    let means = || followed(&rig).get("2001:db8:77::/64").cloned();
    let becomes = |expected: &str| wait_for(expected, || (means().as_deref() == Some(expected)).then_some(()));
    ip("add 2001:db8:77::/64 encap seg6 mode encap.red segs 2001:db8:b::9 dev eth2");
    becomes("seg6 [encap.red 2001:db8:b::9 1]");
    ip("del 2001:db8:77::/64");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(means().as_deref(), Some("seg6 [encap.red 2001:db8:b::9 1]"), "held");
    ip("add 2001:db8:77::/64 encap seg6 mode encap.red segs 2001:db8:b::8 dev eth2");
    becomes("seg6 [encap.red 2001:db8:b::8 1]");
    ip("del 2001:db8:77::/64");
    ip("add 2001:db8:77::/64 via 2001:db8:a::2 dev eth1");
    wait_for("the plain route", || means().filter(|means| !means.starts_with("seg6")));
}
