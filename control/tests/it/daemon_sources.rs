//! A controller that means harm, beside a node that forwards: whatever it answers, the node goes on, and so does the last
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

use nix::sched::{CloneFlags, setns};
use support::rig::{CONFIG, Rig, wait_for};

const FABRIC: &str = include_str!("../../controller/tests/data/2026-01-topology.json");
const PATH: &str = include_str!("../../controller/tests/data/2026-01-shortest-path.json");
const CARRIER: &str = "fcbb:0:1004:1000:1006:fe06::";
const MIB: usize = 1024 * 1024;

/// More than the bound on answers, and what the process takes besides: nobody's answer may add as much.
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

/// What it is called, and what the controller does.
type Harm = (&'static str, fn(&mut TcpStream));

/// What the controller does to whoever asks for the topology.
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
    // Whoever asked may have given up.
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

/// Serves in the namespace of the router, and does the harm of that number; its threads end with the test's process.
fn controller(rig: &Rig, harm: &Arc<AtomicUsize>) {
    let namespace = fs::File::open(format!("/run/netns/{}", rig.ns("router"))).unwrap();
    let (ready, listening) = std::sync::mpsc::channel();
    let harm = Arc::clone(harm);
    thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
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
    // The rest of the header is read before anything is answered.
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    if line.contains("/topology") {
        HARM[harm.load(Ordering::SeqCst)].1(&mut stream);
    } else {
        answer(&mut stream, PATH);
    }
}

/// Largest resident memory so far, in bytes.
fn peak_memory(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// The daemon answers, a neighbour that nobody has asked for is found, and the path is the last good one.
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
        // Asked all the time: an answer that takes long to come would be one that the harm has held up.
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
