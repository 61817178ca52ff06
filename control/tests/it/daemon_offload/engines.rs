//! Tests of `offload = "auto"`, and of ports that change between the XDP program and the worker under traffic.

use std::fs;
use std::process::Child;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::captures::Running;
use super::support::rig::{Rig, end, number, report, text, wait_for};
use super::{config, hosts_are_known, neighbor_is_known, offload, offloaded_of_a_few, rig};

/// How often the engine changes under traffic.
const ROUNDS: usize = 18;

pub(super) fn auto() -> String {
    config().replace("offload = \"xdp\"", "offload = \"auto\"")
}

#[test]
#[ignore = "needs root"]
fn auto_chooses_by_what_the_port_can_do_and_says_so() {
    const XDP: &str = "the XDP program, as a worker's socket would copy each packet";
    let mut rig = rig();
    rig.ready(&auto());
    neighbor_is_known(&rig);
    assert_eq!(offload(&rig, "eth1"), (true, XDP.to_owned()));
    let shown = text(&rig.ask("node", "show ports").stdout);
    assert!(shown.contains(&format!("eth1: offload: {XDP}\n")), "{shown}");
    assert!(offloaded_of_a_few(&rig).0 >= 20);

    // The reason begins with the same words if some packets stay with the workers.
    super::napi(&rig, "b", "off");
    let why = wait_for("reason", || Some(offload(&rig, "eth1").1).filter(|why| why != XDP));
    assert!(why.starts_with(&format!("{XDP}; what leaves through eth2 goes through the worker")), "{why}");
    super::napi(&rig, "b", "on");
    wait_for("end of the reason", || (offload(&rig, "eth1").1 == XDP).then_some(()));

    rig.reload(&auto().replace("name = \"eth1\"", "name = \"eth1\"\nchecksum = \"fill\""));
    the_worker_is_chosen(&rig, "checksums of what comes in are for the worker to write");
}

#[test]
#[ignore = "needs root"]
fn auto_is_the_worker_on_a_port_in_generic_mode() {
    let mut rig = rig();
    rig.ready(&auto().replace("name = \"eth1\"", "name = \"eth1\"\nmode = \"generic\""));
    hosts_are_known(&rig);
    the_worker_is_chosen(&rig, "the XDP program runs in generic mode");
}

fn the_worker_is_chosen(rig: &Rig, why: &str) {
    assert_eq!(offload(rig, "eth1"), (false, format!("the worker, as {why}")));
    let shown = text(&rig.ask("node", "show ports").stdout);
    let row = shown.lines().find(|line| line.starts_with("eth1 ")).unwrap();
    assert!(row.split_whitespace().any(|word| word == "worker"), "{shown}");
    // Packets of the other port may be offloaded.
    let before = rig.port_counter("eth1", "offloaded");
    wait_for("answers", || offloaded_of_a_few(rig).1.then_some(()));
    assert_eq!(rig.port_counter("eth1", "offloaded"), before);
    rig.check_balance();
}

/// Has the worker forward for a while: because of `offload = "off"`, and because of a generation in which the port that packets
/// leave through is emulated. A capture changes nothing. Both engines forward some packets of whatever passes the router.
fn change_engines(rig: &Rig, sender: &mut Child) {
    let forwarded = |rig: &Rig| {
        let offloaded = rig.counter("offloaded");
        [offloaded, rig.counter("rx") - offloaded]
    };
    let forwards = |engine: usize| {
        let before = forwarded(rig);
        wait_for("packets of the engine", || (forwarded(rig).get(engine) > before.get(engine)).then_some(()));
    };
    let (auto, off) = (auto(), auto().replace("\"auto\"", "\"off\""));
    let emulated = auto.replace("name = \"eth2\"\n", "name = \"eth2\"\nemulate = { rate = \"1Gbit\" }\n");
    for round in 0..ROUNDS {
        forwards(0);
        if round % 3 == 2 {
            let capture = Running::start(rig, "eth1", &["--direction", "in"]);
            forwards(0);
            capture.end();
        } else {
            rig.reload(if round % 3 == 0 { &off } else { &emulated });
            forwards(1);
            rig.reload(&auto);
        }
    }
    forwards(0);
    end(sender);
}

#[test]
#[ignore = "needs root"]
fn datagrams_are_neither_lost_nor_overtaken_when_the_engine_changes() {
    let mut rig = rig();
    rig.ready(&auto());
    neighbor_is_known(&rig);
    let receiver = rig.receiver("b", "udp", "[2001:db8:b::2]:7084");
    let mut sender = rig.stream("a", "[2001:db8:b::2]:7084", 4000);
    change_engines(&rig, &mut sender);
    let report = report(&receiver.wait_with_output().unwrap().stdout);
    assert!(number(&report, "sent") > 100, "{report}");
    assert_eq!(["lost", "duplicated"].map(|what| number(&report, what)), [0; 2], "{report}");
    // When a worker takes over, the receiving veth may have frames of both in one poll. It puts off those of an XDP program then,
    // 16 at most.
    assert!(number(&report, "reordered") <= 16 * ROUNDS as u64, "{report}");
    rig.check_balance();
}

#[test]
#[ignore = "needs root"]
fn a_tcp_connection_needs_no_retransmission_when_the_engine_changes() {
    let mut rig = rig();
    rig.ready(&auto());
    neighbor_is_known(&rig);
    // With a window of one or two packets the transfer takes long, and no queue overflows because of it.
    rig.inside("b", "sysctl -qw net.ipv4.tcp_rmem='4096 8192 8192'");
    // A busy machine must not look like a loss: nothing is sent again only because an answer is late.
    rig.inside("a", "sysctl -qw net.ipv4.tcp_early_retrans=0");
    rig.inside(
        "a",
        "ip -6 route replace 2001:db8:b::2 encap seg6 mode encap.red segs fcbb:0:1:2:: via 2001:db8:a::1 dev wire rto_min 5s",
    );
    let receiver = rig.receiver("b", "tcp", "[2001:db8:b::2]:7085");
    let mut sender = rig.traffic("a", "tcp-send [2001:db8:b::2]:7085 100000000000 7");
    wait_for("connection", || {
        (!rig.output("b", "ss -Htn state established sport = :7085").stdout.is_empty()).then_some(())
    });
    // The handshake has a timeout of its own.
    let retransmitted = || rig.inside("a", "nstat -asz TcpRetransSegs");
    let before = retransmitted();
    change_engines(&rig, &mut sender);
    let sent = report(&sender.wait_with_output().unwrap().stdout);
    let arrived = report(&receiver.wait_with_output().unwrap().stdout);
    assert_eq!(sent.get("sha256").unwrap(), arrived.get("sha256").unwrap());
    assert_eq!(retransmitted(), before);
    rig.check_balance();
}

/// The worker of the router, which does nothing until this is dropped. The other threads of the process run on.
struct Held(Pid);

impl Held {
    fn worker(rig: &Rig, daemon: usize) -> Self {
        let is_worker = |task: &fs::DirEntry| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "srv6d-worker-0\n")
        };
        let mut tasks = fs::read_dir(format!("/proc/{}/task", rig.pid(daemon))).unwrap().map(Result::unwrap);
        let worker = tasks.find(is_worker).unwrap().file_name();
        let worker = Pid::from_raw(worker.to_str().unwrap().parse().unwrap());
        ptrace::seize(worker, ptrace::Options::empty()).unwrap();
        let held = Self(worker);
        ptrace::interrupt(worker).unwrap();
        waitpid(worker, Some(WaitPidFlag::__WALL)).unwrap();
        held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = ptrace::detach(self.0, None); // the process may have ended
    }
}

#[test]
#[ignore = "needs root"]
fn a_worker_that_does_not_finish_is_overtaken_in_the_end_and_show_ports_says_so() {
    const OVERTAKEN: &str = "time(s) from a worker that did not finish, whose packets may have been overtaken";
    let mut rig = rig();
    let daemon = rig.ready(&auto());
    neighbor_is_known(&rig);
    rig.reload(&auto().replace("\"auto\"", "\"off\""));
    wait_for("answers of the worker", || offloaded_of_a_few(&rig).1.then_some(()));
    let (rx, offloaded) = (rig.counter("rx"), rig.counter("offloaded"));
    let held = Held::worker(&rig, daemon);
    // These wait in the ring of the port's socket.
    assert!(!rig.output("a", "ping -6 -q -c 3 -i 0.01 -W 1 2001:db8:b::2").status.success());
    assert_eq!(rig.counter("offloaded"), offloaded);
    rig.reload(&auto());
    for port in ["eth1", "eth2"] {
        wait_for("end of the patience", || offload(&rig, port).1.ends_with(OVERTAKEN).then_some(()));
    }
    let shown = text(&rig.ask("node", "show ports").stdout);
    let told = shown.lines().filter(|line| line.starts_with("eth") && line.ends_with(OVERTAKEN)).count();
    assert_eq!(told, 2, "{shown}");
    // The program forwards past the worker, although the answers wait for it: they are ICMPv6.
    let (taken, answered) = offloaded_of_a_few(&rig);
    assert!(taken >= 20 && !answered, "{taken} of 20 were offloaded");
    drop(held);
    // What has waited is not lost.
    wait_for("packets of the worker", || (rig.counter("rx") >= rx + taken + 3).then_some(()));
    assert!(wait_for("answers", || Some(offloaded_of_a_few(&rig)).filter(|done| done.1)).0 >= 20);
    rig.check_balance();
}
