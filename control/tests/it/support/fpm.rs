//! An FPM client that is played by the test, inside the router's namespace.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::Value;
use srv6d_fpm::{Event, FrameReader, RouteKey, decode, messages};

use super::rig::{Rig, wait_for};

/// A connection from inside the router's namespace.
pub struct Client {
    child: Child,
    input: Option<ChildStdin>,
    pub answers: Receiver<RouteKey>,
}

impl Client {
    pub fn connect(rig: &Rig) -> Self {
        Self::connect_as(rig, "root")
    }

    /// Connects as another user. The relay ends when its input ends.
    pub fn connect_as(rig: &Rig, user: &str) -> Self {
        let relay = "exec 3<>/dev/tcp/127.0.0.1/2620 && { cat <&3 & cat >&3; kill $!; }";
        let mut child = Command::new("ip")
            .args([
                "netns",
                "exec",
                &rig.ns("router"),
                "setpriv",
                "--reuid",
                user,
                "--clear-groups",
                "bash",
                "-c",
                relay,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, mut output) = (child.stdin.take(), child.stdout.take().unwrap());
        let (sender, answers) = channel();
        thread::spawn(move || {
            let (mut frames, mut buffer) = (FrameReader::default(), [0; 4096]);
            while let Ok(read @ 1..) = output.read(&mut buffer) {
                frames.push(&buffer[..read]);
                while let Some(payload) = frames.next_frame().unwrap() {
                    for said in messages(payload) {
                        let Event::Route(key, _) = decode(said.unwrap()).unwrap().event else { panic!("no route") };
                        let _ = sender.send(key);
                    }
                }
            }
        });
        Self { child, input, answers }
    }

    /// Writes bytes; errors are ignored, because the other end may have closed the connection.
    pub fn say(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        let _ = input.write_all(bytes).and_then(|()| input.flush());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // At the end of its input the relay closes both directions. If it were killed, a child would keep the
        // connection open.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

pub fn is_listening(rig: &Rig) {
    wait_for("the listening port", || {
        (!rig.output("router", "ss -Hltn sport = :2620").stdout.is_empty()).then_some(())
    });
}

/// Returns the row of FPM in `show source`.
pub fn fpm(rig: &Rig) -> Value {
    let rows = rig.show("source").as_array().unwrap().clone();
    rows.into_iter().find(|row| row["source"] == "fpm").unwrap()
}
