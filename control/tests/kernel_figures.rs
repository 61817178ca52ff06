//! How long a change of the kernel's routes takes to move packets, and what a route costs. Nothing is asserted about
//! times: the table is for people.
//!
//! ```text
//! ROUTES=100,10000,100000,1000000 cargo test --release -p srv6d --test kernel_figures -- --ignored --nocapture
//! ```
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a test stops at the first surprise")]

mod support;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use rtnetlink::RouteMessageBuilder;
use support::rig::{self, Rig, wait_for};

/// Changes that are measured among each number of routes.
const CHANGES: usize = 15;
/// Between two packets of the flow that shows whether its prefix is forwarded.
const PAUSE: Duration = Duration::from_micros(100);
const PREFIX: (&str, u8) = ("2001:db8:99::", 64);
const DESTINATION: &str = "[2001:db8:99::2]:5001";

/// One line of the table.
struct Row {
    routes: usize,
    /// Median and largest time from a change to the first packet that it moved.
    median: Duration,
    largest: Duration,
    load: Duration,
    memory: u64,
}

#[test]
#[ignore = "needs root"]
fn a_change_among_many_routes_moves_packets() {
    let wanted = std::env::var("ROUTES").unwrap_or_else(|_| "100,2000".to_owned());
    let rows: Vec<Row> = wanted.split(',').map(|number| measure(number.trim().parse().unwrap())).collect();
    let first = rows.first().unwrap();
    println!("   routes | change to first packet |  largest | relative | until followed | memory per route");
    for row in &rows {
        println!(
            "{:9} | {:>19.2} ms | {:>5.2} ms | {:>8.2} | {:>12.2} s | {:>10} bytes",
            row.routes,
            row.median.as_secs_f64() * 1e3,
            row.largest.as_secs_f64() * 1e3,
            row.median.as_secs_f64() / first.median.as_secs_f64(),
            row.load.as_secs_f64(),
            row.memory.saturating_sub(first.memory) / (row.routes.saturating_sub(first.routes)).max(1) as u64,
        );
    }
}

fn measure(routes: usize) -> Row {
    let mut rig = Rig::new(1);
    rig.inside("b", "ip addr add 2001:db8:99::2/128 dev lo");
    load(&rig, routes);
    let begin = Instant::now();
    let number = rig.start("node", &format!("{}\n[kernel]\n", rig::CONFIG));
    wait_for_long(|| rig.log("node").contains("ready:"));
    let load = begin.elapsed();
    let flow = Flow::start(&rig);
    let mut times: Vec<Duration> = (0..CHANGES).map(|_| change(&rig, &flow)).collect();
    times.sort();
    drop(flow);
    let status = fs::read_to_string(format!("/proc/{}/status", rig.pid(number))).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: u64 = resident.split_whitespace().next().unwrap().parse().unwrap();
    let (median, largest) = (*times.get(CHANGES / 2).unwrap(), *times.last().unwrap());
    Row { routes, median, largest, load, memory: kilobytes * 1024 }
}

/// A third of them encapsulate; the others are plain.
fn load(rig: &Rig, routes: usize) {
    let mut batch = String::new();
    for number in 0..routes {
        let (high, low) = (number >> 16, number & 0xffff);
        let prefix = format!("2a00:{high:x}:{low:x}::/48");
        match number % 3 {
            0 => writeln!(
                batch,
                "route add {prefix} encap seg6 mode encap.red segs 2001:db8:b::{:x} dev eth2",
                number % 512 + 16
            ),
            _ => writeln!(batch, "route add {prefix} via 2001:db8:b::2"),
        }
        .unwrap();
    }
    let file = rig.file("batch");
    fs::write(&file, batch).unwrap();
    rig.inside("router", &format!("ip -6 -batch {}", file.display()));
}

fn wait_for_long(mut probe: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(2);
    while !probe() {
        assert!(Instant::now() < end, "not within two minutes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The route appears, and goes again: the time from the request to the first packet that it lets through.
fn change(rig: &Rig, flow: &Flow) -> Duration {
    while flow.arrivals.try_recv().is_ok() {}
    let begin = add(rig);
    let arrived = flow.arrivals.recv_timeout(Duration::from_mins(1)).unwrap();
    rig.inside("router", &format!("ip -6 route del {}/{}", PREFIX.0, PREFIX.1));
    // While packets come, the deletion is not in force.
    while flow.arrivals.recv_timeout(Duration::from_millis(100)).is_ok() {}
    arrived.saturating_duration_since(begin)
}

/// As a path programmer does it, without a program to start; the moment at which the kernel is asked.
fn add(rig: &Rig) -> Instant {
    let router = namespace(rig, "router");
    let asked = std::thread::spawn(move || {
        setns(router, CloneFlags::CLONE_NEWNET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            let route = RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(PREFIX.0.parse().unwrap(), PREFIX.1)
                .gateway("2001:db8:b::2".parse().unwrap())
                .build();
            let asked = Instant::now();
            handle.route().add(route).execute().await.unwrap();
            asked
        })
    });
    asked.join().unwrap()
}

/// Packets from one host to the other, and the moments they arrive.
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
            setns(from, CloneFlags::CLONE_NEWNET).unwrap();
            let socket = UdpSocket::bind("[::]:0").unwrap();
            while sends.load(Ordering::Relaxed) {
                let _ = socket.send_to(b"x", DESTINATION); // refused while nobody forwards it
                std::thread::sleep(PAUSE);
            }
        });
        std::thread::spawn(move || {
            setns(to, CloneFlags::CLONE_NEWNET).unwrap();
            let socket = UdpSocket::bind(DESTINATION).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            while receives.load(Ordering::Relaxed) {
                if socket.recv(&mut [0; 16]).is_ok() {
                    let _ = sender.send(Instant::now()); // nobody listens at the end
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

fn namespace(rig: &Rig, node: &str) -> File {
    File::open(format!("/run/netns/{}", rig.ns(node))).unwrap()
}
