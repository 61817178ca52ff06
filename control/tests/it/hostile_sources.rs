//! Tests that neighbours, and the answers to an operator, go on beside sources that misbehave.
//!
//! Every row is a source that does all it can: a controller, a client of FPM, of the metrics or of the path server. Beside
//! it, the first packets to new neighbours and `show` are timed, and compared with the same on the same machine without
//! that source.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::made;
use crate::support;

use std::any::Any;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use made::{NEW_NEXT_HOP, address, announce, frame, group, next_hop, number};
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};
use support::fpm::{Client, is_listening};
use support::rig::{CONFIG, Rig, SRV6D, text, wait_for};

const ALL_PATHS: &str = "GET /api/v1/graphs/fabric_graph/shortest_path/best-paths\
                         ?source=hosts/host0&destination=hosts/host15&limit=1000000";
const MIB: usize = 1024 * 1024;
/// Neighbours, and answers, of which the median is taken.
const TRIES: usize = 7;
const PAUSE: Duration = Duration::from_millis(150);
/// A median may be as long as this, or [`TIMES`] as long as without the source.
const SHORT: Duration = Duration::from_millis(100);
const TIMES: u32 = 5;
/// Attempts, because others use the machine, too.
const ATTEMPTS: usize = 6;

/// A source that misbehaves until it is dropped. `done` counts what it has done.
struct Source {
    done: Arc<AtomicUsize>,
    _held: Box<dyn Any>,
}

/// What is added to the configuration, and how the source begins once the daemon runs.
struct Row {
    what: &'static str,
    config: fn() -> String,
    before: fn(&Rig) -> Option<Source>,
    beside: fn(&Rig) -> Option<Source>,
}

const fn controller(what: &'static str, before: fn(&Rig) -> Option<Source>) -> Row {
    Row { what, config: || with_peers(&["hosts/srv6-pytorch-2"]), before, beside: |_| None }
}

const ROWS: [Row; 11] = [
    controller("a controller that answers 40 MB of edges that are none", |rig| {
        Some(serve(rig, |to| endless(to, r#"{"vertices":{},"edges":["#, r#"{"":0},"#, 40 * MIB)))
    }),
    controller("a controller that answers 30 MB of lists", |rig| {
        Some(serve(rig, |to| endless(to, r#"{"vertices":{},"edges":["#, "[],", 30 * MIB)))
    }),
    controller("a controller that never answers", |rig| Some(serve(rig, hold))),
    controller("a controller that answers byte by byte", |rig| Some(serve(rig, drip))),
    controller("a controller that answers with text for terminals", |rig| {
        Some(serve(rig, |to| {
            let body = format!("{{\"detail\": \"{}\"}}", "\\u001b]0;owned\\u0007\\n".repeat(50_000));
            said(to, "500 x", &body);
        }))
    }),
    Row {
        what: "a hundred thousand peers at a controller that refuses each",
        config: || {
            let peers: Vec<String> = (0..100_000).map(|n| format!("hosts/h{n}")).collect();
            with_peers(&peers.iter().map(String::as_str).collect::<Vec<_>>())
        },
        before: |rig| Some(serve(rig, |to| said(to, "404 x", "{}"))),
        beside: |_| None,
    },
    Row {
        what: "nested groups over FPM, again and again",
        config: || "[fpm]\n".to_owned(),
        before: |_| None,
        beside: |rig| Some(nested_groups(rig)),
    },
    Row {
        what: "three thousand idle connections to the metrics",
        config: String::new,
        before: |_| None,
        beside: |rig| Some(idle_connections(rig)),
    },
    Row {
        what: "all paths of a fabric asked of the path server",
        config: String::new,
        before: |_| None,
        beside: |rig| Some(path_server(rig, ALL_PATHS)),
    },
    Row {
        what: "changes of another origin at the path server",
        config: String::new,
        before: |_| None,
        beside: |rig| Some(path_server(rig, "PATCH /api/v1/graphs/fabric_graph/edges/x")),
    },
    Row {
        what: "half a request at the path server",
        config: String::new,
        before: |_| None,
        beside: |rig| Some(path_server(rig, "")),
    },
];

fn with_peers(peers: &[&str]) -> String {
    format!(
        "[[block]]\nprefix = \"fcbb::/32\"\n[jalapeno]\nendpoint = \"http://[::1]:30800\"\n\
         source = \"hosts/srv6-pytorch-0\"\npeers = {peers:?}\ninterval = \"200ms\"\ntimeout = \"3s\"\n"
    )
}

fn said(to: &mut TcpStream, status: &str, body: &str) {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let _ = to.write_all(head.as_bytes()).and_then(|()| to.write_all(body.as_bytes())); // the client may be gone
}

fn endless(to: &mut TcpStream, head: &str, item: &str, len: usize) {
    let block = item.repeat(64 * 1024 / item.len());
    let begun = to.write_all(format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{head}").as_bytes());
    let _ = begun.and_then(|()| (0..len / block.len()).try_for_each(|_| to.write_all(block.as_bytes())));
}

fn hold(to: &mut TcpStream) {
    let _ = to.read(&mut [0]); // until the client gives up
}

fn drip(to: &mut TcpStream) {
    let mut alive = to.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n{");
    while alive.is_ok() {
        thread::sleep(Duration::from_millis(20));
        alive = to.write_all(b" ");
    }
}

fn namespace(rig: &Rig) -> File {
    File::open(format!("/run/netns/{}", rig.ns("router"))).unwrap()
}

/// Ends the thread of a source.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A controller in the namespace of the router, which answers `/topology` like this.
fn serve(rig: &Rig, answer: fn(&mut TcpStream)) -> Source {
    let (namespace, done) = (namespace(rig), Arc::new(AtomicUsize::new(0)));
    let over = Arc::new(AtomicBool::new(false));
    let (count, is_over) = (Arc::clone(&done), Arc::clone(&over));
    let (ready, listening) = std::sync::mpsc::channel();
    thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        let listener = TcpListener::bind("[::1]:30800").unwrap();
        listener.set_nonblocking(true).unwrap();
        ready.send(()).unwrap();
        while !is_over.load(Ordering::SeqCst) {
            let Ok((mut stream, _)) = listener.accept() else {
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            let count = Arc::clone(&count);
            thread::spawn(move || {
                stream.set_nonblocking(false).unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                if lines.any(|line| line.is_empty()) {
                    count.fetch_add(1, Ordering::SeqCst);
                    answer(&mut stream);
                }
            });
        }
    });
    listening.recv().unwrap();
    Source { done, _held: Box::new(Ends(over)) }
}

/// Starts a source that announces three nested groups of 2,000 members each, and all the time new routes over these
/// groups and others.
fn nested_groups(rig: &Rig) -> Source {
    is_listening(rig);
    let mut zebra = Client::connect(rig);
    let (done, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, is_over) = (Arc::clone(&done), Arc::clone(&over));
    thread::spawn(move || {
        let of_many = |id, member| group(id, &vec![(member, 1); 2000]);
        zebra.say(&frame(&[next_hop(NEW_NEXT_HOP, 1, &[number(5, 2), address(6, "2001:db8:b::2")])]));
        while !is_over.load(Ordering::SeqCst) {
            zebra.say(&frame(&[of_many(2, 1), of_many(3, 2)]));
            let round = count.fetch_add(1, Ordering::SeqCst);
            let by =
                |site: u16, group| announce(&format!("2001:db8:{site:x}:{round:x}::/64"), 254, &[number(30, group)]);
            zebra.say(&frame(&[of_many(4, 3), by(0x66, 4), by(0x67, 1)]));
            thread::sleep(Duration::from_millis(50));
        }
    });
    Source { done, _held: Box::new(Ends(over)) }
}

fn connections(rig: &Rig, count: usize, to: &'static str, request: &'static [u8]) -> Vec<TcpStream> {
    let namespace = namespace(rig);
    let connect = move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        let connect = |_| {
            let mut stream = TcpStream::connect(to).ok()?;
            let _ = stream.write_all(request);
            Some(stream)
        };
        (0..count).filter_map(connect).collect()
    };
    thread::spawn(connect).join().unwrap()
}

fn idle_connections(rig: &Rig) -> Source {
    let open = connections(rig, 3000, "[::1]:9469", b"");
    Source { done: Arc::new(AtomicUsize::new(open.len())), _held: Box::new(open) }
}

/// A path server that ends with this value.
struct PathServer {
    child: Child,
    _ends: Ends,
}

impl Drop for PathServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a fabric in which every leaf has a link to every spine, and a host.
fn clos(spines: usize, leaves: usize) -> Value {
    let mut edges = Vec::new();
    let mut link = |a: &str, b: &str| {
        for (from, to) in [(a, b), (b, a)] {
            edges.push(json!({ "_key": format!("{from}_{to}").replace('/', "."), "_from": from, "_to": to }));
        }
    };
    for leaf in 0..leaves {
        link(&format!("hosts/host{leaf}"), &format!("fabric_node/leaf{leaf}"));
        for spine in 0..spines {
            link(&format!("fabric_node/leaf{leaf}"), &format!("fabric_node/spine{spine}"));
        }
    }
    let node = |name: String| json!({ "_key": name, "name": name, "sids": [] });
    let nodes = (0..leaves).map(|n| format!("leaf{n}")).chain((0..spines).map(|n| format!("spine{n}"))).map(node);
    let hosts = (0..leaves).map(|n| {
        json!({ "_key": format!("host{n}"), "name": format!("host{n}"), "prefix": format!("2001:db8:{n}::"),
                "prefix_len": 64, "ipv6_address": format!("2001:db8:{n}::2") })
    });
    json!({ "nodes": nodes.collect::<Vec<_>>(), "hosts": hosts.collect::<Vec<_>>(), "edges": edges })
}

/// Asks the path server of [`path_server`] whether it is well.
fn is_path_server_well(rig: &Rig) -> bool {
    let mut answers =
        connections(rig, 1, "[::1]:30800", b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let mut answer = String::new();
    let stream = answers.first_mut();
    stream.is_some_and(|stream| {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    })
}

/// A path server in the namespace of the router, with a request to it again and again.
fn path_server(rig: &Rig, request: &'static str) -> Source {
    let topology = rig.file("topology.json");
    std::fs::write(&topology, clos(8, 16).to_string()).unwrap();
    let child = Command::new("ip")
        .args(["netns", "exec", &rig.ns("router"), SRV6D, "path-server", "--listen", "[::1]:30800", "--topology"])
        .arg(&topology)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (done, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, is_over, namespace) = (Arc::clone(&done), Arc::clone(&over), namespace(rig));
    thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        let mut open = Vec::new();
        while !is_over.load(Ordering::SeqCst) {
            if let Ok(mut stream) = TcpStream::connect("[::1]:30800") {
                let rest = " HTTP/1.1\r\nhost: x\r\norigin: http://elsewhere\r\ncontent-length: 0\r\n\r\n";
                let text = if request.is_empty() { "GET / HT".to_owned() } else { format!("{request}{rest}") };
                if stream.write_all(text.as_bytes()).is_ok() {
                    count.fetch_add(1, Ordering::SeqCst);
                }
                open.push(stream);
                open.drain(..open.len().saturating_sub(200));
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    Source { done, _held: Box::new(PathServer { child, _ends: Ends(over) }) }
}

/// Medians of the times that the first packet to a new neighbour and an answer take.
#[derive(Debug)]
struct Times {
    neighbor: Duration,
    answer: Duration,
}

/// Measures again and again, with pauses, so that something that comes now and then is met. `next` is the number of the
/// next unused neighbour.
fn measure(rig: &Rig, next: &mut usize) -> Times {
    let median = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let mut neighbor = || {
        *next += 1;
        let ping = rig.output("a", &format!("ping -6 -n -c 1 -W 5 2001:db8:b::1:{next:x}"));
        let shown = text(&ping.stdout);
        let time = shown.split("time=").nth(1).and_then(|rest| rest.split(' ').next());
        // No answer in five seconds is longer than any limit.
        time.map_or(Duration::from_secs(5), |time| Duration::from_secs_f64(time.parse::<f64>().unwrap() / 1000.0))
    };
    let answer = || {
        let start = Instant::now();
        rig.show("neighbors");
        start.elapsed()
    };
    let pairs = (0..TRIES).map(|_| {
        thread::sleep(PAUSE);
        (neighbor(), answer())
    });
    let (neighbors, answers) = pairs.unzip();
    Times { neighbor: median(neighbors), answer: median(answers) }
}

fn is_well(quiet: &Times, beside: &Times) -> bool {
    let is_short = |beside: Duration, quiet: Duration| beside < (TIMES * quiet).max(SHORT);
    is_short(beside.neighbor, quiet.neighbor) && is_short(beside.answer, quiet.answer)
}

#[test]
#[ignore = "needs root"]
fn neighbours_and_answers_go_on_beside_every_hostile_source() {
    let base = CONFIG.replace("\"off\"", "\"[::1]:9469\"");
    for row in ROWS {
        let mut rig = Rig::new(1);
        let batch = (1..=200).map(|n| format!("addr add 2001:db8:b::1:{n:x}/64 dev wire nodad\n"));
        std::fs::write(rig.file("addresses"), batch.collect::<Vec<_>>().concat()).unwrap();
        rig.inside("b", &format!("ip -batch {}", rig.file("addresses").display()));
        let mut next = 0;
        let daemon = rig.ready(&base);
        rig.wait_for_pings();
        let quiet = measure(&rig, &mut next);
        assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));

        let before = (row.before)(&rig);
        let daemon = rig.ready(&format!("{base}{}", (row.config)()));
        rig.wait_for_pings();
        let source = before.or_else(|| (row.beside)(&rig)).unwrap();
        wait_for(row.what, || (source.done.load(Ordering::SeqCst) > 0).then_some(()));
        let mut seen = Vec::new();
        for _ in 0..ATTEMPTS {
            let beside = measure(&rig, &mut next);
            if is_well(&quiet, &beside) {
                seen.clear();
                break;
            }
            seen.push(beside);
        }
        assert!(seen.is_empty(), "{}: {seen:?}, and {quiet:?} without it\n{}", row.what, rig.log("node"));
        let shown = rig.ask("node", "show source");
        assert!(!text(&shown.stdout).contains('\u{1b}'), "{}", row.what);
        if row.what.contains("the path server") {
            wait_for("an answer of the path server", || is_path_server_well(&rig).then_some(()));
        }
        rig.check_lives(daemon);
        rig.check_balance();
        // The daemon hears a signal beside the source.
        assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}: {}", row.what, rig.log("node"));
        drop(source);
    }
}
