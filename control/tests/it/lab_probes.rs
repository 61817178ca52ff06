//! Tests of hosts that probe their paths: a spine that drops packets silently is left out, by the hosts alone.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt};
use nix::unistd::Pid;
use serde_json::Value;
use srv6d_netns as netns;

use crate::support::lab::{Lab, SRV6D, balanced, eventually, srv6d, text};

/// Address of host00, to which its probes come back, and their UDP port.
const HOST: &str = "fcbb:0:800::2";
const PORT: u16 = 47151;
/// Length of the headers in front of the payload of a probe that has come back: Ethernet, IPv6, UDP.
const HEADERS: usize = 14 + 40 + 8;
const PAYLOAD: usize = 112;
/// Nodes that probe their paths.
const PROBERS: [&str; 3] = ["host00", "host01", "leaf00"];

/// Returns a fabric of two leaves and three spines, whose hosts and one of the leaves have a path over every spine. One link
/// has a smaller MTU. The kernel forwards in one spine and in one leaf. The hosts have a link of their own, outside of the
/// fabric.
fn fabric() -> String {
    let size = ["--leaves", "2", "--spines", "3", "--hosts", "1", "--probes"];
    let made = srv6d(&[&["lab", "topology"], size.as_slice()].concat());
    let of_kernel = |text: &str, name: &str| {
        let node = format!("name = \"{name}\"\n");
        assert!(text.contains(&node), "{text}");
        text.replace(&node, &format!("{node}kind = \"linux\"\n"))
    };
    let fabric = of_kernel(&of_kernel(&text(&made.stdout), "spine00"), "leaf01");
    let fabric = fabric.replace("    { sid = \"fcbb:0:1401:fe04::/64\", behavior = \"uDT4\" },\n", "");
    let path = |spine| format!("{{ name = \"spine0{spine}\", segments = [\"fcbb:0:100{spine}:1401:fe06::\"] }}");
    let steer =
        format!("steer = [{{ prefix = \"fcbb:0:800:1::/64\", paths = [{}] }}]\n", [0, 1, 2].map(path).join(", "));
    let fabric = fabric.replace("name = \"leaf00\"\n", &format!("name = \"leaf00\"\n{steer}"));
    let small = "[[link]]\nends = [\n    { node = \"leaf00\", port = \"eth2\"";
    assert!(fabric.contains(small), "{fabric}");
    let fabric = fabric.replace(small, &small.replace("]]\n", "]]\nmtu = 1400\n"));
    let end = |host: &str, last| {
        format!("{{ node = \"{host}\", port = \"eth9\", addresses = [\"2001:db8:9::{last}/64\"], role = \"edge\" }}")
    };
    format!("{fabric}[[link]]\nends = [{}, {}]\n", end("host00", 1), end("host01", 2))
}

fn config(lab: &Lab, node: &str) -> String {
    fs::read_to_string(format!("/run/srv6d-lab/{}/{node}/srv6d.toml", lab.name)).unwrap()
}

/// Names the port of each path of leaf00. That to spine01 has a smaller MTU than the others.
fn name_ports(lab: &Lab) {
    let mut text = config(lab, "leaf00");
    for spine in 0..3 {
        let segments = format!("segments = [\"fcbb:0:100{spine}:1401:fe06::\"]");
        assert!(text.contains(&segments), "{text}");
        let hop = format!("via = \"2001:db8:0:{spine}::2\", port = \"eth{}\"", spine + 1);
        text = text.replace(&segments, &format!("{segments}, {hop}"));
    }
    fs::write(format!("/run/srv6d-lab/{}/leaf00/srv6d.toml", lab.name), text).unwrap();
    lab.must("leaf00", &[SRV6D, "reload"]);
}

/// Waits until leaf00's own packets to its steered prefix may have this size.
fn wait_for_mtu(lab: &Lab, mtu: u32) {
    let wanted = format!("mtu {mtu} ");
    eventually(&wanted, || lab.must("leaf00", &["ip", "-6", "route", "show", "table", "8986"]).contains(&wanted));
}

fn show(lab: &Lab, node: &str, topic: &str) -> Value {
    serde_json::from_str(&lab.must(node, &[SRV6D, "show", topic, "--json"])).unwrap()
}

/// Returns the paths of a node with what probes say of them: name, state, whether packets take it.
fn paths(lab: &Lab, node: &str) -> Vec<(String, String, bool)> {
    let view = show(lab, node, "probes");
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let row = |row: &Value| (text(row, "path"), text(row, "state"), row["in_use"].as_bool().unwrap());
    view["paths"].as_array().unwrap().iter().map(row).collect()
}

fn all_are_good(lab: &Lab, node: &str) -> bool {
    let paths = paths(lab, node);
    paths.len() == if node == "leaf00" { 3 } else { 6 }
        && paths.iter().all(|(_, state, in_use)| state == "good" && *in_use)
}

/// Sends datagrams of 24 flows from host00 to host01 while `meanwhile` runs. Returns how many of them were lost, and how
/// many were sent.
fn stream(lab: &Lab, meanwhile: impl FnOnce()) -> (u64, u64) {
    let mut sink = lab.spawn("host01", &["udp-receive", "[fcbb:0:800:1::2]:0"]);
    let mut lines = BufReader::new(sink.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let listening = next()["listening"].as_str().unwrap().to_owned();
    let sender = lab.spawn("host00", &["udp-send", &listening, "300", "120", "200", "24"]);
    meanwhile();
    nix::sys::signal::kill(Pid::from_raw(sender.id().cast_signed()), Signal::SIGTERM).unwrap();
    let sent = sender.wait_with_output().unwrap();
    assert!(sent.status.success(), "{}", text(&sent.stderr));
    let report = next();
    sink.wait().unwrap();
    (report["lost"].as_u64().unwrap(), report["sent"].as_u64().unwrap())
}

/// Waits until host00 has sent this many more packets.
fn wait_for_packets(lab: &Lab, more: u64) {
    let sent = || {
        show(lab, "host00", "paths").as_array().unwrap().iter().map(|row| row["packets"].as_u64().unwrap()).sum::<u64>()
    };
    let begin = sent();
    eventually("more packets", || sent() >= begin + more);
}

/// Returns the packets that host00 has sent over a spine.
fn over(lab: &Lab, spine: &str) -> u64 {
    let rows = show(lab, "host00", "paths");
    let of_spine = |row: &&Value| row["path"].as_str().unwrap().ends_with(spine);
    rows.as_array().unwrap().iter().filter(of_spine).map(|row| row["packets"].as_u64().unwrap()).sum()
}

/// Returns how often the tables of host00 were built as a whole.
fn whole_builds(lab: &Lab) -> u64 {
    show(lab, "host00", "generation")["tables"]["whole"].as_u64().unwrap()
}

fn lab_command(lab: &Lab, command: &[&str]) -> String {
    let (name, rest) = command.split_first().unwrap();
    let done = srv6d(&[&["lab", name, "--name", &lab.name], rest].concat());
    assert!(done.status.success(), "{command:?}: {}", text(&done.stderr));
    text(&done.stdout)
}

/// Returns the payload of a probe that comes back to host00.
fn captured(lab: &Lab) -> Vec<u8> {
    netns::enter(&format!("srv6d-{}-host00", lab.name), || {
        let (family, all) = (AddressFamily::Packet, SockProtocol::EthAll);
        let tap = socket(family, SockType::Raw, SockFlag::empty(), all).unwrap();
        let mut frame = [0; 2048];
        loop {
            let length = recv(tap.as_raw_fd(), &mut frame, MsgFlags::empty()).unwrap();
            if length == HEADERS + PAYLOAD && frame[20] == 17 && frame[56..58] == PORT.to_be_bytes() {
                return Ok::<_, netns::Error>(frame[HEADERS..length].to_vec());
            }
        }
    })
    .unwrap()
}

/// Sends datagrams to the UDP port of host00's probes, from a node by one of its ports.
fn send_from(lab: &Lab, node: &str, port: &str, datagrams: &[&[u8]]) {
    netns::enter(&format!("srv6d-{}-{node}", lab.name), || {
        let socket = UdpSocket::bind("[::]:0").unwrap();
        setsockopt(&socket, sockopt::BindToDevice, &port.into()).unwrap();
        for datagram in datagrams {
            socket.send_to(datagram, (HOST, PORT)).unwrap();
        }
        Ok::<_, netns::Error>(())
    })
    .unwrap();
}

/// Sends what is no answer, and waits until all of it is counted.
fn lie(lab: &Lab) {
    let known = captured(lab);
    let mut changed = known.clone();
    changed[3] ^= 1;
    let long = [known.as_slice(), &[0; 400]].concat();
    send_from(lab, "leaf00", "eth4", &[&known, &changed, &[0; PAYLOAD], b"", &known[1..], &long]);
    lab.must("host01", &["ip", "route", "add", &format!("{HOST}/128"), "via", "2001:db8:9::1", "dev", "eth9"]);
    send_from(lab, "host01", "eth9", &[&known]);
    let refused = || show(lab, "host00", "probes")["refused"].clone();
    eventually("refused datagrams", || {
        refused().as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>() >= 7
    });
    let counts =
        ["again", "seal", "length", "port", "sequence", "loop"].map(|reason| refused()[reason].as_u64().unwrap());
    assert_eq!(counts, [1, 2, 3, 1, 0, 0]);
}

#[test]
#[ignore = "needs root"]
fn a_spine_that_drops_silently_is_left_out_and_used_again() {
    let lab = Lab::up("probes", &fabric());
    name_ports(&lab);
    for node in PROBERS {
        eventually("probes of all paths", || all_are_good(&lab, node));
    }
    let view = show(&lab, "host00", "probes");
    assert_eq!(view["paths"][1]["carrier"], "fcbb:0:1400:1001:1401:1001:1400:fe06");
    assert!(view["paths"][1]["rtt_p50_us"].as_u64().is_some_and(|time| time > 0), "{view}");
    assert_eq!(show(&lab, "host00", "process")["least_privilege"], true, "probes need no privilege");
    let built = whole_builds(&lab);
    lie(&lab);
    lab_command(&lab, &["impair", "spine01:eth1", "--queue", "200000"]);
    let impaired = config(&lab, "spine01");
    wait_for_mtu(&lab, 1360);
    eventually("all paths in use", || all_are_good(&lab, "host00"));

    let (lost, sent) = stream(&lab, || {
        wait_for_packets(&lab, 100);
        print!("{}", lab_command(&lab, &["fail", "spine01", "--how", "silent"]));
        wait_for_packets(&lab, 100);
    });
    println!("{lost} of {sent} datagrams were lost");
    assert!(0 < lost && lost < sent / 2, "{lost} of {sent}");
    let is_right = |(path, state, in_use): &(String, String, bool)| {
        let is_dead = path.ends_with("spine01");
        (state == "dead", *in_use) == (is_dead, !is_dead)
    };
    for node in PROBERS {
        eventually("all other paths in use", || paths(&lab, node).iter().all(is_right));
    }
    wait_for_mtu(&lab, 1460);
    let rows = show(&lab, "host00", "paths");
    let left_out = |row: &&Value| row["left_out"].as_bool().unwrap();
    assert_eq!(rows.as_array().unwrap().iter().filter(left_out).count(), 2);
    assert!(lab.must("host00", &[SRV6D, "show", "paths"]).contains("dead, left out"));
    let before = over(&lab, "spine01");
    let (lost, sent) = stream(&lab, || wait_for_packets(&lab, 300));
    assert_eq!((lost, over(&lab, "spine01")), (0, before), "of {sent}\n{}", lab.losses());

    let (lost, _) = stream(&lab, || {
        print!("{}", lab_command(&lab, &["repair", "spine01"]));
        wait_for_packets(&lab, 300);
    });
    assert_eq!(lost, 0, "{}", lab.losses());
    assert_eq!(config(&lab, "spine01"), impaired, "what was before the failure");
    wait_for_mtu(&lab, 1360);
    for node in PROBERS {
        eventually("all paths in use", || all_are_good(&lab, node));
    }
    assert!(over(&lab, "spine01") > before);
    let generation = show(&lab, "host00", "generation");
    assert!(generation["generations"].as_array().unwrap().iter().any(|row| row["source"] == "probes"), "{generation}");
    assert_eq!(whole_builds(&lab), built, "amendments need no whole build: {generation}");
    balanced(&lab, &["host00", "host01", "leaf00", "spine01", "spine02"]);
}

#[test]
#[ignore = "needs root"]
fn the_silence_of_everything_takes_nothing_away() {
    let lab = Lab::up("silence", &fabric());
    eventually("probes of all paths", || all_are_good(&lab, "host00"));
    let unjudged = || {
        let view = show(&lab, "host00", "probes");
        view["paths"].as_array().unwrap().iter().map(|row| row["unjudged"].as_u64().unwrap()).min().unwrap()
    };
    let begin = unjudged();
    // Everything that host00 sends crosses its leaf.
    lab_command(&lab, &["impair", "leaf00:eth4", "--loss", "100%"]);
    eventually("unjudged probes", || unjudged() >= begin + 10);
    assert!(all_are_good(&lab, "host00"));
    lab_command(&lab, &["impair", "leaf00:eth4", "--clear"]);
    let received = || show(&lab, "host00", "probes")["paths"][0]["received"].as_u64().unwrap();
    let begin = received();
    eventually("answers", || received() >= begin + 5);
    eventually("all paths in use", || all_are_good(&lab, "host00"));
}
