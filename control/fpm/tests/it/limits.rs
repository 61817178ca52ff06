//! Limits on one peer: every stream of announcements ends in bounded memory and time, and what was refused is named.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use crate::made;

use std::time::Instant;

use made::{NEW_NEXT_HOP, NEW_SID, address, announce, events, frame, group, next_hop, number, sid, withdraw};
use srv6d_fpm::{Limits, OBJECTS_PER_ROUTE, Resolved, Rib};

fn rib(routes: usize) -> Rib {
    let mut rib = Rib::default();
    rib.set_limits(Limits { routes });
    rib.connected(Instant::now());
    rib
}

fn say(rib: &mut Rib, messages: &[Vec<u8>]) {
    for message in messages {
        for event in events(&frame(std::slice::from_ref(message))) {
            rib.apply(event, Instant::now());
        }
    }
}

fn hop(id: u32) -> Vec<u8> {
    next_hop(NEW_NEXT_HOP, id, &[number(5, 2), address(6, "fe80::2")])
}

fn of_many(id: u32, member: u32, count: usize) -> Vec<u8> {
    group(id, &vec![(member, 1); count])
}

fn by_object(prefix: &str, id: u32) -> Vec<u8> {
    announce(prefix, 254, &[number(30, id)])
}

fn direct(prefix: &str) -> Vec<u8> {
    announce(prefix, 254, &[address(5, "fe80::2"), number(4, 2)])
}

/// Returns the number of next hops of each route, or the reason why it has none.
fn routes(rib: &Rib) -> Vec<Result<usize, String>> {
    let hops = |route: srv6d_fpm::Announced| match route.what {
        Resolved::Hops(hops) => Ok(hops.len()),
        Resolved::Unusable(why) => Err(why),
        other => panic!("{other:?}"),
    };
    rib.routes().map(hops).collect()
}

#[test]
fn three_groups_of_thousands_in_each_other_are_one_refused_object() {
    let mut rib = rib(1000);
    // 48 kB of messages stand for 2000 * 2000 * 2000 next hops.
    say(&mut rib, &[hop(1), of_many(2, 1, 2000), of_many(3, 2, 2000), of_many(4, 3, 2000)]);
    say(&mut rib, &[by_object("2001:db8:a::/48", 4), direct("2001:db8:b::/48")]);
    let routes_now = routes(&rib);
    let [Err(why), Ok(1)] = routes_now.as_slice() else { panic!() };
    assert!(why.contains("more than 1024 next hops"), "{why}");
    let refused: Vec<u32> = rib.unusable_next_hops(8).into_iter().map(|(id, _)| id).collect();
    assert_eq!(refused, [2, 3, 4]);
    rib.disconnected(Instant::now());
    assert_eq!(routes(&rib).len(), 2);
}

#[test]
fn groups_of_groups_of_nothing_end_too() {
    let mut rib = rib(1000);
    say(&mut rib, &[group(1, &[]), of_many(2, 1, 2000), of_many(3, 2, 2000), of_many(4, 3, 2000), hop(9)]);
    say(&mut rib, &[group(5, &[(9, 1), (1, 1)]), by_object("2001:db8:a::/48", 4), by_object("2001:db8:b::/48", 1)]);
    say(&mut rib, &[by_object("2001:db8:c::/48", 5)]);
    let routes_now = routes(&rib);
    let [Err(_), Err(empty), Ok(1)] = routes_now.as_slice() else { panic!() };
    assert!(empty.contains("without next hops"), "{empty}");
}

#[test]
fn small_groups_in_groups_are_taken_with_their_shares() {
    let mut rib = rib(1000);
    say(&mut rib, &[hop(1), hop(2), group(3, &[(1, 2), (2, 1)]), group(4, &[(3, 3), (1, 1)])]);
    say(&mut rib, &[by_object("2001:db8:a::/48", 4)]);
    let route = rib.routes().next().unwrap();
    let Resolved::Hops(hops) = route.what else { panic!() };
    assert_eq!(hops.iter().map(|hop| hop.weight).collect::<Vec<_>>(), [6, 3, 1]);
}

#[test]
fn a_group_as_large_as_is_taken_is_taken() {
    let mut rib = rib(1000);
    say(&mut rib, &[hop(1), of_many(2, 1, OBJECTS_PER_ROUTE - 1), of_many(3, 1, OBJECTS_PER_ROUTE)]);
    say(&mut rib, &[by_object("2001:db8:a::/48", 2), by_object("2001:db8:b::/48", 3)]);
    assert!(matches!(routes(&rib).as_slice(), [Ok(1023), Err(_)]));
}

#[test]
fn many_routes_over_one_large_group_are_bounded_together() {
    let mut rib = rib(200);
    say(&mut rib, &[hop(1), of_many(2, 1, 1000)]);
    let prefixes: Vec<Vec<u8>> = (0..200).map(|n| by_object(&format!("2001:db8:{n:x}::/48"), 2)).collect();
    say(&mut rib, &prefixes);
    let resolved = routes(&rib);
    let taken: usize = resolved.iter().flatten().sum();
    assert!(taken <= 64 * OBJECTS_PER_ROUTE, "{taken}");
    assert!(taken > 60_000 && resolved.len() == 200);
    let why = resolved.into_iter().find_map(Result::err).unwrap();
    assert!(why.contains("max_routes"), "{why}");
    // The end of the connection replaces numbers by next hops; that must not make them more.
    rib.disconnected(Instant::now());
    assert!(routes(&rib).iter().flatten().sum::<usize>() <= taken);
}

#[test]
fn routes_sids_and_objects_are_counted() {
    let mut rib = rib(3);
    say(&mut rib, &[direct("2001:db8:a::/48"), direct("2001:db8:b::/48")]);
    say(&mut rib, &[sid(NEW_SID, "fcbb:bbbb:1::/48", [32, 16, 0, 0], &[number(3, 14)])]);
    say(&mut rib, &[direct("2001:db8:c::/48"), sid(NEW_SID, "fcbb:bbbb:2::/48", [32, 16, 0, 0], &[number(3, 14)])]);
    assert_eq!((rib.len(), rib.refused().count), (3, 2));
    let why = rib.refused().last.clone().unwrap();
    assert!(why.contains("the SID fcbb:bbbb:2::/48") && why.contains("max_routes"), "{why}");
    // Known routes may be announced again, and removed ones make room.
    say(&mut rib, &[direct("2001:db8:a::/48"), withdraw("2001:db8:b::/48", 254), direct("2001:db8:c::/48")]);
    assert_eq!((rib.len(), rib.refused().count), (3, 2));
    say(&mut rib, &[hop(1), hop(2), hop(3), hop(4), hop(1)]);
    assert_eq!((rib.next_hops(), rib.refused().count), (3, 3));
}

#[test]
fn next_hops_are_counted_and_given_back() {
    let mut rib = rib(1);
    let limit = 64 * OBJECTS_PER_ROUTE;
    rib.set_limits(Limits { routes: 100 });
    let groups: Vec<Vec<u8>> = (10..90).map(|id| of_many(id, 1, 1000)).collect();
    for _ in 0..3 {
        say(&mut rib, &groups);
    }
    let refused = rib.refused().clone();
    assert!(refused.count > 0 && refused.last.unwrap().contains(&limit.to_string()));
    let withdrawn: Vec<Vec<u8>> = (10..90).map(|id| next_hop(made::DEL_NEXT_HOP, id, &[])).collect();
    say(&mut rib, &withdrawn);
    let before = rib.refused().count;
    say(&mut rib, groups.get(..60).unwrap());
    assert_eq!(rib.refused().count, before, "what was withdrawn has made room");
}

#[test]
fn names_are_those_of_devices() {
    let named = |name: &[u8]| {
        let message = sid(NEW_SID, "fcbb:bbbb:1::/48", [32, 16, 0, 0], &[number(3, 21), made::attribute(4, name)]);
        srv6d_fpm::messages(&message).next().map(|message| srv6d_fpm::decode(message.unwrap()).is_ok()).unwrap()
    };
    assert!(named(b"Vrf-red.100\0") && named(b"123456789012345\0"));
    assert!(
        !named(b"1234567890123456\0") && !named(b"Vrf\x1b[2J\0") && !named(b"a name\0") && !named("Vrfö".as_bytes())
    );
}
