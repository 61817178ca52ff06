//! Bytes that no kernel would send: the reader reads as far as possible, does not panic and always ends.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::netlink;

use std::collections::BTreeSet;

use netlink::{NEW_NEXT_HOP, Route, attribute, group, leg, next_hop, number, octets, rule, seg6, seg6_local};
use proptest::prelude::*;
use srv6d_kernel_routes::{Messages, Routes};

/// Returns a datagram with one message of each kind.
fn samples() -> Vec<u8> {
    let via = attribute(5, &octets("fe80::1".parse().unwrap()));
    let segments = ["fcbb:0:1::".parse().unwrap(), "fcbb:0:2::".parse().unwrap()];
    let csid = attribute(11, &[number(1, 1 << 4), attribute(2, &[48]), attribute(3, &[16])].concat());
    [
        Route::to("10.1.0.0/16").via("10.0.0.1", 2).added(0),
        Route::to("2001:db8::/32").with(&number(4, 7)).with(&seg6((21, 22), 1, &segments)).added(0),
        Route::to("2001:db8::/32").legs(&[leg(0, 1, 7, &via), leg(0, 2, 8, &via)]).added(0),
        Route::to("fcbb:0:1::/48").with(&number(4, 1)).with(&seg6_local(&[number(1, 1), csid])).added(0),
        next_hop(NEW_NEXT_HOP, 1, &[number(5, 7), seg6((7, 8), 3, &segments)].concat()),
        next_hop(NEW_NEXT_HOP, 10, &group(&[(1, 1), (10, 2)])),
        Route::to("2001:db8:1::/48").object(10).added(0),
        rule(10, 254, 1, &[number(6, 100), attribute(3, b"eth1\0")].concat()),
    ]
    .concat()
}

/// Loads and applies all messages of a datagram, and returns their number.
fn take(bytes: &[u8]) -> usize {
    let (mut loaded, mut kept, mut changed) = (Routes::default(), Routes::default(), BTreeSet::new());
    let mut read = 0;
    for message in Messages::new(bytes) {
        loaded.load(message.clone());
        let _ = kept.apply(message, &mut changed); // another test checks the result
        read += 1;
    }
    assert!(changed.len() <= read && loaded.used().count() <= read);
    read
}

#[test]
fn a_datagram_may_end_anywhere() {
    let whole = samples();
    assert_eq!(take(&whole), 8);
    let mut last = 0;
    for end in 0..whole.len() {
        let read = take(&whole[..end]);
        assert!(read >= last, "more bytes, fewer messages at {end}");
        last = read;
    }
    assert_eq!(last, 7);
}

#[test]
fn lengths_that_lie_end_the_reading() {
    let whole = samples();
    for at in (0..whole.len() - 1).step_by(2) {
        for length in [0u16, 1, 3, 4, 5, 15, 16, 17, u16::MAX] {
            let mut bytes = whole.clone();
            bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
            take(&bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn bytes_of_any_kind(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        take(&bytes);
    }

    #[test]
    fn bytes_behind_a_head_that_is_right(kind in prop::sample::select(&[24u16, 25, 32, 33, 104, 105][..]), body in prop::collection::vec(any::<u8>(), 0..400)) {
        take(&netlink::message(kind, 0, &body));
    }

    #[test]
    fn samples_with_bytes_changed(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
        let mut bytes = samples();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        take(&bytes);
    }
}
