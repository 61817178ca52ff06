//! Tests of the labs of `packaging/containerlab`, deployed as containerlab does but without a container engine.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a failed test may panic

use crate::clab;

use std::fs;

use clab::engine::{Lab, both, is_possible};
use clab::topology;

/// Structure of containerlab's published schema (<https://containerlab.dev/clab.schema.json>, 0.79), without its texts.
const SCHEMA: &str = include_str!("clab/schema.json");

#[test]
fn topology_files_fit_the_published_schema() {
    let validator = jsonschema::validator_for(&serde_json::from_str(SCHEMA).unwrap()).unwrap();
    let files = topology::files();
    assert!(files.len() >= 2, "{files:?}");
    for file in files.into_iter().chain([topology::of_trex()]) {
        let document: serde_json::Value = serde_saphyr::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", file.display());
    }
}

#[test]
fn the_schema_refuses_what_containerlab_refuses() {
    let validator = jsonschema::validator_for(&serde_json::from_str(SCHEMA).unwrap()).unwrap();
    let wrong = serde_json::json!({"name": "x", "topology": {"nodes": {"a": {"kind": "linux", "bind": []}}}});
    assert!(!validator.is_valid(&wrong), "an unknown key of a node");
    assert!(!validator.is_valid(&serde_json::json!({"topology": {"nodes": {}}})), "no name");
}

#[test]
fn every_bound_file_is_there() {
    for file in topology::files() {
        let lab = topology::read(&file.file_name().unwrap().to_string_lossy());
        for bind in lab.topology.nodes.values().flat_map(|node| &node.binds) {
            let path = topology::folder().join(bind.split(':').next().unwrap());
            assert!(path.is_file(), "{} binds {}", file.display(), path.display());
        }
    }
}

/// Hosts need a check of their own, because the image's check is for a switch.
#[test]
fn every_host_of_a_lab_has_a_health_check_of_its_own() {
    for file in topology::files() {
        let lab = topology::read(&file.file_name().unwrap().to_string_lossy());
        for (name, node) in lab.topology.nodes.iter().filter(|(_, node)| node.entrypoint.is_some()) {
            let check = node.healthcheck.as_ref().unwrap_or_else(|| panic!("{name} has the image's check"));
            assert_eq!(check.test[0], "CMD-SHELL", "{name}");
        }
    }
}

/// Without `BuildKit` an engine builds all stages in front of the requested one.
#[test]
fn the_stage_that_packs_a_binary_stands_in_front_of_the_one_that_wants_rust() {
    let text = fs::read_to_string(topology::folder().join("Dockerfile")).unwrap();
    let place = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}"));
    assert!(place("\nFROM base AS packed\n") < place("\nFROM rust:"));
}

fn deploy(name: &str) -> Option<Lab> {
    if let Err(why) = is_possible() {
        println!("SKIPPED: this kernel lays no root directory over another: {why}");
        return None;
    }
    Some(Lab::deploy(name))
}

fn ping(lab: &Lab, from: &str, to: &str) {
    let all = || both(&lab.exec(from, &format!("ping -c 3 -i 0.2 -W 1 {to}"))).contains(" 0% packet loss");
    lab.wait(from, &format!("answered by {to}"), all);
}

/// Checks that a TCP transfer arrives unchanged. Ping alone does not detect partial checksums.
fn transfer(lab: &Lab, from: &str, to: &str, address: &str) {
    const SIZE: u32 = 3_000_000;
    let server = "import socket,hashlib\n\
         s=socket.create_server(('::',5001),family=socket.AF_INET6,dualstack_ipv6=True);s.settimeout(20)\n\
         c=s.accept()[0];c.settimeout(20);h=hashlib.sha256();n=0\n\
         while True:\n b=c.recv(65536)\n if not b: break\n h.update(b);n+=len(b)\n\
         print(n,h.hexdigest())";
    let client = format!(
        "import socket,hashlib,time,random\n\
         d=random.Random(7).randbytes({SIZE})\n\
         for _ in range(100):\n\
         \x20try: c=socket.create_connection(('{address}',5001),timeout=10);break\n\
         \x20except OSError: time.sleep(.1)\n\
         c.sendall(d);c.close();print(len(d),hashlib.sha256(d).hexdigest())"
    );
    std::thread::scope(|scope| {
        let received = scope.spawn(|| lab.exec(to, &format!("python3 -c \"{server}\"")));
        let sent = lab.exec(from, &format!("python3 -c \"{client}\""));
        let received = received.join().unwrap();
        assert!(sent.status.success() && received.status.success(), "{} {}", both(&sent), both(&received));
        assert_eq!(both(&sent), both(&received), "{from} to {to}");
    });
}

/// Returns the number of packets that a SID of a switch has processed.
fn sid_packets(lab: &Lab, node: &str, sid: &str) -> u64 {
    let output = lab.exec(node, "srv6d show sids --json");
    let rows: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", both(&output)));
    let row =
        rows.as_array().unwrap().iter().find(|row| row["sid"] == sid).unwrap_or_else(|| panic!("{node} has no {sid}"));
    row["packets"].as_u64().unwrap()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_3x3_fabric_forwards_and_survives_a_restart_without_interfaces() {
    let Some(mut lab) = deploy("fabric3x3.clab.yml") else { return };
    for node in lab.nodes() {
        lab.wait_healthy(&node);
    }
    for (from, to) in [("host00", "fcbb:0:800:1::2"), ("host01", "fcbb:0:800:2::2"), ("host02", "10.200.0.2")] {
        ping(&lab, from, to);
    }
    transfer(&lab, "host00", "host01", "fcbb:0:800:1::2");
    transfer(&lab, "host00", "host01", "10.200.1.2");
    // Traffic from host00 to host01 uses spine00 in IPv6 and spine02 in IPv4. No other traffic of this test uses these
    // spines.
    assert!(sid_packets(&lab, "spine00", "fcbb:0:1000::/48") > 100);
    assert!(sid_packets(&lab, "spine02", "fcbb:0:1002::/48") > 100);
    for node in lab.switches() {
        let names = both(&lab.exec(&node, "ip -br link"));
        assert!(names.contains("Ethernet0") && names.contains("eth0"), "{node}: {names}");
        assert!(lab.exec(&node, "ip link show eth1").status.success(), "{node}: eth1 is still a name of Ethernet0");
    }

    let page = fs::read_to_string(topology::folder().join("README.md")).unwrap();
    let entry = page.split("<< 'END'\n").nth(1).unwrap().split("END\n").next().unwrap();
    let impaired = lab.exec("leaf00", &format!("cat >> /run/srv6d/srv6d.toml << 'END' && srv6d reload\n{entry}END\n"));
    assert!(impaired.status.success(), "{}", both(&impaired));
    let ports: serde_json::Value =
        serde_json::from_slice(&lab.exec("leaf00", "srv6d show ports --json").stdout).unwrap();
    let port = ports.as_array().unwrap().iter().find(|row| row["name"] == "Ethernet0").unwrap();
    assert_eq!((&port["emulated"]["rate"], &port["role"]), (&10_000_000.into(), &"fabric".into()), "{port}");
    ping(&lab, "host00", "fcbb:0:800:1::2");

    let sids = both(&lab.exec("leaf00", "show srv6 static-sids"));
    assert!(sids.contains("fcbb:0:1004:fe06::/64") && sids.contains("uDT6"), "{sids}");
    assert!(lab.exec("leaf00", "vtysh -c 'show version'").status.success(), "labs wait for this");

    // A bound file is a mount of its own, so it is written in place; a read-only one stays unchanged.
    let bound = "cp /etc/sonic/config_db.json /tmp/bound && mount --bind /tmp/bound /etc/sonic/config_db.json";
    let saved =
        lab.exec("leaf00", &format!("{bound} && echo > /tmp/bound && config save -y && grep -q PORT /tmp/bound"));
    assert!(saved.status.success(), "{}", both(&saved));
    let refused = lab.exec("leaf00", "mount -o remount,bind,ro /etc/sonic/config_db.json && config save -y");
    assert!(!refused.status.success() && both(&refused).contains("it is read-only"), "{}", both(&refused));

    lab.kill("leaf00");
    lab.start_again("leaf00");
    assert!(!lab.is_healthy("leaf00"), "ready without a single port");
    for link in lab.links_of("leaf00") {
        lab.connect(&link);
    }
    lab.run_exec("host00");
    lab.wait_healthy("leaf00");
    ping(&lab, "host00", "fcbb:0:800:1::2");
    transfer(&lab, "host00", "host01", "fcbb:0:800:1::2");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn a_plane_of_the_ai_fabric_forwards_by_local_usids_alone() {
    let Some(lab) = deploy("ai-plane.clab.yml") else { return };
    for node in lab.nodes() {
        lab.wait_healthy(&node);
    }
    for (node, sid) in [("p0-leaf00", "fd50:0:"), ("p0-spine00", "fd50:0:e001::/48")] {
        let shown = both(&lab.exec(node, "show srv6 stats"));
        assert!(shown.contains(sid), "{node}: {shown}");
    }
    ping(&lab, "green0", "2001:db8:91::2");
    transfer(&lab, "green0", "green1", "2001:db8:91::2");
    ping(&lab, "yellow0", "2001:db8:71::1");
    transfer(&lab, "yellow0", "yellow1", "2001:db8:71::1");
    assert!(sid_packets(&lab, "p0-spine00", "fd50:0:e001::/48") > 100);
    assert!(sid_packets(&lab, "p0-leaf01", "fd50:0:d000::/48") > 50);
    assert!(sid_packets(&lab, "p0-leaf01", "fd50:0:e009::/48") > 50);
}
