//! Tests of captures on ports whose XDP program forwards: they show every packet, and nothing else becomes of any.

use std::fs::{self, File};
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use srv6d_pcap::{Packet, read};

use super::support::rig::{Rig, SRV6D, text, wait_for};
use super::{config, neighbor_is_known, offload, offloaded_of_a_few, rig, send};

/// Port of the stream's receiver.
const PORT: [u8; 2] = 7080_u16.to_be_bytes();
/// Where in a frame of the stream the next header of the inner IPv6 header is. Behind it: the destination port of UDP, and the
/// number of the datagram.
const INNER: usize = 14 + 40 + 6;
const TO: usize = 14 + 80 + 2;
const NUMBER: usize = 14 + 80 + 8;

/// A capture that runs.
pub(super) struct Running {
    child: Child,
    file: PathBuf,
}

impl Running {
    /// Starts a capture of a port, of both directions unless `options` name one.
    pub(super) fn start(rig: &Rig, port: &str, options: &[&str]) -> Self {
        let (socket, file) = (rig.socket_of("node"), rig.file(&format!("{port}.pcapng")));
        let _ = fs::remove_file(&file);
        let mut command = Command::new(SRV6D);
        command.arg("--socket").arg(socket).args(["capture", port]).args(options).arg("--write").arg(&file);
        let child = command.spawn().unwrap();
        wait_for("header of the capture", || fs::metadata(&file).is_ok_and(|file| file.len() >= 24).then_some(()));
        Self { child, file }
    }

    pub(super) fn end(mut self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).unwrap();
        self.child.wait().unwrap();
    }
}

/// Returns the numbers of the stream's datagrams in a capture, in the order of the file. What is written at this moment may be
/// there in part.
fn numbers(file: &Path) -> Vec<u64> {
    let mut numbers = Vec::new();
    let _until_now = read(BufReader::new(File::open(file).unwrap()), "", |Packet { bytes: frame, .. }| {
        if frame.get(INNER) == Some(&17) && frame.get(TO..TO + 2) == Some(&PORT) {
            numbers.push(u64::from_be_bytes(*frame.get(NUMBER..).unwrap().first_chunk().unwrap()));
        }
        ControlFlow::Continue(())
    });
    numbers.retain(|&number| number != u64::MAX); // the end of the stream is repeated
    numbers
}

#[test]
#[ignore = "needs root"]
fn a_capture_has_each_packet_once_and_in_order_while_the_program_forwards_on() {
    let mut rig = rig();
    rig.ready(&config());
    neighbor_is_known(&rig);
    let captures = [Running::start(&rig, "eth1", &[]), Running::start(&rig, "eth2", &["--direction", "out"])];
    let before = [rig.counter("offloaded"), rig.counter("rx")];
    let (sent, wrong) = send(&rig);
    let [offloaded, received] = ["offloaded", "rx"].map(|counter| rig.counter(counter));
    assert_eq!(wrong, 0);
    assert!(offloaded - before[0] >= sent, "{} of {sent} were the program's", offloaded - before[0]);
    assert!(received - before[1] >= sent);
    assert_eq!(offload(&rig, "eth1"), (true, String::new()), "nothing changes");
    for capture in captures {
        wait_for("packets in the file", || (numbers(&capture.file).len() as u64 >= sent).then_some(()));
        let file = capture.file.clone();
        capture.end();
        assert_eq!(numbers(&file), (0..sent).collect::<Vec<u64>>(), "{}", file.display());
    }
    let (offloaded, all_arrived) = offloaded_of_a_few(&rig);
    assert!(offloaded > 0 && all_arrived, "{offloaded}");
    rig.check_balance();
}

/// A packet that the program leaves to the worker is shown by the worker, once.
#[test]
#[ignore = "needs root"]
fn a_capture_has_what_the_worker_forwards_once_too() {
    let mut rig = rig();
    rig.ready(&config().replace("offload = \"xdp\"", "offload = \"auto\""));
    neighbor_is_known(&rig);
    super::napi(&rig, "b", "off");
    wait_for("reason", || offload(&rig, "eth1").1.contains("goes through the worker").then_some(()));
    let capture = Running::start(&rig, "eth1", &["--direction", "in"]);
    let before = rig.counter("offloaded");
    let (sent, wrong) = send(&rig);
    assert_eq!(wrong, 0);
    assert!(rig.counter("offloaded") - before < sent, "answers may be the program's");
    wait_for("packets in the file", || (numbers(&capture.file).len() as u64 >= sent).then_some(()));
    assert_eq!(numbers(&capture.file), (0..sent).collect::<Vec<u64>>());
    capture.end();
    let shown = text(&rig.ask("node", "show ports").stdout);
    let says = |line: &str| line.starts_with("eth") && line.contains("a capture is open");
    assert!(!shown.lines().any(says), "{shown}");
}
