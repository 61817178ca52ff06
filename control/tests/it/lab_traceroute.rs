//! `srv6d traceroute` and `srv6d ping` in a lab of srv6d and kernel nodes: which node has used up which SID.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::lab_explain::TOPOLOGY;
use crate::support::lab::{Lab, SRV6D, text};

const CARRIER: &str = "fcbb:0:1004:1001:1005:fe06::";
const HOST: &str = "fcbb:0:800:1::2";

/// Returns the topology with one node more that is a plain kernel.
fn with_kernel(node: &str) -> String {
    let name = format!("name = {node:?}\n");
    TOPOLOGY.replacen(&name, &format!("{name}kind = \"linux\"\n"), 1)
}

/// Runs a traceroute in host00. Returns the exit status and the report.
fn trace(lab: &Lab, arguments: &[&str]) -> (Option<i32>, Value) {
    let said = lab.exec("host00", &[&[SRV6D, "traceroute", "--json"], arguments].concat());
    let report = serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{}", text(&said.stderr)));
    (said.status.code(), report)
}

/// Returns node and SIDs of each hop, as one text for each.
fn hops(report: &Value) -> Vec<String> {
    let hop = |hop: &Value| {
        let line = &hop["answers"][0];
        let sids = line["sids"].as_array().into_iter().flatten().map(|sid| {
            let behavior = sid["behavior"].as_str().unwrap_or("?");
            format!(" {}={behavior}", sid["sid"].as_str().unwrap())
        });
        format!("{}{}", line["node"].as_str().unwrap_or("?"), sids.collect::<String>())
    };
    report["hops"].as_array().unwrap().iter().map(hop).collect()
}

fn last_answer(report: &Value) -> &str {
    report["hops"].as_array().unwrap().last().unwrap()["answers"][0]["answer"].as_str().unwrap_or("none")
}

#[test]
#[ignore = "needs root"]
fn every_node_says_what_it_has_used_up() {
    let lab = Lab::up("trace", &with_kernel("spine01"));
    // A kernel sends one ICMP error in a second to an address, and there are several traces here.
    lab.must("spine01", &["sysctl", "-qw", "net.ipv6.icmp.ratelimit=0"]);
    let (status, report) = trace(&lab, &[CARRIER]);
    let expected = ["leaf00 1004=uN", "spine01 1001=uN", "leaf01 1005=uDT6 fe06=uDT6"];
    assert_eq!((status, hops(&report)), (Some(0), expected.map(str::to_owned).to_vec()), "{report:#}");
    assert_eq!(last_answer(&report), "echo reply");
    // The kernel shifts before it looks at the hop limit, srv6d quotes what it received.
    let there = |hop: usize| report["hops"][hop]["answers"][0]["destination"].as_str().unwrap();
    assert_eq!((there(0), there(1)), (CARRIER, "fcbb:0:1005:fe06::"), "{report:#}");
    assert!(report["hops"][2]["answers"][0]["rtt_ms"].as_array().is_some_and(|times| times.len() == 3));

    // Behind the last SID, to a host.
    let (status, report) = trace(&lab, &[CARRIER, "--to", HOST]);
    let expected = ["leaf00 1004=uN", "spine01 1001=uN", "host01 1005=uDT6 fe06=uDT6"];
    assert_eq!((status, hops(&report)), (Some(0), expected.map(str::to_owned).to_vec()), "{report:#}");

    let (status, report) = trace(&lab, &[CARRIER, "--udp", "--probes", "1"]);
    assert_eq!((status, last_answer(&report)), (Some(0), "the SID takes no such payload"), "{report:#}");

    // Whoever knows no node sees what was used up until then.
    let said = lab.must("host00", &["env", "-u", "SRV6D_LAB", "-u", "SRV6D_SOCKET", SRV6D, "traceroute", CARRIER]);
    let lines: Vec<Vec<&str>> = said.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][2..5], ["-", "-", "-"], "{said}");
    assert_eq!(lines[1][2..6], ["-", "1004,1001", "by", "here"], "{said}");
    assert_eq!(lines[2][2..6], ["-", "1005,fe06", "by", "here"], "{said}");

    pings_and_their_statistics(&lab);
    floods_of_others_change_nothing(&lab);
    what_is_wrong_is_said(&lab);
}

fn pings_and_their_statistics(lab: &Lab) {
    let said = lab.must("host00", &[SRV6D, "ping", "--json", CARRIER, "-c", "20", "-i", "5ms", "--timeout", "5s"]);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&report["sent"], &report["received"], &report["lost"]), (&20.into(), &20.into(), &0.into()), "{said}");
    let times = ["min", "p50", "p90", "p99", "p999"].map(|key| report["rtt_ms"][key].as_f64().unwrap());
    assert!(times[0] > 0.0 && times.is_sorted(), "{said}");

    // Ctrl-C ends it with the summary.
    let mut child = Command::new(SRV6D)
        .args(["lab", "exec", "--name", &lab.name, "host00", "--", SRV6D, "ping", CARRIER, "-i", "10ms"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut lines = std::io::BufRead::lines(&mut output);
    assert!(lines.nth(3).unwrap().unwrap().contains("(leaf01)"));
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(
        rest.iter().any(|line| line.contains("received")) && rest.last().unwrap().starts_with("round trip"),
        "{rest:?}"
    );
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Other messages to this host, many more than there are answers, are nobody's answers.
fn floods_of_others_change_nothing(lab: &Lab) {
    let mut flood = Command::new(SRV6D)
        .args(["lab", "exec", "--name", &lab.name, "host01", "--", "ping", "-q", "-i", "0.001", "fcbb:0:800::2"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (_, report) = trace(lab, &[CARRIER, "--probes", "1", "--timeout", "5s"]);
    flood.kill().unwrap();
    flood.wait().unwrap();
    assert_eq!(hops(&report).len(), 3, "{report:#}");
}

fn what_is_wrong_is_said(lab: &Lab) {
    let bare = ["setpriv", "--reuid", "65534", "--clear-groups", SRV6D, "ping", CARRIER];
    let cases: [(&[&str], i32, &str); 4] = [
        (&bare, 1, "CAP_NET_RAW"),
        (&[SRV6D, "traceroute", "2001:db8:dead::1"], 1, "no route to 2001:db8:dead::1"),
        (&[SRV6D, "traceroute", CARRIER, "--interface", "none0"], 1, "no interface none0"),
        (&[SRV6D, "traceroute", "ff02::1"], 2, "cannot be a SID"),
    ];
    for (command, status, words) in cases {
        let said = lab.exec("host00", command);
        let error = text(&said.stderr);
        assert_eq!((said.status.code(), error.contains(words)), (Some(status), true), "{command:?}: {error}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_kernel_that_answers_no_ping_to_a_sid_is_reached_through_it() {
    let lab = Lab::up("trace-end", &with_kernel("leaf01"));
    let (status, report) = trace(&lab, &[CARRIER, "--probes", "1", "--timeout", "200ms"]);
    assert_eq!((status, report["end"].as_str()), (Some(1), Some("silent")), "{report:#}");
    let (status, report) = trace(&lab, &[CARRIER, "--probes", "1", "--timeout", "5s", "--to", HOST]);
    let found = hops(&report);
    assert_eq!((status, last_answer(&report)), (Some(0), "echo reply"), "{report:#}");
    assert_eq!(found[..2], ["leaf00 1004=uN", "spine01 1001=uN"].map(str::to_owned), "{report:#}");
    let said = lab.must("host00", &[SRV6D, "ping", CARRIER, "--to", HOST, "-c", "3", "-i", "10ms", "--timeout", "5s"]);
    assert!(said.contains("3 sent, 3 received, 0.0 % lost"), "{said}");
}
