//! Measures how long a change of the kernel's routes takes until packets follow it, and how much memory a route needs.
//! The test asserts nothing about times; the table is for the reader.
//!
//! ```text
//! ROUTES=100,10000,100000,1000000 cargo test --release -p srv6d --test it kernel_figures:: -- --ignored --nocapture
//! ```
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a test stops at the first surprise")]

use crate::support;

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::net::if_::if_nametoindex;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteLwEnCapType, RouteLwTunnelEncap, RouteSeg6IpTunnel, Seg6Header, Seg6Mode,
};
use srv6d_netns as netns;
use support::rig::{self, Rig, wait_for};

/// Number of measured changes of each kind for each number of routes.
const CHANGES: usize = 11;
/// Number of routes that are given to the kernel together.
const BATCH: usize = 20_000;
/// Pause between two packets of the flow that shows whether its prefix is forwarded.
const PAUSE: Duration = Duration::from_micros(100);
const PREFIX: (&str, u8) = ("2001:db8:99::", 64);
const DESTINATION: &str = "[2001:db8:99::2]:5001";

/// A SID of the far host, to which the encapsulating change leads, and the fabric's route to all SIDs.
const SID: &str = "fcbb:0:6:fe06::";
const BLOCK: &str = "fcbb::/32";
/// `SEG6_IPTUN_MODE_ENCAP_RED`, for which the library has no name.
const MODE_ENCAP_RED: u32 = 3;

/// One row of the table.
struct Row {
    routes: usize,
    plain: Times,
    encapsulating: Times,
    load: Duration,
    memory: u64,
}

/// Times from a change to the first packet that follows it.
struct Times {
    median: Duration,
    largest: Duration,
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self { median: *times.get(times.len() / 2).unwrap(), largest: *times.last().unwrap() }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Encapsulating,
}

#[test]
#[ignore = "needs root"]
fn a_change_among_many_routes_moves_packets() {
    let wanted = std::env::var("ROUTES").unwrap_or_else(|_| "100,2000".to_owned());
    let rows: Vec<Row> = wanted.split(',').map(|number| measure(number.trim().parse().unwrap())).collect();
    let first = rows.first().unwrap();
    println!("   routes | change to first packet: plain | encapsulating | until followed | memory per route");
    let shown = |times: &Times, first: &Times| {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let relative = times.median.as_secs_f64() / first.median.as_secs_f64();
        format!("{:.2} ms, at most {:.2}, x{relative:.2}", milliseconds(times.median), milliseconds(times.largest))
    };
    for row in &rows {
        println!(
            "{:9} | {} | {} | {:.2} s | {} bytes",
            row.routes,
            shown(&row.plain, &first.plain),
            shown(&row.encapsulating, &first.encapsulating),
            row.load.as_secs_f64(),
            row.memory.saturating_sub(first.memory) / (row.routes.saturating_sub(first.routes)).max(1) as u64,
        );
    }
}

fn measure(routes: usize) -> Row {
    let mut rig = Rig::new(1);
    rig.inside("b", "ip addr add 2001:db8:99::2/128 dev lo");
    rig.inside("b", &format!("ip -6 route add {SID}/64 encap seg6local action End.DT6 table 255 dev wire"));
    let on = "net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf.wire.seg6_enabled=1 net.ipv6.conf.all.forwarding=1";
    rig.inside("b", &format!("sysctl -qw {on}"));
    rig.inside("router", &format!("ip -6 route add {BLOCK} via 2001:db8:b::2"));
    load(&rig, routes);
    let begin = Instant::now();
    let number = rig.start("node", &format!("{}\n[kernel]\n", rig::CONFIG));
    wait_for_long(|| rig.log("node").contains("ready:"));
    let load = begin.elapsed();
    let flow = Flow::start(&rig);
    let times = |kind| Times::of((0..CHANGES).map(|_| change(&rig, &flow, kind)).collect());
    let (plain, encapsulating) = (times(Kind::Plain), times(Kind::Encapsulating));
    drop(flow);
    let status = fs::read_to_string(format!("/proc/{}/status", rig.pid(number))).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: u64 = resident.split_whitespace().next().unwrap().parse().unwrap();
    Row { routes, plain, encapsulating, load, memory: kilobytes * 1024 }
}

/// Adds routes to the kernel, of which a third encapsulate.
fn load(rig: &Rig, routes: usize) {
    let numbers: Vec<usize> = (0..routes).collect();
    for (batch, numbers) in numbers.chunks(BATCH).enumerate() {
        let lines = numbers.iter().fold(String::new(), |mut lines, number| {
            writeln!(lines, "route replace {}", route(*number)).unwrap();
            lines
        });
        let file = rig.file("batch");
        fs::write(&file, lines).unwrap();
        // Linux needs memory at once for each encapsulation, and makes room for more only afterwards. So many of them
        // in a row are sometimes refused (ENOMEM).
        let command = format!("ip -6 -batch {}", file.display());
        wait_for_long(|| {
            let done = rig.output("router", &command);
            if !done.status.success() {
                println!("batch {batch}, again: {}", String::from_utf8_lossy(&done.stderr).trim());
            }
            done.status.success()
        });
    }
}

fn route(number: usize) -> String {
    let (high, low) = (number >> 16, number & 0xffff);
    let prefix = format!("2a00:{high:x}:{low:x}::/48");
    match number % 3 {
        0 => format!("{prefix} encap seg6 mode encap.red segs fcbb:0:{:x}:: dev eth2", number % 512 + 16),
        _ => format!("{prefix} via 2001:db8:b::2"),
    }
}

fn wait_for_long(mut probe: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(10);
    while !probe() {
        assert!(Instant::now() < end, "not within ten minutes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Adds a route and deletes it again. Returns the time from the request to the first packet that the route forwards.
fn change(rig: &Rig, flow: &Flow, kind: Kind) -> Duration {
    while flow.arrivals.try_recv().is_ok() {}
    let begin = add(rig, kind);
    let arrived = flow.arrivals.recv_timeout(Duration::from_mins(1)).unwrap();
    rig.inside("router", &format!("ip -6 route del {}/{}", PREFIX.0, PREFIX.1));
    // The deletion is not in force as long as packets arrive.
    while flow.arrivals.recv_timeout(Duration::from_millis(100)).is_ok() {}
    arrived.saturating_duration_since(begin)
}

/// Adds the route as a path programmer does, without starting a program. Returns the time of the request.
fn add(rig: &Rig, kind: Kind) -> Instant {
    let router = namespace(rig, "router");
    let asked = std::thread::spawn(move || {
        netns::move_thread(&router).unwrap();
        let device = if_nametoindex("eth2").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            let route = RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(PREFIX.0.parse().unwrap(), PREFIX.1);
            let mut route = match kind {
                Kind::Plain => route.gateway("2001:db8:b::2".parse().unwrap()).build(),
                Kind::Encapsulating => route.output_interface(device).build(),
            };
            if let Kind::Encapsulating = kind {
                route.attributes.extend(encap());
            }
            let asked = Instant::now();
            handle.route().add(route).execute().await.unwrap();
            asked
        })
    });
    asked.join().unwrap()
}

/// Returns the attributes of `encap seg6 mode encap.red segs SID`.
fn encap() -> [RouteAttribute; 2] {
    let mut tunnel = Seg6Header::default();
    tunnel.mode = Seg6Mode::Other(MODE_ENCAP_RED);
    tunnel.segments = vec![SID.parse().unwrap()];
    let tunnel = RouteLwTunnelEncap::Seg6(RouteSeg6IpTunnel::Seg6(tunnel));
    [RouteAttribute::EncapType(RouteLwEnCapType::Seg6), RouteAttribute::Encap(vec![tunnel])]
}

/// Packets from one host to the other, and their arrival times.
struct Flow {
    arrivals: Receiver<Instant>,
    goes_on: Arc<AtomicBool>,
}

impl Flow {
    fn start(rig: &Rig) -> Self {
        let goes_on = Arc::new(AtomicBool::new(true));
        let (sender, arrivals) = channel();
        let (from, to) = (namespace(rig, "a"), namespace(rig, "b"));
        let (sends, receives) = (Arc::clone(&goes_on), Arc::clone(&goes_on));
        std::thread::spawn(move || {
            netns::move_thread(&from).unwrap();
            let socket = UdpSocket::bind("[::]:0").unwrap();
            while sends.load(Ordering::Relaxed) {
                let _ = socket.send_to(b"x", DESTINATION); // refused as long as no route forwards it
                std::thread::sleep(PAUSE);
            }
        });
        std::thread::spawn(move || {
            netns::move_thread(&to).unwrap();
            let socket = UdpSocket::bind(DESTINATION).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            while receives.load(Ordering::Relaxed) {
                if socket.recv(&mut [0; 16]).is_ok() {
                    let _ = sender.send(Instant::now()); // the receiver may have been dropped
                }
            }
        });
        wait_for("the receiver", || (!rig.output("b", "ss -Hlnu sport = :5001").stdout.is_empty()).then_some(()));
        Self { arrivals, goes_on }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.goes_on.store(false, Ordering::Relaxed);
    }
}

fn namespace(rig: &Rig, node: &str) -> String {
    rig.ns(node)
}
