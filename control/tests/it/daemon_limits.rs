//! Tests of a daemon with few file descriptors, and of clients that occupy them.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use srv6d_netns as netns;
use support::rig::{CONFIG, Rig, text, wait_for};

const METRICS: &str = "[::1]:9469";

fn with_metrics() -> String {
    CONFIG.replace("\"off\"", &format!("\"{METRICS}\""))
}

/// Starts a daemon with these soft and hard limits of open files.
fn start(rig: &mut Rig, config: &str, limits: &str) -> usize {
    let wrapper = ["prlimit".to_owned(), format!("--nofile={limits}")];
    let command = rig.daemon_of(std::path::Path::new(support::rig::SRV6D), "node", config, &wrapper);
    rig.spawn(command)
}

/// Moves this thread into the namespace in which the daemon listens.
fn enter(rig: &Rig) {
    netns::move_thread(&rig.ns("router")).unwrap();
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect(METRICS).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream
}

fn scrape() -> String {
    let mut stream = connect();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
#[ignore = "needs root"]
fn idle_clients_of_metrics_stop_nothing() {
    let mut rig = Rig::new(1);
    let (first, _) = CONFIG.rsplit_once("[[port]]").unwrap();
    let metrics = |config: &str| config.replace("\"off\"", &format!("\"{METRICS}\""));
    let daemon = start(&mut rig, &metrics(first), "256:512");
    rig.wait_until_ready();
    let limits = fs::read_to_string(format!("/proc/{}/limits", rig.pid(daemon))).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().nth(3), Some("512"), "the soft limit is raised to the hard one");

    enter(&rig);
    let idle: Vec<TcpStream> = (0..1500).map(|_| connect()).collect();
    let mut slow = connect();
    slow.write_all(b"GET /metrics HT").unwrap();
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", rig.pid(daemon))).unwrap().count();
    wait_for("bounded connections", || (descriptors() < 200).then_some(()));
    assert!(scrape().contains("srv6d_build_info"));
    assert!(rig.ask("node", "show ports").status.success());

    fs::write(rig.file("node.toml"), metrics(CONFIG)).unwrap();
    assert!(rig.ask("node", "reload").status.success(), "{}", rig.log("node"));
    rig.wait_for_pings();
    for (name, mut stream) in idle.into_iter().take(1).map(|idle| ("idle", idle)).chain([("slow header", slow)]) {
        let closed = stream.read(&mut [0; 16]);
        assert!(matches!(closed, Ok(0)) || closed.as_ref().is_err_and(|why| why.raw_os_error().is_some()), "{name}");
    }
    rig.check_balance();
}

/// Longest time until `show neighbors` is answered, while `beside` goes on; at least a few are asked.
fn longest_answer(rig: &Rig, beside: impl FnOnce() + Send) -> Duration {
    let mut longest = Duration::ZERO;
    std::thread::scope(|scope| {
        let beside = scope.spawn(beside);
        for asked in 0.. {
            if asked > 10 && beside.is_finished() {
                break;
            }
            let start = Instant::now();
            rig.show("neighbors");
            longest = longest.max(start.elapsed());
        }
    });
    longest
}

/// The control loop looks after neighbours and answers others while a long list is made.
#[test]
#[ignore = "needs root"]
fn a_long_list_of_routes_holds_up_nobody() {
    const ROUTES: usize = 60_000;
    let route = |n: usize| {
        format!(
            "[[route]]\nprefix = \"3fff:{:x}:{:x}::/48\"\nvia = \"2001:db8:b::2\"\nport = \"eth2\"\n",
            n >> 16,
            n & 0xffff
        )
    };
    let mut rig = Rig::new(1);
    rig.ready(&format!("{CONFIG}{}", (0..ROUTES).map(route).collect::<String>()));
    assert!(rig.show("routes").as_array().unwrap().len() >= ROUTES);
    let attempts: Vec<(Duration, Duration)> = std::iter::repeat_with(|| {
        let quiet = longest_answer(&rig, || {});
        (quiet, longest_answer(&rig, || drop(rig.ask("node", "show routes --json"))))
    })
    .take(8)
    .collect();
    let is_well = |(quiet, beside): &(Duration, Duration)| *beside < (5 * *quiet).max(Duration::from_millis(100));
    assert!(attempts.iter().any(is_well), "longest answers, alone and beside the list: {attempts:?}");
}

#[test]
#[ignore = "needs root"]
fn too_few_descriptors_are_the_cause_that_is_named() {
    let mut rig = Rig::new(1);
    let daemon = start(&mut rig, &with_metrics(), "100:100");
    assert_eq!(rig.ended(daemon), Some(1), "{}", rig.log("node"));
    let log = rig.log("node");
    assert!(log.contains("too few file descriptors") && log.contains("LimitNOFILE="), "{log}");
    assert!(rig.is_kernels("eth1") && rig.is_kernels("eth2") && !rig.exists("srv6d0"), "{log}");
}

#[test]
#[ignore = "needs root"]
fn a_frozen_daemon_is_named_as_such() {
    let mut rig = Rig::new(1);
    let daemon = rig.ready(CONFIG);
    let pid = rig.pid(daemon);
    support::rig::must(&format!("kill -STOP {pid}"));
    let asked = rig.ask("node", "show ports");
    support::rig::must(&format!("kill -CONT {pid}"));
    let said = text(&asked.stderr);
    assert_eq!(asked.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("srv6d (pid {pid}) does not answer")) && said.contains("within 3 s"), "{said}");
    assert!(said.contains("it is stopped") && said.contains(&format!("fix: kill -CONT {pid}")), "{said}");
    rig.wait_until_ready();
}
