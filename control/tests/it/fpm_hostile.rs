//! Tests of FPM's port, which is open to every user of the machine: what users without permission can do, and what a
//! permitted peer can cost.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test stops at the first surprise")]

use crate::made;
use crate::support;

use made::{NEW_NEXT_HOP, address, announce, frame, group, next_hop, number};
use support::fpm::{Client, fpm, is_listening};
use support::rig::{self, Rig, wait_for};

fn start(fpm: &str) -> (Rig, usize) {
    let mut rig = Rig::new(1);
    let daemon = rig.ready(&format!("{}\n[fpm]\n{fpm}", rig::CONFIG));
    is_listening(&rig);
    (rig, daemon)
}

fn route(rig: &Rig, prefix: &str) -> Vec<u8> {
    let eth2: u32 = rig.inside("router", "cat /sys/class/net/eth2/ifindex").trim().parse().unwrap();
    announce(prefix, 254, &[address(5, "2001:db8:b::2"), number(4, eth2)])
}

fn is_there(rig: &Rig, prefix: &str) -> bool {
    rig.show("routes").as_array().unwrap().iter().any(|row| row["prefix"] == prefix)
}

fn appears(rig: &Rig, prefix: &str) {
    wait_for(prefix, || is_there(rig, prefix).then_some(()));
}

#[test]
#[ignore = "needs root: network namespaces"]
fn users_who_may_not_announce_are_turned_away() {
    let (mut rig, daemon) = start("restart_time = \"3s\"");
    let mut zebra = Client::connect(&rig);
    zebra.say(&frame(&[route(&rig, "2001:db8:71::/48")]));
    appears(&rig, "2001:db8:71::/48");

    let mut nobody = Client::connect_as(&rig, "nobody");
    nobody.say(&frame(&[route(&rig, "2001:db8:66::/48")]));
    wait_for("the refusal", || (fpm(&rig)["fpm"]["turned_away"] == 1).then_some(()));
    let why = fpm(&rig)["fpm"]["last_turned_away"].as_str().unwrap().to_owned();
    assert!(why.contains("user nobody is not one of `allowed_users`"), "{why}");
    // If a client has sent everything and closed its end already, the kernel reports its user as 0.
    let shout = rig.file("shout");
    std::fs::write(&shout, frame(&[route(&rig, "2001:db8:66::/48")])).unwrap();
    let command = format!("bash -c 'for n in {{1..20}}; do cat {} > /dev/tcp/127.0.0.1/2620; done'", shout.display());
    rig.output("router", &format!("setpriv --reuid nobody --clear-groups {command}"));
    wait_for("the refusals", || (fpm(&rig)["fpm"]["turned_away"].as_u64() >= Some(2)).then_some(()));

    zebra.say(&frame(&[route(&rig, "2001:db8:72::/48")]));
    appears(&rig, "2001:db8:72::/48");
    let now = fpm(&rig);
    assert_eq!((&now["state"], &now["fpm"]["connections"]), (&"connected".into(), &1.into()), "nobody took its place");
    assert!(!is_there(&rig, "2001:db8:66::/48"));

    // Routes are removed if zebra does not connect again.
    drop(zebra);
    wait_for("the end of its routes", || (!is_there(&rig, "2001:db8:71::/48")).then_some(()));
    assert_eq!(fpm(&rig)["fpm"]["routes"], 0);
    rig.check_lives(daemon);
}

#[test]
#[ignore = "needs root: network namespaces"]
fn users_and_addresses_that_are_written_may_announce() {
    let (rig, _) = start("listen = \"[::]:2620\"\nallowed_users = [\"65534\"]\nallowed_peers = [\"2001:db8:b::/64\"]");
    let mut nobody = Client::connect_as(&rig, "nobody");
    nobody.say(&frame(&[route(&rig, "2001:db8:71::/48")]));
    appears(&rig, "2001:db8:71::/48");
    let mut root = Client::connect(&rig);
    root.say(&frame(&[route(&rig, "2001:db8:66::/48")]));
    wait_for("the refusal", || (fpm(&rig)["fpm"]["turned_away"] == 1).then_some(()));
    // Host b is allowed, host a is not.
    rig.output("a", "timeout 5 bash -c 'exec 3<>/dev/tcp/2001:db8:a::1/2620; sleep 1'");
    wait_for("the refusal of a", || (fpm(&rig)["fpm"]["turned_away"] == 2).then_some(()));
    assert_eq!(fpm(&rig)["fpm"]["connections"], 1);
    rig.output("b", "timeout 5 bash -c 'exec 3<>/dev/tcp/2001:db8:b::1/2620; sleep 1'");
    wait_for("b", || (fpm(&rig)["fpm"]["connections"] == 2).then_some(()));
    assert!(!is_there(&rig, "2001:db8:66::/48"));
}

#[test]
#[ignore = "needs root: network namespaces"]
fn groups_that_stand_for_billions_are_one_refused_object() {
    let (mut rig, daemon) = start("");
    let mut zebra = Client::connect(&rig);
    let of_many = |id, member| group(id, &vec![(member, 1); 2000]);
    zebra.say(&frame(&[next_hop(NEW_NEXT_HOP, 1, &[number(5, 2), address(6, "2001:db8:b::2")])]));
    zebra.say(&frame(&[of_many(2, 1), of_many(3, 2)]));
    zebra.say(&frame(&[of_many(4, 3), announce("2001:db8:66::/48", 254, &[number(30, 4)])]));
    zebra.say(&frame(&[route(&rig, "2001:db8:71::/48")]));
    appears(&rig, "2001:db8:71::/48");
    let said = rig.ask("node", "show source").stdout;
    assert!(rig::text(&said).contains("next-hop object 4: a group that leads through more than 1024"), "{said:?}");
    let said = rig.ask("node", "show routes --unfollowed").stdout;
    assert!(rig::text(&said).contains("2001:db8:66::/48"), "{said:?}");
    rig.check_lives(daemon);
}
