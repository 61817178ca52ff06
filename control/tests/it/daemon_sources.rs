//! Tests of a hostile controller for a node that forwards. Whatever it answers, the node continues, and keeps the last
//! good path.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use srv6d_netns as netns;
use support::rig::{CONFIG, Rig, wait_for};

const FABRIC: &str = include_str!("../../controller/tests/data/2026-01-topology.json");
const PATH: &str = include_str!("../../controller/tests/data/2026-01-shortest-path.json");
const CARRIER: &str = "fcbb:0:1004:1000:1006:fe06::";
const MIB: usize = 1024 * 1024;

/// Limit on the growth of memory, which is more than the limit on answers plus the process's other needs.
const MEMORY: usize = 160 * MIB;

const STEERED: &str = r#"
[[block]]
prefix = "fcbb::/32"
[[route]]
prefix = "fcbb:0:1004::/48"
via = "2001:db8:b::2"
[jalapeno]
endpoint = "http://[::1]:30800"
source = "hosts/srv6-pytorch-0"
peers = ["hosts/srv6-pytorch-2"]
interval = "200ms"
"#;

/// Name of an attack, and what the controller sends.
type Harm = (&'static str, fn(&mut TcpStream));

/// Attacks on a client that requests the topology.
const HARM: [Harm; 9] = [
    ("the right answer", |to| answer(to, FABRIC)),
    ("120 MB of edges that are none", |to| endless(to, r#"{"vertices":{},"edges":["#, r#"{"":0},"#)),
    ("120 MB of lists", |to| endless(to, r#"{"vertices":{},"edges":["#, "[],")),
    ("a topology byte by byte", |to| drip(to, "HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n{")),
    ("a header without end", |to| drip(to, "HTTP/1.1 200 OK\r\nx: ")),
    ("a compressed answer", |to| {
        let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 10\r\nconnection: close\r\n\r\n";
        let _ = to.write_all(head.as_bytes()).and_then(|()| to.write_all(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0]));
    }),
    ("a redirect to another server", |to| {
        let head = "HTTP/1.1 307 x\r\nlocation: http://[2001:db8:b::2]:80/\r\ncontent-length: 0\r\n\r\n";
        let _ = to.write_all(head.as_bytes());
    }),
    ("a prefix that is everything", |to| {
        answer(to, &FABRIC.replace(r#""fcbb:0:0800:2::""#, r#""::/0""#));
    }),
    ("carriers of another block", |to| {
        answer(to, &FABRIC.replace("fcbb:0:10", "fd00:0:10").replace("fcbb:0:fe", "fd00:0:fe"));
    }),
];

fn answer(to: &mut TcpStream, body: &str) {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    // The client may have given up.
    let _ = to.write_all(head.as_bytes()).and_then(|()| to.write_all(body.as_bytes()));
}

fn endless(to: &mut TcpStream, head: &str, item: &str) {
    let block = item.repeat(64 * 1024 / item.len());
    let begun = to.write_all(format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{head}").as_bytes());
    let blocks = (0..120 * MIB / block.len()).try_for_each(|_| to.write_all(block.as_bytes()));
    let _ = begun.and(blocks);
}

fn drip(to: &mut TcpStream, head: &str) {
    let mut alive = to.write_all(head.as_bytes());
    while alive.is_ok() {
        thread::sleep(Duration::from_millis(100));
        alive = to.write_all(b" ");
    }
}

/// Starts a controller in the namespace of the router. `harm` is the number of the attack that it makes. Its threads
/// end with the test's process.
fn controller(rig: &Rig, harm: &Arc<AtomicUsize>) {
    let namespace = rig.ns("router");
    let (ready, listening) = std::sync::mpsc::channel();
    let harm = Arc::clone(harm);
    thread::spawn(move || {
        netns::move_thread(&namespace).unwrap();
        let listener = TcpListener::bind("[::1]:30800").unwrap();
        ready.send(()).unwrap();
        for stream in listener.incoming() {
            let (stream, harm) = (stream.unwrap(), Arc::clone(&harm));
            thread::spawn(move || serve(stream, &harm));
        }
    });
    listening.recv().unwrap();
}

fn serve(mut stream: TcpStream, harm: &AtomicUsize) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = reader.by_ref().lines();
    let Some(Ok(line)) = lines.next() else { return };
    // The rest of the header is read before the answer is sent.
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    if line.contains("/topology") {
        HARM[harm.load(Ordering::SeqCst)].1(&mut stream);
    } else {
        answer(&mut stream, PATH);
    }
}

/// Returns the largest resident memory so far, in bytes.
fn peak_memory(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// Checks that the daemon answers, that a new neighbour is found, and that the path is the last good one.
fn goes_on(rig: &Rig, number: usize, what: &str) {
    let address = format!("2001:db8:b::{}", 100 + number);
    rig.inside("b", &format!("ip addr add {address}/64 dev wire nodad"));
    let reached = || rig.output("a", &format!("ping -c 1 -W 2 {address}")).status.success().then_some(());
    wait_for(&format!("answer of a new neighbour beside {what}"), reached);
    let paths = rig.show("paths");
    assert_eq!(paths[0]["segments"][0], CARRIER, "{what}: {paths:#}");
    assert_eq!(paths[0]["prefix"], "fcbb:0:800:2::/64", "{what}: {paths:#}");
}

#[test]
#[ignore = "needs root"]
fn a_hostile_controller_harms_nobody_but_itself() {
    let harm = Arc::new(AtomicUsize::new(0));
    let mut rig = Rig::new(1);
    controller(&rig, &harm);
    let daemon = rig.ready(&format!("{CONFIG}{STEERED}"));
    wait_for("a path", || (rig.show("source")[0]["peers_fresh"] == 1).then_some(()));
    wait_for("the path in force", || (rig.show("paths")[0]["segments"][0] == CARRIER).then_some(()));
    let before = peak_memory(rig.pid(daemon));
    for (number, (what, _)) in HARM.iter().enumerate().skip(1) {
        harm.store(number, Ordering::SeqCst);
        assert!(rig.ask("node", "sync").status.success());
        let failing = || {
            let view = &rig.show("source")[0];
            (view["state"] == "failing" && view["peers"][0]["error"].is_string()).then_some(())
        };
        // The daemon is asked all the time. A slow answer would be one that the attack has delayed.
        let mut slowest = Duration::ZERO;
        wait_for(&format!("trouble by {what}"), || {
            let asked = Instant::now();
            let found = failing();
            slowest = slowest.max(asked.elapsed());
            found
        });
        assert!(slowest < Duration::from_secs(5), "{what}: an answer took {slowest:?}");
        goes_on(&rig, number, what);
        let grown = peak_memory(rig.pid(daemon)) - before;
        assert!(grown < MEMORY, "{what}: {} MiB more", grown / MIB);
        harm.store(0, Ordering::SeqCst);
        assert!(rig.ask("node", "sync").status.success());
        wait_for(&format!("fresh paths after {what}"), || (rig.show("source")[0]["state"] == "fresh").then_some(()));
    }
    rig.check_lives(daemon);
    assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));
}

/// Serves in the namespace of the router and never answers; the number of requests that it has read.
fn mute_controller(rig: &Rig) -> Arc<AtomicUsize> {
    let namespace = rig.ns("router");
    let asked = Arc::new(AtomicUsize::new(0));
    let (ready, listening) = std::sync::mpsc::channel();
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        netns::move_thread(&namespace).unwrap();
        let listener = TcpListener::bind("[::1]:30800").unwrap();
        ready.send(()).unwrap();
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut first = [0];
            if stream.read_exact(&mut first).is_ok() {
                count.fetch_add(1, Ordering::SeqCst);
            }
            open.push(stream);
        }
    });
    listening.recv().unwrap();
    asked
}

/// An allocation at a controller that does not answer is released in parallel to the control loop. Files that never
/// end are read in parallel, too.
#[test]
#[ignore = "needs root"]
fn a_reload_beside_a_mute_controller_takes_no_longer_than_another() {
    let mut rig = Rig::new(1);
    let asked = mute_controller(&rig);
    let pipe = rig.file("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let job = STEERED.replace(r#"peers = ["hosts/srv6-pytorch-2"]"#, &format!("job = \"{}\"", pipe.display()));
    let daemon = rig.ready(&format!("{CONFIG}{job}"));
    wait_for("a refused job", || (rig.show("source")[0]["state"] == "refused").then_some(()));
    assert!(rig.show("source")[0]["last_error"].as_str().unwrap().contains("no regular file"));
    for number in 0..2 {
        let before = asked.load(Ordering::SeqCst);
        let booking = STEERED.replace("200ms", &format!("{}ms", 200 + number));
        let booking = format!("{CONFIG}{booking}path = \"load\"\ntimeout = \"1m\"\n");
        fs::write(rig.file("node.toml"), booking).unwrap();
        let begun = Instant::now();
        assert!(rig.ask("node", "reload").status.success());
        assert!(rig.ask("node", "show process").status.success());
        let address = format!("2001:db8:b::{}", 200 + number);
        rig.inside("b", &format!("ip addr add {address}/64 dev wire nodad"));
        assert!(rig.output("a", &format!("ping -c 1 -W 2 {address}")).status.success(), "a new neighbour");
        // This is half of the time that a task may take to end.
        assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
        wait_for("a question", || (asked.load(Ordering::SeqCst) > before).then_some(()));
    }
    assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));
}
