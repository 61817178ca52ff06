//! The table of announcements over several connections: what stays, what is stale and what is removed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use crate::made;

use std::time::{Duration, Instant};

use made::{
    DEL_NEXT_HOP, NEW_NEXT_HOP, NEW_SID, address, announce, events, frame, group, next_hop, number, sid, withdraw,
};
use srv6d_fpm::{Resolved, Rib};

const QUIET: Duration = Duration::from_mins(1);

struct Feed {
    rib: Rib,
    now: Instant,
}

impl Feed {
    fn new() -> Self {
        let mut feed = Self { rib: Rib::default(), now: Instant::now() };
        feed.rib.connected(feed.now);
        feed
    }

    fn say(&mut self, messages: &[Vec<u8>]) {
        for event in events(&frame(messages)) {
            self.rib.apply(event, self.now);
        }
    }

    fn reconnect(&mut self) {
        self.rib.disconnected(self.now);
        self.rib.connected(self.now);
    }

    /// Returns the routes as `prefix -> neighbours with their weights`.
    fn routes(&self) -> Vec<String> {
        let hop = |hop: &srv6d_fpm::Hop| format!("{}*{}", hop.via.unwrap(), hop.weight);
        let route = |route: srv6d_fpm::Announced| match route.what {
            Resolved::Hops(hops) => {
                let hops: Vec<String> = hops.iter().map(hop).collect();
                format!("{} -> {}", route.key.prefix, hops.join(" "))
            }
            other => format!("{} {other:?}", route.key.prefix),
        };
        self.rib.routes().map(route).collect()
    }
}

fn hop(id: u32, via: &str) -> Vec<u8> {
    next_hop(NEW_NEXT_HOP, id, &[number(5, 2), address(6, via)])
}

fn by_object(prefix: &str, id: u32) -> Vec<u8> {
    announce(prefix, 254, &[number(30, id)])
}

fn direct(prefix: &str, via: &str) -> Vec<u8> {
    announce(prefix, 254, &[address(5, via), number(4, 2)])
}

#[test]
fn numbers_may_come_before_what_they_stand_for() {
    let mut feed = Feed::new();
    feed.say(&[by_object("2001:db8:b::/48", 9), group(9, &[(3, 1), (4, 2)])]);
    assert_eq!(feed.routes(), Vec::<String>::new());
    assert_eq!(feed.rib.waiting(), 1);
    feed.say(&[hop(3, "fe80::3")]);
    assert_eq!(feed.routes(), Vec::<String>::new());
    feed.say(&[hop(4, "fe80::4")]);
    assert_eq!(feed.routes(), ["2001:db8:b::/48 -> fe80::3*1 fe80::4*2"]);
    assert_eq!(feed.rib.waiting(), 0);
}

#[test]
fn a_replaced_object_changes_its_routes() {
    let mut feed = Feed::new();
    feed.say(&[hop(3, "fe80::3"), by_object("2001:db8:b::/48", 3), by_object("2001:db8:c::/48", 3)]);
    feed.say(&[hop(3, "fe80::9")]);
    assert_eq!(feed.routes(), ["2001:db8:b::/48 -> fe80::9*1", "2001:db8:c::/48 -> fe80::9*1"]);
    feed.say(&[next_hop(DEL_NEXT_HOP, 3, &[])]);
    assert_eq!(feed.rib.waiting(), 2);
}

#[test]
fn a_prefix_keeps_its_way_until_the_new_one_is_known() {
    let mut feed = Feed::new();
    feed.say(&[direct("2001:db8:b::/48", "fe80::3"), by_object("2001:db8:b::/48", 7)]);
    assert_eq!(feed.routes(), ["2001:db8:b::/48 -> fe80::3*1"]);
    feed.say(&[hop(7, "fe80::7")]);
    assert_eq!(feed.routes(), ["2001:db8:b::/48 -> fe80::7*1"]);
}

#[test]
fn the_last_word_about_a_prefix_counts() {
    let mut feed = Feed::new();
    feed.say(&[direct("2001:db8:b::/48", "fe80::3"), withdraw("2001:db8:b::/48", 254)]);
    assert!(feed.rib.is_empty());
    // Without `fpm use-route-replace`, both messages are in one frame.
    feed.say(&[withdraw("2001:db8:b::/48", 254), direct("2001:db8:b::/48", "fe80::4")]);
    assert_eq!(feed.routes(), ["2001:db8:b::/48 -> fe80::4*1"]);
}

#[test]
fn a_new_connection_sweeps_what_it_does_not_say_again() {
    let mut feed = Feed::new();
    feed.say(&[
        hop(3, "fe80::3"),
        by_object("2001:db8:b::/48", 3),
        direct("2001:db8:c::/48", "fe80::4"),
        sid(NEW_SID, "fcbb:bbbb:1::/48", [32, 16, 0, 0], &[number(3, 14)]),
    ]);
    assert_eq!((feed.rib.stale(), feed.rib.sweep_due(QUIET)), (0, None));
    feed.rib.disconnected(feed.now);
    assert_eq!((feed.rib.stale(), feed.rib.len()), (3, 3));
    assert_eq!(feed.rib.sweep_due(QUIET), None, "nobody is there to say it again");
    feed.rib.connected(feed.now);
    assert_eq!(feed.rib.sweep_due(QUIET), Some(feed.now + QUIET));
    feed.now += Duration::from_secs(40);
    // The number 3 now stands for another next hop; the stale route keeps its own next hop.
    feed.say(&[hop(3, "fe80::99"), direct("2001:db8:c::/48", "fe80::4")]);
    assert_eq!(feed.routes(), ["2001:db8:b::/48 -> fe80::3*1", "2001:db8:c::/48 -> fe80::4*1"]);
    assert_eq!(feed.rib.stale(), 2);
    assert_eq!(feed.rib.sweep_due(QUIET), Some(feed.now + QUIET), "the quiet time begins anew");
    assert_eq!(feed.rib.sweep(), 2);
    assert_eq!(feed.routes(), ["2001:db8:c::/48 -> fe80::4*1"]);
    assert_eq!((feed.rib.stale(), feed.rib.sids().count(), feed.rib.sweep_due(QUIET)), (0, 0, None));
}

#[test]
fn what_is_said_again_by_a_number_not_known_yet_goes_on() {
    let mut feed = Feed::new();
    feed.say(&[hop(3, "fe80::3"), by_object("2001:db8:b::/48", 3)]);
    feed.reconnect();
    feed.say(&[by_object("2001:db8:b::/48", 12)]);
    assert_eq!(feed.routes(), ["2001:db8:b::/48 -> fe80::3*1"]);
    // A second reconnect in a row, and the number 12 was never resolved.
    feed.reconnect();
    assert_eq!(feed.routes(), ["2001:db8:b::/48 -> fe80::3*1"]);
    assert_eq!(feed.rib.stale(), 1);
}

#[test]
fn new_announcements_do_not_hold_up_the_sweep() {
    let mut feed = Feed::new();
    feed.say(&[direct("2001:db8:b::/48", "fe80::3")]);
    feed.reconnect();
    let due = feed.rib.sweep_due(QUIET);
    feed.now += Duration::from_secs(59);
    feed.say(&[direct("2001:db8:c::/48", "fe80::3")]);
    assert_eq!(feed.rib.sweep_due(QUIET), due);
}

#[test]
fn a_stale_route_that_is_withdrawn_is_gone() {
    let mut feed = Feed::new();
    feed.say(&[direct("2001:db8:b::/48", "fe80::3")]);
    feed.reconnect();
    feed.say(&[withdraw("2001:db8:b::/48", 254)]);
    assert_eq!((feed.rib.len(), feed.rib.stale()), (0, 0));
}

#[test]
fn groups_that_hold_themselves_and_members_that_send_nowhere_are_named() {
    let mut feed = Feed::new();
    let blackhole = next_hop(NEW_NEXT_HOP, 5, &[made::attribute(4, &[])]);
    feed.say(&[group(1, &[(2, 1), (1, 1)]), hop(2, "fe80::2"), group(3, &[(2, 1), (5, 1)]), blackhole]);
    feed.say(&[by_object("2001:db8:a::/48", 1), by_object("2001:db8:b::/48", 3), by_object("2001:db8:c::/48", 5)]);
    let what: Vec<Resolved> = feed.rib.routes().map(|route| route.what).collect();
    let [Resolved::Unusable(circle), Resolved::Unusable(nowhere), Resolved::Blackhole] = what.as_slice() else {
        panic!("{what:?}")
    };
    assert!(circle.contains("circle") && nowhere.contains("sends nowhere"), "{circle} {nowhere}");
}

#[test]
fn what_nobody_came_back_for_ages_out() {
    const RESTART: Duration = Duration::from_mins(15);
    let mut feed = Feed::new();
    feed.say(&[direct("2001:db8:b::/48", "fe80::3"), direct("2001:db8:c::/48", "fe80::3")]);
    assert_eq!(feed.rib.age_due(RESTART), None, "zebra is connected");
    feed.rib.disconnected(feed.now);
    let first = feed.now + RESTART;
    assert_eq!(feed.rib.age_due(RESTART), Some(first));
    // zebra connects briefly, announces one route again and dies: that route has its own restart time.
    feed.now += Duration::from_mins(5);
    feed.rib.connected(feed.now);
    feed.say(&[direct("2001:db8:c::/48", "fe80::3")]);
    assert_eq!(feed.rib.age_due(RESTART), None);
    feed.rib.disconnected(feed.now);
    assert_eq!(feed.rib.age_due(RESTART), Some(first));
    assert_eq!(feed.rib.age_out(feed.now, RESTART), 0);
    assert_eq!(feed.rib.age_out(first, RESTART), 1);
    assert_eq!(feed.routes(), ["2001:db8:c::/48 -> fe80::3*1"]);
    assert_eq!(feed.rib.age_due(RESTART), Some(feed.now + RESTART));
    assert_eq!(feed.rib.age_out(feed.now + RESTART, RESTART), 1);
    assert_eq!((feed.rib.len(), feed.rib.stale(), feed.rib.age_due(RESTART)), (0, 0, None));
}
