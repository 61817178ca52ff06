//! Jobs at a daemon that runs: two beside each other, what is refused, what a restart keeps, and what goes with its
//! process.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use crate::support;

use std::fs;
use std::process::{Child, Command};

use serde_json::{Value, json};
use support::rig::{CONFIG, Rig, text, wait_for};

/// The way to the leaf of the fabric, over the host b, and its block.
const FABRIC: &str =
    "[[block]]\nprefix = \"fcbb::/32\"\n[[route]]\nprefix = \"fcbb:0:1004::/48\"\nvia = \"2001:db8:b::2\"\n";

/// A fabric of two leaves and two spines. The daemon is host00 at leaf00; host01 and host02 are at leaf01.
fn topology() -> Value {
    let node = |name: &str, number: u16| {
        let sid = |function: &str, behavior: u8| {
            json!({"srv6_sid": format!("fcbb:0:{number:x}:{function}:"),
                "srv6_endpoint_behavior": {"endpoint_behavior": behavior, "flag": 0, "algo": 0}})
        };
        json!({"_key": name, "name": name, "router_id": "10.0.0.1", "sids": [sid("", 48), sid("fe06:", 62), sid("fe04:", 63)]})
    };
    let nodes = [("spine00", 0x1000), ("spine01", 0x1001), ("leaf00", 0x1004), ("leaf01", 0x1005)];
    let nodes: Vec<Value> = nodes.iter().map(|(name, number)| node(name, *number)).collect();
    let hosts: Vec<Value> = (0..3)
        .map(|number| {
            let name = format!("host{number:02}");
            json!({"_key": name, "name": name, "prefix": format!("2001:db8:1{number:02}::"), "prefix_len": 64})
        })
        .collect();
    let links = [
        ("hosts/host00", "fabric_node/leaf00"),
        ("hosts/host01", "fabric_node/leaf01"),
        ("hosts/host02", "fabric_node/leaf01"),
        ("fabric_node/leaf00", "fabric_node/spine00"),
        ("fabric_node/leaf00", "fabric_node/spine01"),
        ("fabric_node/leaf01", "fabric_node/spine00"),
        ("fabric_node/leaf01", "fabric_node/spine01"),
    ];
    let edge =
        |from: &str, to: &str| json!({"_key": format!("{from}_{to}").replace('/', "-"), "_from": from, "_to": to});
    let edges: Vec<Value> = links.iter().flat_map(|(one, other)| [edge(one, other), edge(other, one)]).collect();
    json!({"nodes": nodes, "hosts": hosts, "edges": edges})
}

/// A job of host00 and another host, as a file.
fn job(id: &str, host: usize, more: &str) -> String {
    format!(
        "id = \"{id}\"\n{more}\n[[members]]\nrank = 0\nhost = \"host00\"\naddresses = [\"2001:db8:100::1\"]\n\
         [[members]]\nrank = 1\nhost = \"host{host:02}\"\naddresses = [\"2001:db8:1{host:02}::/64\"]\n"
    )
}

/// A rig with the files of two jobs, and its configuration.
fn rig() -> (Rig, String) {
    let rig = Rig::new(1);
    fs::write(rig.file("fabric.json"), topology().to_string()).unwrap();
    fs::write(rig.file("red.toml"), job("red", 1, "tenant = \"red\"")).unwrap();
    fs::write(rig.file("blue.toml"), job("blue", 2, "pattern = \"ring\"")).unwrap();
    let jobs = format!(
        "[jobs]\nallowed_prefixes = [\"2001:db8:100::/40\"]\ngrace = \"1s\"\ntopology = \"{}\"\n",
        rig.file("fabric.json").display()
    );
    let config = format!("{CONFIG}{FABRIC}{jobs}");
    (rig, config)
}

/// Runs a command of `srv6d job` that must succeed, and returns what it prints.
fn must(rig: &Rig, words: &str) -> String {
    let output = rig.ask("node", &format!("job {words}"));
    assert!(output.status.success(), "job {words}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs a command of `srv6d job` that must fail, and returns why.
fn refused(rig: &Rig, words: &str) -> String {
    let output = rig.ask("node", &format!("job {words}"));
    assert!(!output.status.success(), "job {words}: {}", text(&output.stdout));
    text(&output.stderr)
}

fn file(rig: &Rig, name: &str) -> String {
    rig.file(name).display().to_string()
}

fn shown(rig: &Rig, id: &str) -> Value {
    let views: Value = serde_json::from_str(&must(rig, &format!("show {id} --json"))).unwrap();
    views[0].clone()
}

/// Returns the carriers in the tables, by prefix.
fn steered(rig: &Rig) -> Vec<(String, String)> {
    let paths = rig.show("paths");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut all: Vec<(String, String)> =
        paths.as_array().unwrap().iter().map(|path| (text(&path["prefix"]), text(&path["segments"][0]))).collect();
    all.sort_unstable();
    all
}

/// A process that lasts until it is killed.
struct Holder(Child);

impl Holder {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
#[ignore = "needs root"]
fn two_jobs_keep_apart_survive_a_restart_and_go_with_their_process() {
    let (mut rig, config) = rig();
    let daemon = rig.ready(&config);
    let mut holder = Holder::start();
    let red = file(&rig, "red.toml");
    must(&rig, &format!("start {red} --host host00 --pid {}", holder.0.id()));
    must(&rig, "wait red --timeout 30s");
    let blue = file(&rig, "blue.toml");
    must(&rig, &format!("start {blue} --host host00"));
    must(&rig, "wait blue --timeout 30s");

    let both = steered(&rig);
    let prefixes: Vec<&str> = both.iter().map(|(prefix, _)| prefix.as_str()).collect();
    assert_eq!(prefixes, ["2001:db8:101::/64", "2001:db8:102::/64"]);
    assert_ne!(both[0].1, both[1].1, "each has a spine of its own");
    let view = shown(&rig, "blue");
    assert_eq!((&view["state"], &view["shares"]), (&json!("installed"), &json!([])), "{view:#}");
    assert_eq!(view["paths"][0]["state"], "in_force", "{view:#}");
    assert_eq!(shown(&rig, "red")["members"][0]["hold"], format!("process {}", holder.0.id()));

    // A job that wants a prefix of another one does not get it, and is told who has it.
    fs::write(rig.file("green.toml"), job("green", 1, "")).unwrap();
    must(&rig, &format!("start {} --rank 0", file(&rig, "green.toml")));
    let why = refused(&rig, "wait green --timeout 1s");
    assert!(why.contains("2001:db8:101::/64") && why.contains("job:red"), "{why}");
    assert!(shown(&rig, "green")["shares"].as_array().is_some_and(|shares| !shares.is_empty()));
    must(&rig, "end green");
    assert_eq!(steered(&rig), both);

    // The daemon is stopped, and once more killed; its jobs are there again.
    assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));
    let daemon = rig.ready(&config);
    assert_eq!(steered(&rig), both);
    assert_eq!(rig.stop(daemon, "KILL"), None);
    let daemon = rig.ready(&config);
    assert_eq!(steered(&rig), both);
    must(&rig, "wait red --timeout 30s");

    // The process of the red job dies: its paths go after the grace period, and those of the blue one stay.
    holder.end();
    wait_for("end of the red job", || (steered(&rig) == both[1..]).then_some(()));
    assert!(refused(&rig, "show red").contains("no rank of job \"red\" is here"));
    must(&rig, "wait blue --timeout 30s");
    must(&rig, "end blue");
    assert_eq!(steered(&rig), []);
    rig.check_lives(daemon);
    assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));
}

#[test]
#[ignore = "needs root"]
fn what_a_rank_may_not_do_is_refused_by_name() {
    let (mut rig, config) = rig();
    let red = file(&rig, "red.toml");
    let daemon = rig.ready(&format!("{CONFIG}{FABRIC}"));
    let why = refused(&rig, &format!("start {red} --host host00"));
    assert!(why.contains("srv6d.toml has no [jobs]"), "{why}");
    rig.reload(&config);

    let placed = file(&rig, "placed.json");
    let text = must(&rig, &format!("place {red}"));
    fs::write(&placed, &text).unwrap();
    let join = |rig: &Rig, job: &str| refused(rig, &format!("join {job} --placed {placed} --host host00"));
    // A rank that knows other members.
    fs::write(rig.file("other.toml"), job("red", 2, "tenant = \"red\"")).unwrap();
    let why = join(&rig, &file(&rig, "other.toml"));
    assert!(why.contains("all ranks must have the same members"), "{why}");
    // The placement of another job.
    let why = join(&rig, &file(&rig, "blue.toml"));
    assert!(why.contains("the placement is of job red"), "{why}");
    // Carriers to prefixes of others, and outside of the block.
    for (lie, says) in [
        (text.replace("2001:db8:101::/64", "2001:db8:102::/64"), "is no address of host01"),
        (text.replace("\"fcbb:0:1004:", "\"fd00:0:1004:"), "lies in no [[block]] of this node"),
    ] {
        assert_ne!(lie, text);
        fs::write(&placed, lie).unwrap();
        let why = join(&rig, &red);
        assert!(why.contains(says), "{why}");
    }
    assert_eq!(steered(&rig), [], "nothing was changed");

    fs::write(&placed, &text).unwrap();
    must(&rig, &format!("join {red} --placed {placed} --host host00 --lease 1h"));
    must(&rig, "wait red --rank 0 --timeout 30s");
    assert_eq!(steered(&rig).len(), 1);
    // Placed again beside itself it stays as it is. What is prepared with carriers of others is refused, and nothing changes.
    let before = steered(&rig);
    let again = must(&rig, &format!("place {red} --from {placed}"));
    let replaces = &serde_json::from_str::<Value>(&again).unwrap()["placement"]["replaces"];
    assert_eq!((&replaces["moved"], &replaces["flows"]), (&json!(0), &json!(2)), "{replaces}");
    fs::write(&placed, again.replace("\"fcbb:0:1004:", "\"fd00:0:1004:")).unwrap();
    let why = refused(&rig, &format!("join --placed {placed} --host host00 --prepare"));
    assert!(why.contains("lies in no [[block]] of this node"), "{why}");
    assert!(refused(&rig, "commit red --generation 2").contains("not prepared for rank 0"));
    // A carrier that could not leave this node is named before anything is committed.
    fs::write(&placed, again.replace("\"fcbb:0:1004:", "\"fcbb:0:1fff:")).unwrap();
    let why = refused(&rig, &format!("join --placed {placed} --host host00 --prepare"));
    assert!(why.contains("could not come into force") && why.contains("rank 0 to 2001:db8:101::/64"), "{why}");
    must(&rig, "abandon red");
    assert_eq!((steered(&rig), shown(&rig, "red")["generation"].as_u64()), (before, Some(1)));
    // What is no longer allowed is taken away, and comes back.
    rig.reload(&config.replace("2001:db8:100::/40", "2001:db8:200::/40"));
    wait_for("end of what is not allowed", || steered(&rig).is_empty().then_some(()));
    let why = refused(&rig, "wait red --timeout 1s");
    assert!(why.contains("allowed_prefixes"), "{why}");
    rig.reload(&config);
    must(&rig, "wait red --timeout 30s");
    assert_eq!(rig.stop(daemon, "TERM"), Some(0), "{}", rig.log("node"));
}
