//! Tests of `offload = "auto"` towards a neighbour whose own srv6d starts and ends.

use std::fs;
use std::process::{Child, Command, Stdio};

use super::support::rig::{Rig, SRV6D, end, must, report, run, wait_for};
use super::{hosts_are_known, judge, napi, rig};

/// An srv6d that leaves all packets of `b` to its kernel.
const FAR: &str = "[node]\nsource = \"2001:db8:b::2\"\n[workers]\nframes = 2048\nring = 512\n[api]\nmetrics = \"off\"\n\
                   [[port]]\nname = \"wire\"\nrole = \"fabric\"\n";

fn start(rig: &Rig) -> Child {
    let (file, socket) = (rig.file("far.toml"), rig.socket_of("far"));
    fs::write(&file, FAR).unwrap();
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &rig.ns("b"), SRV6D, "run", "--config"]).arg(file).env("SRV6D_SOCKET", &socket);
    let daemon = command.stdout(Stdio::null()).stderr(fs::File::create(rig.file("far.log")).unwrap()).spawn().unwrap();
    wait_for("answer of the other srv6d", || {
        let asked = run(&format!("{SRV6D} --socket {} show ports", socket.display()));
        asked.status.success().then_some(())
    });
    daemon
}

/// Without an own srv6d, `b` takes what an XDP program sends only with NAPI, which a veth then has by its offload alone.
#[test]
#[ignore = "needs root"]
fn nothing_is_lost_when_the_srv6d_at_the_other_end_starts_and_ends() {
    let mut rig = rig();
    napi(&rig, "b", "off");
    rig.ready(&super::engines::auto());
    hosts_are_known(&rig);
    let forwards = |rig: &Rig| {
        let before = rig.counter("offloaded");
        wait_for("packets of the program", || (rig.counter("offloaded") > before + 100).then_some(()));
    };
    let receiver = rig.receiver("b", "udp", "[2001:db8:b::2]:7086");
    let mut sender = rig.stream("a", "[2001:db8:b::2]:7086", 4000);
    for signal in ["TERM", "KILL", "TERM", "KILL"] {
        let mut far = start(&rig);
        forwards(&rig);
        must(&format!("kill -{signal} {}", far.id()));
        wait_for("end of the other srv6d", || far.try_wait().unwrap());
        forwards(&rig);
    }
    end(&mut sender);
    let (sent, wrong) = judge_lost(&report(&receiver.wait_with_output().unwrap().stdout));
    assert!(sent > 1000 && wrong == 0, "{wrong} of {sent}");
    rig.check_balance();
}

/// Returns how many datagrams were sent, and how many of them were lost or duplicated. A worker's may be overtaken when the
/// program takes over.
fn judge_lost(report: &serde_json::Value) -> (u64, u64) {
    let (sent, wrong) = judge(report);
    (sent, wrong - super::support::rig::number(report, "reordered"))
}
