//! Tests of `srv6d lab impair`: links that get a rate, a delay and losses under a stream, and lose them again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output};

use serde_json::Value;

use crate::support::lab::{Lab, SRV6D, balanced, eventually, srv6d, text};

/// Two hosts at one leaf. The link of host00 has a rate from the beginning.
const TOPOLOGY: &str = r#"
name = "impaired"
block = "fcbb::/32"
host_prefixes = ["fcbb:0:800::/48"]

[[node]]
name = "host00"
role = "host"
steer = [{ prefix = "fcbb:0:800:1::/64", paths = [{ name = "there", segments = ["fcbb:0:1004:fe06::"] }] }]

[[node]]
name = "host01"
role = "host"
steer = [{ prefix = "fcbb:0:800::/64", paths = [{ name = "back", segments = ["fcbb:0:1004:fe06::"] }] }]

[[node]]
name = "leaf00"
role = "leaf"
addresses = ["fcbb:0:1004::1/128"]
sids = [{ sid = "fcbb:0:1004::/48", behavior = "uN" }, { sid = "fcbb:0:1004:fe06::/64", behavior = "uDT6" }]

[[link]]
emulate = { rate = "1Gbit", packets = 256 }
ends = [
    { node = "host00", port = "eth1", addresses = ["fcbb:0:800::2/64"] },
    { node = "leaf00", port = "eth1", addresses = ["fcbb:0:800::1/64"] },
]

[[link]]
ends = [
    { node = "host01", port = "eth1", addresses = ["fcbb:0:800:1::2/64"] },
    { node = "leaf00", port = "eth2", addresses = ["fcbb:0:800:1::1/64"] },
]
"#;

fn impair(lab: &Lab, arguments: &str) -> Output {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    srv6d(&[&["lab", "impair", "--name", &lab.name], arguments.as_slice()].concat())
}

/// Impairs a link, which must succeed. Returns what is printed.
fn must(lab: &Lab, arguments: &str) -> String {
    let done = impair(lab, arguments);
    assert!(done.status.success(), "{arguments}: {}", text(&done.stderr));
    text(&done.stdout)
}

fn emulated(lab: &Lab, node: &str, port: &str) -> Option<Value> {
    let rows: Value = serde_json::from_str(&lab.must(node, &[SRV6D, "show", "ports", "--json"])).unwrap();
    let row = rows.as_array().unwrap().iter().find(|row| row["name"] == port).unwrap().clone();
    row.get("emulated").filter(|emulated| !emulated.is_null()).cloned()
}

fn rate(lab: &Lab, node: &str, port: &str) -> Option<u64> {
    emulated(lab, node, port)?.get("rate")?.as_u64()
}

/// Returns the ports that `lab status --json` calls impaired, with their settings.
fn impaired(lab: &Lab) -> Vec<(String, Value)> {
    let status: Value =
        serde_json::from_slice(&srv6d(&["lab", "status", "--json", "--name", &lab.name]).stdout).unwrap();
    assert_eq!((&status["up"], status["nodes"].as_array().unwrap().len()), (&Value::Bool(true), 3), "{status}");
    let rows = status["emulated"].as_array().unwrap().iter().filter(|row| row["impaired"] == true);
    let name = |row: &Value| format!("{}:{}", row["node"].as_str().unwrap(), row["port"].as_str().unwrap());
    rows.map(|row| (name(row), row["emulate"].clone())).collect()
}

/// A stream of numbered datagrams from host00 to host01.
struct Stream {
    receiver: Child,
    said: std::io::Lines<BufReader<std::process::ChildStdout>>,
    sender: Child,
}

impl Stream {
    fn start(lab: &Lab) -> Self {
        let mut receiver = lab.spawn("host01", &["udp-receive", "[fcbb:0:800:1::2]:0"]);
        let mut said = BufReader::new(receiver.stdout.take().unwrap()).lines();
        let listening: Value = serde_json::from_str(&said.next().unwrap().unwrap()).unwrap();
        let to = listening["listening"].as_str().unwrap();
        let sender = lab.spawn("host00", &["udp-send", to, "2000", "60", "1200", "--window", "64"]);
        Self { receiver, said, sender }
    }

    /// Ends the stream. Returns the receiver's report.
    fn end(mut self) -> Value {
        assert!(Command::new("kill").args(["-TERM", &self.sender.id().to_string()]).status().unwrap().success());
        assert!(self.sender.wait().unwrap().success());
        let report = serde_json::from_str(&self.said.next().unwrap().unwrap()).unwrap();
        self.receiver.wait().unwrap();
        report
    }
}

fn least_ping(lab: &Lab) -> f64 {
    let said = lab.must("host00", &["ping", "-n", "-q", "-c", "3", "-i", "0.2", "-w", "30", "fcbb:0:800:1::2"]);
    said.split(" = ").nth(1).unwrap().split('/').next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs root"]
fn a_link_is_impaired_under_a_stream_and_only_its_losses_are_lost() {
    let lab = Lab::up("impair", TOPOLOGY);
    let ends =
        |port| [rate(&lab, "leaf00", port), rate(&lab, if port == "eth1" { "host00" } else { "host01" }, "eth1")];
    assert_eq!((ends("eth1"), ends("eth2")), ([Some(1_000_000_000); 2], [None; 2]), "as the topology has it");
    assert_eq!(impaired(&lab), []);

    let stream = Stream::start(&lab);
    let said = must(&lab, "leaf00-host01 --rate 2Mbit --delay 20ms");
    assert!(said.contains("leaf00:eth2 to host01: rate 2Mbit, delay 20ms"), "{said}");
    assert_eq!(ends("eth2"), [Some(2_000_000); 2]);
    let load = || emulated(&lab, "leaf00", "eth2").unwrap()["load_permille"].as_u64().unwrap();
    eventually("the stream fills the link", || load() >= 990);
    assert!(least_ping(&lab) >= 40.0, "20 ms there and back");
    must(&lab, "leaf00-host01 --clear");
    assert_eq!((ends("eth1"), ends("eth2")), ([Some(1_000_000_000); 2], [None; 2]));
    // With the emulation the worker's part ends, and the XDP program may overtake what the worker still has.
    let report = stream.end();
    assert_eq!((&report["lost"], &report["duplicated"]), (&0.into(), &0.into()), "{report}");

    let stream = Stream::start(&lab);
    let said = must(&lab, "leaf00:eth2 --loss 20%");
    assert!(said.contains("loss 0.2 (a rate that limits nothing)"), "{said}");
    let wire_loss = || {
        let counters: Value =
            serde_json::from_str(&lab.must("leaf00", &[SRV6D, "show", "counters", "--json"])).unwrap();
        let rows = counters["drop"].as_array().unwrap().clone();
        rows.iter().find(|row| row["reason"] == "wire_loss").map_or(0, |row| row["packets"].as_u64().unwrap())
    };
    eventually("losses", || wire_loss() > 20);
    assert_eq!(ends("eth2"), [Some(1_600_000_000_000), None], "one direction");
    must(&lab, "leaf00:eth2 --clear");
    let lost = wire_loss();
    let report = stream.end();
    assert_eq!((report["lost"].as_u64(), wire_loss()), (Some(lost), lost), "{report}\n{}", lab.losses());
    balanced(&lab, &["host00", "leaf00", "host01"]);
}

#[test]
#[ignore = "needs root"]
fn impairments_are_shown_outlive_a_restart_and_wrong_ones_change_nothing() {
    let lab = Lab::up("shown", TOPOLOGY);
    must(&lab, "host00-leaf00 --loss 1%");
    must(&lab, "host00:eth1 --ecn lab --queue 200000");
    let of_topology = serde_json::json!({"rate": "1Gbit", "packets": 256, "loss": 0.01});
    let mut more = of_topology.clone();
    more["ecn"] = "lab".into();
    more["queue"] = 200_000.into();
    let expected = vec![("host00:eth1".to_owned(), more), ("leaf00:eth1".to_owned(), of_topology)];
    assert_eq!(impaired(&lab), expected);
    let shown = text(&srv6d(&["lab", "status", "--name", &lab.name]).stdout);
    assert!(shown.contains("SET BY") && shown.contains("impair"), "{shown}");

    for (wrong, status, said) in [
        ("host00-host01 --loss 1%", 2, "fix: name one of the links: host00-leaf00, host01-leaf00"),
        ("host00-leaf00 --queue 100", 2, "--queue: 100 bytes do not hold two packets"),
        ("host00-leaf00 --rate fast", 2, "--rate: \"fast\" does not fit here"),
        ("leaf00:eth2 --packets 16384", 1, "half of [workers] frames"),
        ("host00-leaf00", 2, "--rate"),
        ("host00-leaf00 --clear --loss 1%", 2, "cannot be used with"),
    ] {
        let refused = impair(&lab, wrong);
        let error = text(&refused.stderr);
        assert!(refused.status.code() == Some(status) && error.contains(said), "{wrong}: {error}");
        assert_eq!(impaired(&lab), expected, "{wrong}");
    }

    let restarted = srv6d(&["lab", "restart", "leaf00", "--name", &lab.name]);
    assert!(restarted.status.success(), "{}", text(&restarted.stderr));
    assert_eq!((impaired(&lab), rate(&lab, "leaf00", "eth1")), (expected, Some(1_000_000_000)));
    must(&lab, "leaf00-host00 --clear");
    assert_eq!(impaired(&lab), []);
}
