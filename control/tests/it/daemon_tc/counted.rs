//! What is counted of streams that are encapsulated before they are cut: the packets that they are cut into, as the far end
//! counts them when they arrive one by one.

use std::net::UdpSocket;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::UdpGsoSegment;
use srv6d_netns as netns;

use super::{OWN_V4, OWN_V6, config, had, rig, wait_until_tc_serves};
use crate::support::rig::{Rig, number};

/// SIDs of `b` with their behaviours, and prefixes that lead there; the first two without an SRH, the others with one.
const SIDS: [(&str, &str); 2] =
    [("fcbb:0:2:fe06::/64", "End.DT6 table local"), ("fcbb:0:2:fe04::/64", "End.DX4 nh4 10.9.0.1")];
const WAYS: [(&str, &str); 4] = [
    ("2001:db8:f::/64", "[2001:db8:f::1]"),
    ("10.9.0.0/16", "10.9.0.1"),
    ("2001:db8:1f::/64", "[2001:db8:1f::1]"),
    ("10.19.0.0/16", "10.19.0.1"),
];

/// Returns a rig in which the SIDs of `b` count, and in which so little is in flight that no queue drops anything.
fn counting_rig() -> Rig {
    let rig = rig();
    for (sid, behavior) in SIDS {
        rig.inside("b", &format!("ip -6 route replace {sid} encap seg6local action {behavior} count dev wire"));
    }
    // b decapsulates 10.19.0.1 to its neighbour 10.9.0.1, which it is itself.
    rig.inside("b", "ip addr add 10.9.0.1/32 dev wire");
    for node in ["router", "b"] {
        rig.inside(node, "sysctl -qw 'net.ipv4.tcp_rmem=4096 65536 65536'");
    }
    rig
}

/// Returns how many packets and bytes the SIDs of `b` have had.
fn arrived(rig: &Rig) -> [u64; 2] {
    let counted = |sid: &str, word: &str| -> u64 {
        let route = rig.inside("b", &format!("ip -6 -s route show {sid}"));
        let mut words = route.split_whitespace().skip_while(|of| *of != word);
        words.nth(1).and_then(|count| count.parse().ok()).unwrap()
    };
    ["packets", "bytes"].map(|word| SIDS.iter().map(|(sid, _)| counted(sid, word)).sum())
}

/// Returns how many packets and bytes a path has had.
fn sent(rig: &Rig, prefix: &str) -> [u64; 2] {
    let paths = rig.show("paths");
    let row = paths.as_array().unwrap().iter().find(|row| row.get("prefix").unwrap() == prefix).unwrap();
    ["packets", "bytes"].map(|name| number(row, name))
}

fn since(before: [u64; 2], now: [u64; 2]) -> [u64; 2] {
    [now[0] - before[0], now[1] - before[1]]
}

#[test]
#[ignore = "needs root"]
fn packets_of_streams_are_counted_as_the_far_end_counts_them() {
    let mut rig = counting_rig();
    rig.ready(&config("tc"));
    wait_until_tc_serves(&rig);
    // Without checksums of the port, the streams are cut in front of it, and b checks what the kernel has written.
    for (prefix, to) in WAYS {
        let (before, at_port, at_b) = (sent(&rig, prefix), had(&rig), arrived(&rig));
        let to = format!("{to}:7093");
        let (hash, of_received) = rig.tcp("router", "b", &to);
        assert_eq!(hash, of_received, "{to}");
        // Segments that are sent again are counted on both sides.
        let counted = since(before, sent(&rig, prefix));
        assert_eq!(counted, since(at_b, arrived(&rig)), "{to}");
        assert_eq!([counted[0], 0], since(at_port, had(&rig)), "{to}: all by tc");
        assert!(counted[0] > 2500, "{to}: {counted:?}");
    }
    // With them, the veth hands them over as they are, and b counts fewer.
    rig.inside("router", "ethtool -K eth2 tx on");
    for (prefix, to) in WAYS {
        let (before, at_b) = (sent(&rig, prefix), arrived(&rig));
        let to = format!("{to}:7094");
        let (hash, of_received) = rig.tcp("router", "b", &to);
        assert_eq!(hash, of_received, "{to}");
        let ([packets, _], [merged, _]) = (since(before, sent(&rig, prefix)), since(at_b, arrived(&rig)));
        assert!(packets > 2500 && merged < packets / 2, "{to}: {merged} frames of {packets} packets");
    }
    rig.check_balance();
}

/// Opens a socket in a namespace, which the calling thread does not enter.
fn socket(rig: &Rig, node: &str, address: String, cut: Option<i32>) -> UdpSocket {
    let namespace = rig.ns(node);
    let open = move || {
        netns::move_thread(&namespace).unwrap();
        let socket = UdpSocket::bind(address).unwrap();
        if let Some(cut) = cut {
            setsockopt(&socket, UdpGsoSegment, &cut).unwrap();
        }
        socket
    };
    std::thread::spawn(open).join().unwrap()
}

#[test]
#[ignore = "needs root"]
fn datagrams_of_one_call_are_the_workers_arrive_one_by_one_and_are_counted_as_such() {
    const SIZE: usize = 1100;
    const ALL: usize = 30 * SIZE + 300;
    let mut rig = counting_rig();
    rig.ready(&config("tc"));
    wait_until_tc_serves(&rig);
    let payload: Vec<u8> = (0..ALL).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
    // Without checksums of the port, the kernel would drop all of them behind an outer header.
    for checksums in ["off", "on"] {
        rig.inside("router", &format!("ethtool -K eth2 tx {checksums}"));
        for (number, (prefix, to)) in (0..).zip(WAYS) {
            let is_v6 = to.starts_with('[');
            let own = if is_v6 { format!("[{OWN_V6}]:0") } else { format!("{OWN_V4}:0") };
            let receiver = socket(&rig, "b", format!("{to}:{}", 7100 + number), None);
            let sender = socket(&rig, "router", own, i32::try_from(SIZE).ok());
            let (before, at_port, at_b) = (sent(&rig, prefix), had(&rig), arrived(&rig));
            sender.send_to(&payload, receiver.local_addr().unwrap()).unwrap();
            receiver.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            let mut buffer = [0; 2 * SIZE];
            for expected in payload.chunks(SIZE) {
                let len = receiver.recv(&mut buffer).unwrap();
                assert!(buffer.get(..len) == Some(expected), "{to}, checksums {checksums}: {len}");
            }
            let headers = if is_v6 { 48 } else { 28 } + 40 + [0, 0, 24, 40].get(number).unwrap();
            let packets = payload.chunks(SIZE).count();
            let expected = [packets, packets * headers + ALL].map(|count| u64::try_from(count).unwrap());
            assert_eq!(since(before, sent(&rig, prefix)), expected, "{to}, checksums {checksums}");
            assert_eq!(since(at_port, had(&rig)), [0, expected[0]], "{to}, checksums {checksums}: all by the worker");
            assert_eq!(since(at_b, arrived(&rig)), expected, "{to}, checksums {checksums}");
        }
    }
    rig.check_balance();
}
