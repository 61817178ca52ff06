//! Tests of SONiC's dialect of FPM with a running srv6d. The test plays SONiC's FRR, and writes messages as its sources
//! do.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test stops at the first surprise")]

use crate::made;
use crate::support;

use made::{DEL_SID, NEW_SID, address, announce, attribute, frame, message, number, sid, steer, withdraw};
use serde_json::Value;
use srv6d_fpm::{RouteKey, Vrf};
use support::fpm::{Client, fpm, is_listening};
use support::rig::{self, Rig, wait_for};

const FPM: &str = r#"
[[block]]
prefix = "fcbb:bbbb::/32"
[fpm]
stale_time = "500ms"
"#;

fn rows(rig: &Rig, topic: &str) -> Vec<Value> {
    rig.show(topic).as_array().unwrap().clone()
}

/// Returns `sid behavior` with the next hop of each SID.
fn sids(rig: &Rig) -> Vec<String> {
    let row = |row: &Value| {
        let hop = row["next_hops"].as_array().and_then(|hops| hops.first());
        let to = hop.map_or_else(String::new, |hop| format!(" {} {}", hop["via"], hop["port"]).replace('"', ""));
        format!("{} {}{to}", row["sid"].as_str().unwrap(), row["behavior"].as_str().unwrap())
    };
    rows(rig, "sids").iter().map(row).collect()
}

fn key(prefix: &str) -> RouteKey {
    RouteKey { vrf: Vrf::Default, prefix: prefix.parse().unwrap() }
}

fn ifindex(rig: &Rig, device: &str) -> u32 {
    rig.inside("router", &format!("cat /sys/class/net/{device}/ifindex")).trim().parse().unwrap()
}

fn everything(rig: &Rig) -> Vec<Vec<u8>> {
    let eth2 = number(4, ifindex(rig, "eth2"));
    let ua = [number(3, 15), address(5, "2001:db8:b::2"), attribute(12, b"eth2\0")];
    vec![
        sid(NEW_SID, "fcbb:bbbb:1::/48", [32, 16, 0, 0], &[number(3, 14)]),
        sid(NEW_SID, "fcbb:bbbb:fe24::/48", [32, 0, 16, 0], &ua),
        sid(NEW_SID, "fcbb:bbbb:1:d046::/64", [32, 16, 16, 0], &[number(3, 21), attribute(4, b"default\0")]),
        announce("2001:db8:9::/64", 0, &steer("fcbb:bbbb:2:d046::", "2001:db8:ffff::1")),
        announce("fcbb:bbbb:2::/48", 0, &[address(5, "2001:db8:b::2"), eth2]),
        announce("2001:db8:77::/64", 0, &[address(5, "2001:db8:7::2"), number(4, 7777)]),
        announce("2001:db8:66::/64", 200, &[address(5, "2001:db8:b::2"), number(4, ifindex(rig, "eth2"))]),
        message(4000, b"a list of SIDs", &[]),
    ]
}

#[test]
#[ignore = "needs root: network namespaces"]
fn sids_steering_and_answers_of_a_client_that_the_test_plays() {
    let mut rig = Rig::new(1);
    let daemon = rig.ready(&format!("{}{FPM}", rig::CONFIG));
    is_listening(&rig);
    let mut client = Client::connect(&rig);
    let said = everything(&rig);
    client.say(&frame(&said));
    let expected = ["fcbb:bbbb:1::/48 uN", "fcbb:bbbb:1:d046::/64 uDT46", "fcbb:bbbb:fe24::/48 uA 2001:db8:b::2 eth2"];
    wait_for("the SIDs", || (sids(&rig) == expected).then_some(()));
    let paths = wait_for("the path", || Some(rows(&rig, "paths")).filter(|paths| !paths.is_empty()));
    assert_eq!((&paths[0]["mode"], &paths[0]["prefix"]), (&"encap.red".into(), &"2001:db8:9::/64".into()));
    let view = fpm(&rig)["fpm"].clone();
    assert_eq!((&view["dialect"], &view["ignored"]["SID lists"]), (&"sonic".into(), &1.into()));
    assert_eq!((&view["routes"], &view["without_vrf"], &view["unfollowed"]), (&4.into(), &1.into(), &1.into()));

    // Only routes that are in force are answered.
    let mut answered = vec![client.answers.recv().unwrap(), client.answers.recv().unwrap()];
    answered.sort();
    assert_eq!(answered, [key("2001:db8:9::/64"), key("fcbb:bbbb:2::/48")]);
    assert!(client.answers.try_recv().is_err());

    // Packets to the prefix leave encapsulated, with the source of the node.
    rig.output("a", "ping -6 -c 3 -i 0.2 -W 1 2001:db8:9::1");
    wait_for("encapsulated packets", || (rows(&rig, "paths")[0]["packets"].as_u64() >= Some(3)).then_some(()));

    client.say(&frame(&[sid(DEL_SID, "fcbb:bbbb:fe24::/48", [32, 0, 16, 0], &[]), withdraw("2001:db8:9::/64", 0)]));
    wait_for("the end of both", || (sids(&rig) == expected[..2] && rows(&rig, "paths").is_empty()).then_some(()));

    // Bytes that are not FPM end the connection, but remove no route.
    client.say(b"GET / HTTP/1.1\r\n\r\n");
    wait_for("the end of the connection", || (fpm(&rig)["state"] == "disconnected").then_some(()));
    assert!(fpm(&rig)["last_error"].as_str().unwrap().contains("no FPM peer"));
    assert_eq!(sids(&rig), expected[..2]);
    rig.check_lives(daemon);

    // The next connection announces only one entry again, and the others are removed.
    let mut client = Client::connect(&rig);
    client.say(&frame(&said[..1]));
    wait_for("the sweep", || (sids(&rig) == expected[..1] && fpm(&rig)["fpm"]["stale"] == 0).then_some(()));
    assert!(!rows(&rig, "routes").iter().any(|row| row["prefix"] == "fcbb:bbbb:2::/48"));
}
