//! Tests of bytes, checks and ages.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test may panic")]

use proptest::prelude::*;

use crate::{Arrival, Counters, Entry, Freshness, Heartbeat, Key, MOST_ENTRIES, Peers, Reject, Role, Settings};

const PORT: u32 = 7;
const MS: u64 = 1_000_000;
const NODE: u32 = 0x0a00_0001;
const FIRST: u32 = 0x0a00_000b;

const PLAIN: &str = "53525148010101020a0000010000002a000000003b9aca00001412340a00000b070304e200000003000000640a00000c000326ac\
                     222e000400000019";
const SIGNED: &str = "53525148010601010a0000010000002b000000003baa0c40001412340a00000b070304e200000003000000640000000195b8ff4b\
                      8b2af0f9d791cefb2836cb3caa11a456fe15d8d587de629e7fd7d75b";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn entry(neighbor: u32, capacity: u32) -> Entry {
    let (ifindex, load) = (3, 1250);
    Entry { neighbor, band: 7, is_up: true, is_valid: true, load, queue: 0, ifindex, capacity }
}

fn plain() -> Heartbeat {
    let busy = Entry { band: 0, load: 9900, queue: 8750, ifindex: 4, ..entry(0x0a00_000c, 25) };
    Heartbeat {
        is_periodic: true,
        is_change: false,
        is_draining: false,
        role: Role::Helper,
        node: NODE,
        sequence: 42,
        clock: 1_000_000_000,
        period: 20,
        boot: 0x1234,
        entries: vec![entry(FIRST, 100), busy],
    }
}

fn signed() -> Heartbeat {
    let entries = vec![entry(FIRST, 100)];
    Heartbeat { is_periodic: false, is_change: true, sequence: 43, clock: 1_001_000_000, entries, ..plain() }
}

fn key() -> Key {
    Key::new(1, "srv6d-test-key")
}

fn peers(key: Option<Key>) -> Peers {
    Peers::new(Settings {
        node: 0x0a00_00ff,
        key,
        ports: [(PORT, NODE), (PORT + 2, NODE + 1)].into(),
        ..Settings::default()
    })
}

fn at(now: u64) -> Arrival {
    Arrival { port: PORT, ttl: 255, now }
}

#[test]
fn bytes_are_those_of_the_format() {
    assert_eq!(plain().encode(None), bytes(PLAIN));
    assert_eq!(signed().encode(Some(&key())), bytes(SIGNED));
    assert_eq!(Heartbeat::decode(&bytes(PLAIN), None), Ok(plain()));
    assert_eq!(Heartbeat::decode(&bytes(SIGNED), Some(&key())), Ok(signed()));
    assert_eq!(Heartbeat::decode(&bytes(SIGNED), None), Ok(signed()), "without a key nobody looks at the signature");
    let many = Heartbeat { entries: (1..=100).map(|neighbor| entry(neighbor, 1)).collect(), ..plain() };
    let longest = many.encode(Some(&key()));
    assert_eq!(longest.len(), 1088, "the longest heartbeat");
    assert_eq!(Heartbeat::decode(&longest, Some(&key())).unwrap().entries.len(), MOST_ENTRIES);
}

/// Returns a heartbeat with one byte changed.
fn with(at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = bytes(PLAIN);
    bytes[at] = byte;
    bytes
}

#[test]
fn each_rule_refuses_and_has_its_counter() {
    let plain_bytes = bytes(PLAIN);
    let twice = Heartbeat { entries: vec![entry(FIRST, 1), entry(2, 1), entry(FIRST, 1)], ..plain() };
    let own = Heartbeat { node: 0x0a00_00ff, ..plain() };
    let longer = [plain_bytes.as_slice(), &[0]].concat();
    let refused: [(Reject, Vec<u8>); 18] = [
        (Reject::Magic, with(3, b'I')),
        (Reject::Version, with(4, 2)),
        (Reject::Flag, with(5, 0x11)),
        (Reject::Flag, with(28 + 5, 7)),
        (Reject::Role, with(6, 2)),
        (Reject::Role, with(6, 0)),
        (Reject::Entries, with(7, 65)),
        (Reject::Length, with(7, 1)),
        (Reject::Length, with(5, 5)),
        (Reject::Length, longer),
        (Reject::Length, Vec::new()),
        (Reject::NoNode, Heartbeat { node: 0, ..plain() }.encode(None)),
        (Reject::OwnNode, own.encode(None)),
        (Reject::Band, with(28 + 4, 8)),
        (Reject::Percent, with(28 + 6, 0x28)),
        (Reject::Percent, with(28 + 8, 0x28)),
        (Reject::NoNeighbor, Heartbeat { entries: vec![entry(0, 1)], ..plain() }.encode(None)),
        (Reject::NeighborTwice, twice.encode(None)),
    ];
    let mut peers = peers(None);
    for (reject, bytes) in &refused {
        assert_eq!(peers.receive(bytes, at(0)), Err(*reject));
    }
    assert_eq!(peers.receive(&plain_bytes, Arrival { ttl: 254, ..at(0) }), Err(Reject::Ttl));
    assert_eq!(peers.receive(&plain_bytes, Arrival { port: PORT + 1, ..at(0) }), Err(Reject::Port));
    assert_eq!((peers.all().len(), peers.received(), peers.rejected().total()), (0, 0, 20));
    for reject in Reject::ALL {
        let sent = refused.iter().filter(|(of, _)| of == reject).count() as u64;
        let sent = sent + u64::from(matches!(reject, Reject::Ttl | Reject::Port));
        assert_eq!(peers.rejected().of(*reject), sent, "{}", reject.word());
    }
    assert_eq!(peers.receive(&plain_bytes, at(0)), Ok(NODE));
}

#[test]
fn only_the_right_key_is_believed() {
    let mut peers = peers(Some(key()));
    let with_key = |key: Key| signed().encode(Some(&key));
    assert_eq!(peers.receive(&plain().encode(None), at(0)), Err(Reject::Unsigned));
    assert_eq!(peers.receive(&with_key(Key::new(1, "another")), at(0)), Err(Reject::Signature));
    assert_eq!(peers.receive(&with_key(Key::new(2, "srv6d-test-key")), at(0)), Err(Reject::Signature));
    for at_byte in 8..bytes(SIGNED).len() {
        let mut changed = bytes(SIGNED);
        changed[at_byte] ^= 1;
        assert_eq!(peers.receive(&changed, at(0)), Err(Reject::Signature), "byte {at_byte}");
    }
    assert_eq!(peers.receive(&bytes(SIGNED), at(0)), Ok(NODE));
    assert!(!format!("{peers:?}").contains(&format!("{:?}", b"srv6d-test-key")), "the secret is not shown");
}

#[test]
fn what_is_sent_again_or_late_changes_nothing() {
    let mut peers = peers(None);
    let sent = |sequence, boot| Heartbeat { sequence, boot, ..plain() }.encode(None);
    assert_eq!(peers.receive(&sent(u32::MAX - 1, 1), at(0)), Ok(NODE));
    assert_eq!(peers.receive(&sent(1, 1), at(1)), Ok(NODE), "the number has wrapped");
    let known = peers.all().clone();
    for old in [1, 0, u32::MAX] {
        assert_eq!(peers.receive(&sent(old, 1), at(2)), Err(Reject::Sequence), "{old}");
    }
    assert_eq!(peers.all(), &known);
    assert_eq!(peers.receive(&sent(0, 2), at(3)), Ok(NODE), "the node has started again");
    let peer = &peers.all()[&NODE];
    assert_eq!((peer.received, peer.missed, peer.restarts, peer.heard), (3, 2, 1, 3));
}

#[test]
fn silence_makes_a_peer_unknown_and_suspect_and_removes_nobody() {
    let mut peers = peers(None);
    peers.receive(&bytes(PLAIN), at(5 * MS)).unwrap();
    let freshness = |now| peers.all()[&NODE].freshness(now);
    // The clock has gone back; then three and five periods of 20 ms.
    assert_eq!([0, 65 * MS].map(freshness), [Freshness::Fresh; 2]);
    assert_eq!([65 * MS + 1, 105 * MS].map(freshness), [Freshness::Unknown; 2]);
    assert_eq!([105 * MS + 1, u64::MAX].map(freshness), [Freshness::Suspect; 2]);
    let load = |now| peers.all()[&NODE].entry(FIRST, now).map(|entry| entry.load);
    assert_eq!([65 * MS, 65 * MS + 1, u64::MAX].map(load), [Some(1250), None, None]);
    assert_eq!(peers.all()[&NODE].entry(9, 0), None, "no such neighbour");
    assert_eq!(peers.all().len(), 1);
}

#[test]
fn what_a_peer_does_not_know_does_not_count() {
    let mut peers = peers(None);
    let unknown = Entry { is_valid: false, ..entry(FIRST, 1) };
    peers.receive(&Heartbeat { entries: vec![unknown], period: 0, ..plain() }.encode(None), at(0)).unwrap();
    assert_eq!(peers.all()[&NODE].entry(FIRST, 0), None);
    assert_eq!(peers.all()[&NODE].freshness(3 * MS), Freshness::Fresh, "a period is a millisecond at least");
}

#[test]
fn only_the_node_at_the_other_end_is_believed() {
    let mut peers = peers(None);
    let sent = |node| Heartbeat { node, ..plain() }.encode(None);
    for invented in (2..2000).chain([NODE + 1]) {
        assert_eq!(peers.receive(&sent(invented), at(0)), Err(Reject::Neighbor));
    }
    assert!(peers.all().is_empty(), "invented nodes take no room");
    assert_eq!(peers.receive(&sent(NODE + 1), Arrival { port: PORT + 2, ..at(0) }), Ok(NODE + 1));
    assert_eq!(peers.receive(&sent(NODE), at(0)), Ok(NODE));
    let settings = Settings { node: 0x0a00_00ff, ports: [(PORT, NODE)].into(), ..Settings::default() };
    peers.change(Settings { absent: [NODE + 1].into(), ..settings.clone() });
    assert_eq!(peers.all().keys().collect::<Vec<_>>(), [&NODE, &(NODE + 1)], "the port of the other one is gone");
    assert_eq!(peers.receive(&sent(NODE + 1), Arrival { port: PORT + 2, ..at(0) }), Err(Reject::Port));
    peers.change(settings);
    assert_eq!(peers.all().keys().collect::<Vec<_>>(), [&NODE], "the other one is not expected any more");
}

#[test]
fn counters_have_names_of_their_own() {
    let mut words: Vec<&str> = Reject::ALL.iter().map(|reject| reject.word()).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), Reject::ALL.len());
    assert_eq!(Counters::default().total(), 0);
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let fields = (0..=7u8, any::<(bool, bool)>(), 0..=10_000u16, 0..=10_000u16, any::<(u16, u32)>());
    let of = |(neighbor, (band, (is_up, is_valid), load, queue, (ifindex, capacity)))| Entry {
        neighbor,
        band,
        is_up,
        is_valid,
        load,
        queue,
        ifindex,
        capacity,
    };
    prop::collection::btree_map(1u32.., fields, 0..=MOST_ENTRIES).prop_map(move |all| all.into_iter().map(of).collect())
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        flags in any::<(bool, bool, bool, bool)>(),
        numbers in (1u32.., any::<(u32, u64, u16, u16)>()),
        entries in entries(),
    ) {
        let (is_periodic, is_change, is_draining, is_both) = flags;
        let (node, (sequence, clock, period, boot)) = numbers;
        let role = if is_both { Role::Both } else { Role::Helper };
        let sent =
            Heartbeat { is_periodic, is_change, is_draining, role, node, sequence, clock, period, boot, entries };
        prop_assert_eq!(Heartbeat::decode(&sent.encode(None), None), Ok(sent.clone()));
        prop_assert_eq!(Heartbeat::decode(&sent.encode(Some(&key())), Some(&key())), Ok(sent));
    }
}
