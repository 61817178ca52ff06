//! Tests of neighbours that are probed, forgotten, new or missing, between kernel hosts.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs::File;
use std::net::{Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use support::rig::{CONFIG, Rig, text, wait_for};

/// A thread that sends datagrams to unused addresses of a subnet, until it is dropped.
struct Scan {
    end: Arc<AtomicBool>,
    sender: Option<JoinHandle<u64>>,
}

impl Scan {
    /// Starts to send about 2,000 datagrams per second from the namespace of a host, 20 at a time.
    fn of(rig: &Rig, from: &str, subnet: Ipv6Addr) -> Self {
        let (end, namespace) = (Arc::new(AtomicBool::new(false)), rig.ns(from));
        let is_over = Arc::clone(&end);
        let sender = std::thread::spawn(move || {
            setns(File::open(format!("/run/netns/{namespace}")).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            let socket = UdpSocket::bind("[::]:0").unwrap();
            let mut sent = 0u64;
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..20 {
                    // The addresses differ from all existing ones and from each other.
                    sent += 1;
                    let host = u128::from(sent.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63);
                    let _ = socket.send_to(&[0; 16], (Ipv6Addr::from_bits(subnet.to_bits() | host), 9));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            sent
        });
        Self { end, sender: Some(sender) }
    }

    /// Stops and returns the number of datagrams that were sent.
    fn stop(mut self) -> u64 {
        self.end.store(true, Ordering::Relaxed);
        self.sender.take().unwrap().join().unwrap()
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// Sends one echo request, and returns whether it was answered.
fn is_answered(rig: &Rig, from: &str, to: &str, patience: &str) -> bool {
    rig.output(from, &format!("ping -6 -q -c 1 -W {patience} {to}")).status.success()
}

#[test]
#[ignore = "needs root"]
fn a_forgotten_neighbour_is_asked_for_by_the_next_packet() {
    let rig = Rig::forwarding(1, CONFIG);
    for round in 0..8 {
        rig.inside("router", "ip -6 neigh flush dev eth2");
        assert!(is_answered(&rig, "a", "2001:db8:b::2", "1.5"), "round {round}");
        std::thread::sleep(Duration::from_millis(400));
    }
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_scanned_subnet_keeps_no_new_neighbour_from_being_found() {
    // This is the default number of frames.
    let rig = Rig::forwarding(1, &CONFIG.replace("frames = 2048", "frames = 8192"));
    for host in 1..=15 {
        rig.inside("b", &format!("ip addr add 2001:db8:b::7:{host}/64 dev wire nodad"));
        rig.inside("a", &format!("ip addr add 2001:db8:a::7:{host}/64 dev wire nodad"));
    }
    let scan = Scan::of(&rig, "a", "2001:db8:b::".parse().unwrap());
    wait_for("scan", || (rig.drops("no_neigh") > 500).then_some(()));
    let is_found =
        |from: &str, to: &str| rig.output(from, &format!("ping -6 -q -c 5 -i 0.2 -W 3 {to}")).status.success();
    let not_found = |from: &str, on: &str| -> Vec<u32> {
        (1..=15).filter(|host| !is_found(from, &format!("2001:db8:{on}::7:{host}"))).collect()
    };
    assert_eq!(
        (not_found("a", "b"), not_found("b", "a")),
        (vec![], vec![]),
        "on the scanned port, and on the other one"
    );
    let entries = rig.inside("router", "ip -6 neigh show dev eth2 nud incomplete").lines().count();
    assert!(entries < 600, "{entries} entries of the kernel's table are taken");
    assert!(scan.stop() > 1000);
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_neighbour_that_never_answers_is_unreachable() {
    let rig = Rig::forwarding(1, &CONFIG.replace("[node]", "[node]\nicmp_unreachable = true"));
    let said = text(&rig.output("a", "ping -6 -c 1 -W 20 2001:db8:b::99").stdout);
    assert!(said.contains("Address unreachable"), "{said}");
    assert_eq!(rig.replies("no_neigh"), 1);
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn new_neighbours_and_routes_are_put_in_force_without_a_whole_build() {
    let mut rig = Rig::new(1);
    // A new prefix length requires a build of whole tables.
    rig.inside("router", "ip -6 route add 3000:ff::/32 via 2001:db8:b::2");
    rig.ready(&format!("{CONFIG}[kernel]\n"));
    rig.wait_for_pings();
    let tables = |kind: &str| {
        let generation = rig.show("generation");
        generation.pointer(&format!("/tables/{kind}")).and_then(serde_json::Value::as_u64).unwrap()
    };
    let (whole, in_place) = (tables("whole"), tables("in_place"));
    for host in 1..=20 {
        rig.inside("b", &format!("ip addr add 2001:db8:b::8:{host}/64 dev wire nodad"));
        assert!(is_answered(&rig, "a", &format!("2001:db8:b::8:{host}"), "3"));
        rig.inside("router", &format!("ip -6 route add 3000:{host}::/32 via 2001:db8:b::2"));
    }
    rig.inside("router", "ip -6 neigh flush dev eth2");
    wait_for("routes in place", || (tables("in_place") >= in_place + 36).then_some(()));
    // A full hash table is built again with twice the space.
    assert!(tables("whole") <= whole + 4, "{}", rig.log("node"));
    rig.check_balance();
}
