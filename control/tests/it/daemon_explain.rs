//! `srv6d explain`, `show routes ADDRESS` and `show drops` on a running daemon: what they say is what happens.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::os::unix::net::UnixStream;
use std::process::Output;

use serde_json::Value;
use support::rig::{CONFIG, Rig, text, wait_for};

/// The router with a blackhole, a steered prefix and a port for hosts outside of the domain.
fn config() -> String {
    let blackhole = "[[route]]\nprefix = \"2001:db8:dead::/48\"\ntype = \"blackhole\"\n";
    let steer = "[[steer]]\nprefix = \"2001:db8:c::/48\"\nsegments = [\"fcbb:0:b::\"]\nvia = \"2001:db8:b::2\"\n";
    let sids = "[[block]]\nprefix = \"fcbb::/32\"\n[[sid]]\nsid = \"fcbb:0:1::/48\"\nbehavior = \"uN\"\n";
    let nowhere = "[[route]]\nprefix = \"::/0\"\nvia = \"2001:db8:b::2\"\n";
    CONFIG.replacen("role = \"fabric\"", "role = \"edge\"", 1) + blackhole + steer + sids + nowhere
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn explain(rig: &Rig, words: &str) -> Value {
    json(&rig.ask("node", &format!("explain --json --port {words}")))
}

fn step<'v>(explained: &'v Value, name: &str) -> &'v Value {
    let steps = explained["steps"].as_array().unwrap();
    steps.iter().find(|step| step["step"] == name).unwrap_or_else(|| panic!("no {name} in {explained}"))
}

#[test]
#[ignore = "needs root"]
fn what_is_explained_is_what_happens() {
    let rig = Rig::forwarding(1, &config());
    let before = rig.show("counters");
    let plain = explain(&rig, "eth1 from 2001:db8:a::2 to 2001:db8:b::2 udp 1000 2000");
    assert_eq!((&plain["verdict"]["verdict"], &plain["verdict"]["port"]), (&"sent".into(), &"eth2".into()), "{plain}");
    assert_eq!((&plain["fast_path"], &step(&plain, "port")["role"]), (&true.into(), &"edge".into()));
    let look_up = step(&plain, "look-up");
    assert_eq!((&look_up["prefix"], &look_up["kind"]), (&"2001:db8:b::2/128".into(), &"neighbor".into()), "{look_up}");
    let hop = &step(&plain, "next-hop")["members"][0];
    assert_eq!((&hop["via"], &hop["state"], &hop["chosen"]), (&"2001:db8:b::2".into(), &"up".into(), &true.into()));

    let steered = explain(&rig, "eth1 from 2001:db8:a::2 to 2001:db8:c::1 tcp 1 2 --length 1400");
    assert_eq!(step(&steered, "look-up")["kind"], "steer", "{steered}");
    assert!(step(&steered, "look-up")["origin"].as_str().unwrap().starts_with("configuration, line "), "{steered}");
    assert_eq!(step(&steered, "path")["members"][0]["segments"][0], "fcbb:0:b::");
    assert_eq!(step(&steered, "size")["length"], 1440);

    let refused = explain(&rig, "eth1 from 2001:db8:a::2 to fcbb:0:1:: udp 1 2");
    assert_eq!(
        (&refused["verdict"]["reason"], &refused["after"]),
        (&"acl_edge".into(), &refused["before"]),
        "{refused}"
    );
    assert!(refused["verdict"]["setting"].as_str().unwrap().contains("`allowed_carriers` of [[port]]"), "{refused}");

    let local = explain(&rig, "eth1 from 2001:db8:a::2 to 2001:db8:a::1 icmp");
    assert_eq!(
        (&local["verdict"]["verdict"], &local["verdict"]["port"]),
        (&"kernel".into(), &"eth1".into()),
        "{local}"
    );
    assert!(local["in_front"].as_str().unwrap().contains("leaves packets to this destination to the kernel"));
    assert_eq!(step(&local, "look-up")["origin"], "address of eth1");

    let unclaimed = explain(&rig, "eth1 from 192.0.2.1 to 198.51.100.1 icmp");
    assert_eq!((&unclaimed["verdict"]["verdict"], &unclaimed["verdict"]["port"]), (&"kernel".into(), &"eth1".into()));
    assert_eq!(step(&unclaimed, "look-up")["kind"], "none", "{unclaimed}");
    assert!(unclaimed["kernel_route"].is_string(), "{unclaimed}");

    let vlan = explain(&rig, "eth1 from 2001:db8:a::2 to 2001:db8:b::2 udp 1 2 --vlan 9");
    assert_eq!(vlan["verdict"]["reason"], "vlan", "{vlan}");
    let after = rig.show("counters");
    assert_eq!((&before["drop"], &before["held"]), (&after["drop"], &after["held"]), "explaining counts nothing");

    let shown = text(&rig.ask("node", "explain --port eth1 from 2001:db8:a::2 to 2001:db8:c::1 udp 1 2").stdout);
    for line in ["port      eth1: role edge", "path      the only one", "verdict   sent by eth2", "before: 62 bytes"] {
        assert!(shown.contains(line), "{line:?} is not in\n{shown}");
    }
    assert!(shown.contains("> fcbb:0:b:: hlim 64, [2001:db8:a::2 > 2001:db8:c::1 hlim 63, UDP 1 > 2]"), "{shown}");
}

#[test]
#[ignore = "needs root"]
fn dropped_packets_are_shown_and_explained() {
    let rig = Rig::forwarding(1, &config());
    assert_eq!(text(&rig.ask("node", "show drops blackhole").stdout), "no packet was dropped\n");
    let _ = rig.output("a", "ping -6 -c 2 -i 0.2 -W 1 -s 200 2001:db8:dead::1");
    let drops = wait_for("dropped pings", || {
        let drops = json(&rig.ask("node", "show drops blackhole --json"));
        (drops.as_array().unwrap().len() == 2).then_some(drops)
    });
    let first = &drops[0];
    assert_eq!((&first["device"], &first["length"]), (&"eth1".into(), &262.into()), "{first}");
    assert_eq!((&first["destination"], &first["now"]), (&"2001:db8:dead::1".into(), &"dropped: blackhole".into()));
    assert_eq!(first["head"].as_str().unwrap().len(), 256, "the first 128 bytes");
    let explained = explain(&rig, &format!("eth1 --hex {}", first["head"].as_str().unwrap()));
    assert_eq!(explained["verdict"]["reason"], "malformed", "of a packet that is cut short: {explained}");
    let shown = text(&rig.ask("node", "show drops --hex").stdout);
    assert!(shown.contains("2001:db8:a::2 > 2001:db8:dead::1 hlim 64, ICMPv6 type 128 code 0, 262 bytes"), "{shown}");
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn the_longest_match_of_an_address_is_found_and_routes_are_filtered() {
    let rig = Rig::forwarding(1, &config());
    let matched = |arguments: &str| json(&rig.ask("node", &format!("show routes {arguments} --json")));
    for (address, prefix, kind) in [
        ("2001:db8:dead:1::", "2001:db8:dead::/48", "blackhole"),
        ("2001:db8:c::9", "2001:db8:c::/48", "steer"),
        ("fcbb:0:1:2::", "fcbb:0:1::/48", "sid"),
        ("fcbb:0:2::", "fcbb::/32", "block"),
        ("2001:db8:b::77", "2001:db8:b::/64", "on-link"),
        ("2001:db8:a::1", "2001:db8:a::1/128", "local"),
        ("4000::", "::/0", "route"),
    ] {
        let row = matched(address);
        assert_eq!((&row["prefix"], &row["kind"]), (&prefix.into(), &kind.into()), "{address}: {row}");
    }
    assert_eq!(matched("10.0.0.1")["kind"], "none");
    assert_eq!(matched("4000:: --table 77")["kind"], "none");
    assert_eq!(matched("2001:db8:b::77")["origin"], "connected, eth2");
    let prefixes = |arguments: &str| {
        let rows = matched(arguments);
        rows.as_array().unwrap().iter().map(|row| row["prefix"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(prefixes("--prefix 2001:db8:dead::/40"), ["2001:db8:dead::/48"]);
    assert_eq!(prefixes("--port eth1"), ["2001:db8:a::/64"]);
    assert_eq!(prefixes("--table 9"), [""; 0]);
}

#[test]
#[ignore = "needs root"]
fn nonsense_is_refused_with_a_reason() {
    let rig = Rig::forwarding(1, &config());
    fs::write(rig.file("no.pcap"), "no capture").unwrap();
    let pcap = rig.file("no.pcap").display().to_string();
    for (arguments, status, why) in [
        ("--port eth9 --hex 00".to_owned(), 1, "eth9 is no port: name one of"),
        ("--port eth1 --hex 0".to_owned(), 1, "the frame is not hexadecimal"),
        (format!("--port eth1 --hex {}", "00".repeat(16 * 1024 + 1)), 1, "longer than 16384 bytes"),
        (format!("--port eth1 --pcap {pcap}"), 2, "is no capture"),
        ("--port eth1 from 2001:db8::1".to_owned(), 2, "begins with `from"),
        ("--port eth1".to_owned(), 2, "required"),
    ] {
        let refused = rig.ask("node", &format!("explain {arguments}"));
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(status) && said.contains(why), "{why:?}: {said}");
    }
    // Any bytes are a frame.
    for digits in ["00", &"ff".repeat(64), &format!("{}86dd6{}", "3".repeat(24), "f".repeat(2001))] {
        assert!(rig.ask("node", &format!("explain --port eth1 --hex {digits}")).status.success());
    }
    drop(UnixStream::connect(rig.socket_of("node")).unwrap());
    assert!(rig.pings());
}
