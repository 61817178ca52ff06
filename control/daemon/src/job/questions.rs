//! Tests that count what a controller is asked: one that answers one question after the other, and takes its time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::*;

/// How long the controller takes for an answer.
const PACE: Duration = Duration::from_millis(50);

/// Makes a fabric of 16 spines and leaves with 32 hosts each.
fn fabric(leaves: u16) -> Value {
    let sid = |text: String, behavior: u8| json!({"srv6_sid": text, "srv6_endpoint_behavior": {"endpoint_behavior": behavior, "flag": 0, "algo": 0}});
    let number = |number: u16| 0x1000 + number;
    let switch = |name: String, number: u16, functions: &[(&str, u8)]| {
        let own = [sid(format!("fcbb:0:{number:x}::"), 48)].into_iter();
        let functions = functions.iter().map(|(name, behavior)| sid(format!("fcbb:0:{number:x}:{name}::"), *behavior));
        json!({"_key": name, "name": name, "router_id": "10.0.0.1", "sids": own.chain(functions).collect::<Vec<_>>()})
    };
    let (mut nodes, mut hosts, mut edges) = (Vec::new(), Vec::new(), Vec::new());
    let mut connect = |one: &str, other: &str| {
        for (from, to) in [(one, other), (other, one)] {
            edges.push(json!({"_key": format!("{from}_{to}").replace('/', "-"), "_from": from, "_to": to}));
        }
    };
    nodes.extend((0..16).map(|spine| switch(format!("spine{spine}"), number(spine), &[])));
    for leaf in 0..leaves {
        nodes.push(switch(format!("leaf{leaf}"), number(16 + leaf), &[("fe06", 62), ("fe04", 63)]));
        (0..16).for_each(|spine| connect(&format!("fabric_node/leaf{leaf}"), &format!("fabric_node/spine{spine}")));
        for host in (32 * leaf)..(32 * (leaf + 1)) {
            connect(&format!("hosts/host{host}"), &format!("fabric_node/leaf{leaf}"));
            let name = format!("host{host}");
            hosts.push(json!({"_key": name, "name": name, "prefix": format!("2001:db8:{host:x}::"), "prefix_len": 64}));
        }
    }
    json!({"nodes": nodes, "hosts": hosts, "edges": edges})
}

fn job(id: &str, pattern: &str, members: u16) -> Job {
    let member = |rank: u16| json!({"rank": rank, "host": format!("host{rank}"), "addresses": [format!("2001:db8:{rank:x}::1")]});
    let members: Vec<Value> = (0..members).map(member).collect();
    serde_json::from_value(json!({"id": id, "pattern": pattern, "members": members})).unwrap()
}

/// A controller that serves one connection after the other. Returns its port, and what it has been asked.
fn controller(document: &Value) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, asked, body) =
        (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)), document.to_string());
    let counted = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
                head.push(byte[0]);
            }
            counted.fetch_add(1, Ordering::Relaxed);
            thread::sleep(PACE);
            let mut answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n".to_owned();
            write!(answer, "content-length: {}\r\n\r\n{body}", body.len()).unwrap();
            // A client that hangs up is none of its business.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (port, asked)
}

#[test]
fn a_job_of_a_thousand_members_asks_a_slow_serial_controller_once() {
    let (port, asked) = controller(&fabric(32));
    let text = format!(
        "[node]\nsource = \"2001:db8::1\"\n[jalapeno]\nendpoint = \"http://127.0.0.1:{port}\"\nsource = \"hosts/host0\"\n\
         [jobs]\nallowed_prefixes = [\"2001:db8::/32\"]\ntopology_interval = \"1h\"\n"
    );
    let config = srv6d_config::parse(&text, "srv6d.toml").unwrap();
    let directory = std::env::temp_dir().join(format!("srv6d-questions-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let mut jobs = Jobs::default();
    jobs.configure(&config, &directory.join("srv6d.sock"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let peer = Peer { user: nix::unistd::getuid().as_raw(), pid: Some(std::process::id()) };
    let mut expected = 0;
    for (id, pattern, members) in [("few", "all-to-all", 4), ("many", "all-to-all", 96), ("all", "ring", 1024)] {
        let job = job(id, pattern, members);
        // Every other request about the job is answered without the controller.
        let request = JobRequest::Place { job: job.clone(), others: Vec::new(), from: None };
        let (answer, _receiver) = oneshot::channel();
        let placed = runtime.block_on(async {
            assert!(matches!(jobs.take(request, peer, answer), Done::Nothing));
            jobs.placed().await
        });
        let Done::Answer(_, _) = jobs.follow(placed) else { panic!("{id} is not placed") };
        expected += 1;
        let whole = Arc::clone(&jobs.remembered.front().unwrap().1);
        assert_eq!((whole.size(), &whole.placement.job), (usize::from(members), &id.to_owned()));
        let ranks = (0..u32::from(members)).map(|rank| whole.of_rank(rank)).collect::<Vec<_>>();
        let paths = ranks.iter().map(|rank| rank.paths.len()).sum::<usize>();
        let all = usize::from(members);
        assert_eq!(paths, if pattern == "ring" { all } else { all * (all - 1) });
        let number = whole.placement.number.clone();
        let (answer, _receiver) = oneshot::channel();
        let done = jobs.take(JobRequest::Assignments { number, first: 1 }, peer, answer);
        assert!(matches!(done, Done::Answer(..)), "{done:?}");
        let limits = jobs.limits().unwrap().clone();
        // A daemon has 1,024 ranks at most, and the others are here already.
        if id != "all" {
            jobs.table.join_all(&whole.job, &whole.placement, ranks, (Lease::End, peer.user), &limits).unwrap();
            jobs.hold(id);
        }
        assert_eq!(asked.load(Ordering::Relaxed), expected, "{id}: one placement, one question");
    }
    // A look at the topology is one question for all jobs.
    runtime.block_on(async {
        jobs.sweep();
        while jobs.watch.is_looking() {
            tokio::time::sleep(Duration::from_millis(10)).await;
            jobs.sweep();
        }
    });
    assert_eq!(asked.load(Ordering::Relaxed), expected + 1);
    assert_eq!([jobs.stale("few"), jobs.stale("many")], [None, None]);
    fs::remove_dir_all(&directory).unwrap();
}
