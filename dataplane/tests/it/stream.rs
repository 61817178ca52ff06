//! Tests amendments under a stream of packets, on real ports.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test may panic")]

use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use srv6d_dataplane::{Dataplane, Polling, Settings};
use srv6d_srv6::desired::{Amendment, Desired, Hop, Mac, Port, PortId, Route, RouteAction, RouteChange, TableId};
use srv6d_xsk::Mode;

const TO: &str = "3000::1";
/// Pause between two amendments, which makes about a thousand a second.
const PAUSE: Duration = Duration::from_millis(1);
/// Number of consecutive pauses with amendments, and number of those without.
const PAUSES: u32 = 300;
/// Largest number of attempts.
const TIMES: usize = 20;

fn ip(args: &str) {
    let done = Command::new("ip").args(args.split_whitespace()).output().unwrap();
    assert!(done.status.success(), "ip {args}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Enters a namespace with two ports: the kernel sends into `a`, and packets that leave through `b` end at its peer.
fn enter() {
    srv6d_netns::move_thread_to_new().unwrap();
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
    for (port, peer) in [("a", "pa"), ("b", "pb")] {
        ip(&format!(
            "link add name {port} address 02:00:00:00:00:01 type veth peer name {peer} address 02:00:00:00:00:02"
        ));
        ip(&format!("link set dev {port} up"));
        ip(&format!("link set dev {peer} up"));
    }
    std::fs::write("/proc/sys/net/ipv6/conf/pa/disable_ipv6", "0").unwrap();
    ip("-6 address add 2001:db8:77::1/64 dev pa nodad");
    ip("-6 neighbor add 2001:db8:77::2 lladdr 02:00:00:00:00:01 dev pa nud permanent");
    ip("-6 route add 3000::/16 via 2001:db8:77::2 dev pa");
}

fn through_b() -> RouteAction {
    RouteAction::Via(vec![Hop { port: PortId(1), via: "2001:db8:1::2".parse().ok(), weight: 1 }])
}

fn desired() -> Desired {
    let prefixes = (0..1000).map(|number| format!("3000:{number:x}::/32")).chain(["3000::/16".to_owned()]);
    let route = |prefix: String| Route { table: TableId::MAIN, prefix: prefix.parse().unwrap(), action: through_b() };
    Desired {
        ports: (0..).zip(["a", "b"]).map(|(n, name)| Port::fabric(name, n, Mac([2, 0, 0, 0, 0, 1]), 1500)).collect(),
        routes: prefixes.map(route).collect(),
        neighbors: [((PortId(1), "2001:db8:1::2".parse().unwrap()), Mac([2, 0, 0, 0, 0, 2]))].into(),
        ..Desired::default()
    }
}

/// Adds or removes a route for the stream. A shorter route has the same next hop, so packets always leave.
fn amend(dataplane: &mut Dataplane, number: u32) {
    let action = (number % 2 == 1).then(through_b);
    let routes = vec![RouteChange { table: TableId::MAIN, prefix: "3000::/32".parse().unwrap(), action }];
    dataplane.amend(&Amendment { routes, ..Amendment::default() }).unwrap();
}

/// Returns the number of packets lost by the rings while packets came in and `work` was done at each pause.
fn lost(dataplane: &mut Dataplane, mut work: impl FnMut(&mut Dataplane, u32)) -> u64 {
    let stop = AtomicBool::new(false);
    let before = counted(dataplane);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let socket = UdpSocket::bind("[::]:0").unwrap();
            socket.connect((TO, 9)).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let _ = socket.send(&[7; 64]); // refused if the kernel has no room
            }
        });
        let begin = Instant::now();
        for number in 0..PAUSES {
            work(dataplane, number);
            std::thread::sleep((PAUSE * (number + 1)).saturating_sub(begin.elapsed()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let after = counted(dataplane);
    assert!(after.0 > before.0, "the worker receives");
    after.1 - before.1
}

/// Returns the number of packets that the worker has received through `a`, and the number of those lost before it.
fn counted(dataplane: &Dataplane) -> (u64, u64) {
    let counters = dataplane.counters();
    let a = counters.devices.iter().find(|device| device.name == "a").unwrap();
    (a.rx_packets, a.rx_dropped)
}

#[test]
#[ignore = "needs root"]
fn a_thousand_amendments_a_second_overflow_no_ring() {
    enter();
    let mut dataplane = Dataplane::start(Settings {
        cores: vec![None],
        polling: Polling::Adaptive,
        busy_budget: 0,
        frames: 16_384,
        ring: 2048,
        ports: 2,
        worker_start: || {},
    })
    .unwrap();
    dataplane.expect_amendments();
    dataplane.publish(&desired()).unwrap();
    for device in ["a", "b"] {
        dataplane.attach(device, Mode::Native).unwrap();
    }
    dataplane.publish(&desired()).unwrap();
    let mut losses = Vec::new();
    // If the system takes the worker's core away for long, rings overflow with or without amendments. Amendments that
    // caused an overflow would do so each time.
    let is_lossless = (0..TIMES).any(|_| {
        let without = lost(&mut dataplane, |_, _| {});
        let with = lost(&mut dataplane, amend);
        losses.push((without, with));
        with == 0
    });
    let overflows_anyway = losses.iter().filter(|(without, _)| *without > 0).count() * 2 > losses.len();
    if !is_lossless && overflows_anyway {
        println!("SKIPPED: the machine is too busy: rings overflow without amendments, too: {losses:?}");
        return;
    }
    assert!(is_lossless, "lost without amendments and with them: {losses:?}");
    let published = dataplane.published();
    assert_eq!((published.whole_for_amendment, published.in_place), (0, losses.len() as u64 * u64::from(PAUSES)));
    let drops = dataplane.counters().total.drop;
    assert!(drops.values().all(|&packets| packets == 0), "{drops:?}");
}
