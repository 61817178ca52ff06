//! Heartbeats of other nodes: a table of peers that is sent anything, beside the rules of the format written down once more.

use std::collections::{BTreeMap, BTreeSet};

use srv6d_heartbeat::{Arrival, Entry, Freshness, Heartbeat, Judge, Key, Peers, Role, Settings};

const OWN_NODE: u32 = 0x0a00_00ff;
/// Ports, with the nodes at their other ends.
const PORTS: [(u32, u32); 2] = [(3, 2), (7, 1)];
const SIGNATURE: usize = 36;

/// Fuzz target: sends heartbeats to a table of peers, with a key if the first byte is odd.
///
/// ```text
/// | key, 1 byte | and for each heartbeat: TTL | port | milliseconds since the one before | length, 2 bytes | heartbeat |
/// ```
///
/// # Panics
/// If a heartbeat is taken over against the rules, or refused without need; if a refused one changes the table; if what was
/// taken over is not what was sent; if a port is judged busier than full; or if silence removes a peer.
pub fn heartbeats(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else { return };
    let key = (first % 2 == 1).then(key);
    let mut peers =
        Peers::new(Settings { node: OWN_NODE, key: key.clone(), ports: PORTS.into(), ..Settings::default() });
    let mut judge = Judge::new(50, vec![[1, 2].into(), (1..100).collect()]);
    let (mut now, mut known) = (0, BTreeMap::new());
    while let Some((&[ttl, port, pause, high, low], behind)) = rest.split_first_chunk::<5>() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(behind.len());
        let (bytes, next) = behind.split_at(length);
        now += u64::from(pause) * 1_000_000;
        let arrival = Arrival { port: port.into(), ttl, now };
        receive(&mut peers, bytes, arrival, key.as_ref(), &mut known);
        let judged = peers.all().values().flat_map(|peer| judge.judge(peer, now)).collect::<Vec<_>>();
        assert!(judged.iter().flatten().all(|port| port.score <= 1000), "no port is busier than full: {judged:?}");
        rest = next;
    }
    // That is more than five periods of any node.
    let later = now + 6 * u64::from(u16::MAX) * 1_000_000;
    assert!(peers.all().values().all(|peer| peer.freshness(later) == Freshness::Suspect), "silence is noticed");
    assert!(peers.all().len() <= PORTS.len() && peers.all().len() == known.len(), "silence removes nobody");
}

fn key() -> Key {
    Key::new(1, "srv6d-test-key")
}

/// Sends one heartbeat. `known` are boot id and sequence number of each peer.
fn receive(
    peers: &mut Peers,
    bytes: &[u8],
    arrival: Arrival,
    key: Option<&Key>,
    known: &mut BTreeMap<u32, (u16, u32)>,
) {
    let (before, refused, received) = (peers.all().clone(), peers.rejected().total(), peers.received());
    let taken = peers.receive(bytes, arrival);
    let may_be_taken = obeys(bytes, arrival) && is_newer(bytes, known);
    match taken {
        Err(reject) => {
            assert!(!may_be_taken || key.is_some(), "{} without need", reject.word());
            assert_eq!((peers.all(), peers.received()), (&before, received), "a refused heartbeat changes nothing");
            assert_eq!((peers.rejected().total(), peers.rejected().of(reject) > 0), (refused + 1, true));
        }
        Ok(node) => {
            assert!(may_be_taken, "node {node} against the rules");
            assert_eq!((peers.received(), peers.rejected().total()), (received + 1, refused));
            let peer = peers.all().get(&node).expect("who was heard is known");
            assert_eq!(written(&peer.last, key, bytes), bytes, "what was taken over is what was sent");
            assert!(peer.entry(0, arrival.now).is_none() && peer.age(arrival.now) == 0);
            known.insert(node, (peer.last.boot, peer.last.sequence));
        }
    }
}

/// Returns the bytes of a heartbeat, with the signature that was sent if nobody looks at it.
fn written(heartbeat: &Heartbeat, key: Option<&Key>, sent: &[u8]) -> Vec<u8> {
    let mut bytes = heartbeat.encode(key);
    if key.is_none() && sent.get(5).is_some_and(|flags| flags & 4 != 0) {
        bytes.get_mut(5).into_iter().for_each(|flags| *flags |= 4);
        bytes.extend(sent.get(sent.len().saturating_sub(SIGNATURE)..).unwrap_or_default());
    }
    bytes
}

/// Returns true if a heartbeat keeps the rules of the format, apart from its signature.
fn obeys(bytes: &[u8], arrival: Arrival) -> bool {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
    let half = |at| u16::from_be_bytes([byte(at), byte(at + 1)]);
    let count = usize::from(byte(7));
    let signature = if byte(5) & 4 == 0 { 0 } else { SIGNATURE };
    let entries = (0..count).map(|entry| 28 + 16 * entry);
    let neighbors: BTreeSet<u32> = entries.clone().map(|at| word(bytes, at)).collect();
    arrival.ttl == 255
        && PORTS.contains(&(arrival.port, word(bytes, 8)))
        && bytes.starts_with(b"SRQH\x01")
        && byte(5) < 16
        && matches!(byte(6), 1 | 3)
        && count <= 64
        && bytes.len() == 28 + 16 * count + signature
        && !matches!(word(bytes, 8), 0 | OWN_NODE)
        && neighbors.len() == count
        && !neighbors.contains(&0)
        && entries.clone().all(|at| byte(at + 4) < 8 && byte(at + 5) < 4)
        && entries.clone().all(|at| half(at + 6) <= 10_000 && half(at + 8) <= 10_000)
}

/// Returns true if the node has started again, or its number is up to 2³¹ - 1 ahead of the one that is known.
fn is_newer(bytes: &[u8], known: &BTreeMap<u32, (u16, u32)>) -> bool {
    let Some(&[.., high, low]) = bytes.get(..28) else { return false };
    let boot = u16::from_be_bytes([high, low]);
    match known.get(&word(bytes, 8)) {
        None => true,
        Some((known, _)) if *known != boot => true,
        Some((_, number)) => (1..1 << 31).contains(&word(bytes, 12).wrapping_sub(*number)),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().map(u32::from_be_bytes).unwrap_or_default()
}

/// Returns conversations of one and of several nodes, with and without a key.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for key in [None, Some(key())] {
        let first = vec![u8::from(key.is_some())];
        let sent = |heartbeat: &Heartbeat| framed(&heartbeat.encode(key.as_ref()), heartbeat.node);
        for count in [0, 1, 2, 3, 8, 16, 63, 64] {
            seeds.push([first.clone(), sent(&heartbeat(1, 1, count))].concat());
        }
        let in_a_row: Vec<Vec<u8>> = (0..4).map(|sequence| sent(&heartbeat(1, sequence, 2))).collect();
        seeds.push([first.clone(), in_a_row.concat()].concat());
        let wrapping = [u32::MAX, 0, 1 << 31, 1].map(|sequence| sent(&heartbeat(1, sequence, 1)));
        seeds.push([first.clone(), wrapping.concat()].concat());
        let restarted = Heartbeat { boot: 9, ..heartbeat(1, 0, 1) };
        seeds.push([first.clone(), sent(&heartbeat(1, 7, 1)), sent(&restarted)].concat());
        let several: Vec<Vec<u8>> = (1..5).map(|node| sent(&heartbeat(node, 1, 3))).collect();
        seeds.push([first, several.concat()].concat());
    }
    seeds
}

/// Returns a heartbeat as it arrives 20 ms after the one before, on the port of its node.
fn framed(bytes: &[u8], node: u32) -> Vec<u8> {
    let port = if node == 2 { 3 } else { 7 };
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[255, port, 20], length.as_slice(), bytes].concat()
}

fn heartbeat(node: u32, sequence: u32, entries: u32) -> Heartbeat {
    let entry = |neighbor| Entry {
        neighbor,
        band: 5,
        is_up: true,
        is_valid: true,
        load: 2500,
        queue: 100,
        ifindex: 3,
        capacity: 100_000,
    };
    Heartbeat {
        is_periodic: true,
        is_change: false,
        is_draining: false,
        role: Role::Helper,
        node,
        sequence,
        clock: 1_000_000_000,
        period: 20,
        boot: 1,
        entries: (1..=entries).map(entry).collect(),
    }
}
