//! Tests of the receivers of `srv6d lab traffic` that are stopped in the middle of a stream, as in a paused container.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test may panic")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A receiver and its output; dropping it ends the process.
struct Receiver {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Receiver {
    fn start(word: &str) -> (Self, SocketAddr) {
        let mut process = Command::new(env!("CARGO_BIN_EXE_srv6d"))
            .args(["lab", "traffic", word, "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let listening: Value = serde_json::from_str(&line).unwrap();
        let at = listening["listening"].as_str().unwrap().parse().unwrap();
        (Self { process, said }, at)
    }

    /// Stops the process while it waits for input, and continues it.
    fn freeze_and_thaw(&self) {
        let receives = format!("{} ", nix::libc::SYS_recvfrom);
        self.until("it waits in recvfrom", "syscall", |call| call.starts_with(&receives));
        let pid = Pid::from_raw(self.process.id().cast_signed());
        kill(pid, Signal::SIGSTOP).unwrap();
        self.until("it is stopped", "stat", |stat| stat.contains(") T "));
        kill(pid, Signal::SIGCONT).unwrap();
    }

    /// Waits until a file of proc(5) shows a state.
    fn until(&self, what: &str, file: &str, is_so: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + Duration::from_mins(1);
        while !is_so(&std::fs::read_to_string(format!("/proc/{}/{file}", self.process.id())).unwrap()) {
            assert!(Instant::now() < deadline, "in a minute: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn report(mut self) -> Value {
        let mut report = String::new();
        self.said.read_to_string(&mut report).unwrap();
        assert!(self.process.wait().unwrap().success(), "{report}");
        serde_json::from_str(&report).unwrap()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn datagram(sequence: u64, total: u64) -> [u8; 16] {
    let [sequence, total] = [sequence, total].map(u64::to_be_bytes);
    [sequence, total].concat().try_into().unwrap()
}

#[test]
fn a_receiver_of_datagrams_that_was_frozen_goes_on() {
    let (receiver, to) = Receiver::start("udp-receive");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    // The reply confirms that the datagram has arrived.
    let send = |sequence, total| {
        socket.send_to(&datagram(sequence, total), to).unwrap();
        socket.recv(&mut [0; 16]).unwrap();
    };
    send(0, 1);
    receiver.freeze_and_thaw();
    send(1, 1);
    send(u64::MAX, 2);
    let report = receiver.report();
    assert_eq!((&report["sent"], &report["received"]), (&2.into(), &2.into()), "{report}");
}

#[test]
fn a_receiver_of_a_connection_that_was_frozen_goes_on() {
    let (receiver, to) = Receiver::start("tcp-receive");
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(b"before").unwrap();
    receiver.freeze_and_thaw();
    stream.write_all(b"after").unwrap();
    drop(stream);
    let report = receiver.report();
    assert_eq!(report["bytes"], 11, "{report}");
}
