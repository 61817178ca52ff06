//! `tcpdump` on a port of the switch: shows the packets of srv6d's workers and those that the kernel sees, through the
//! real tcpdump.
//!
//! ```text
//! srv6d's workers ─┐
//!                  ├─► one pcapng stream ─► tcpdump -r - (filter, -w, -c, -v, ...: as given)
//! tcpdump -i PORT ─┘
//! ```
//!
//! Scripts of labs call tcpdump; on the kernel alone it would show no transit packet at all.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use srv6d_api::Direction;
use srv6d_api::client::Capturing;
use srv6d_command::capture::{self, Kernel, finished, merge};
use srv6d_command::{Failure, stop_flag};

/// Options of tcpdump that are followed by a value.
const WITH_VALUE: &str = "BcCEFGijmMQrsTVwWyzZ";
/// Options with which tcpdump does not capture on a port now.
const ELSEWHERE: &str = "rVDLhJ";

/// Time between two looks at the processes.
const LOOK: Duration = Duration::from_millis(50);
/// Longest time for writing the last packets.
const PATIENCE: Duration = Duration::from_secs(5);

/// Captures on a port of the switch. All other calls are passed to the real tcpdump.
pub fn tcpdump(arguments: &[String], socket: &Path) -> Result<(), Failure> {
    let program = real().ok_or_else(|| {
        Failure::failed("error: tcpdump is not installed\nfix: install it, or use srv6d capture PORT --write FILE")
    })?;
    let asked = Asked::read(arguments);
    let source = asked.port.clone().and_then(|port| capture::open(&[port], asked.direction, socket).ok());
    let Some(source) = source else {
        let why = Command::new(&program).args(arguments).exec();
        return Err(Failure::failed(format!("error: cannot run {}: {why}", program.display())));
    };
    let status = watch(&program, source, &asked)?;
    std::process::exit(status);
}

/// The parsed arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    /// Port, from `-i`. `None`: no port is named, or it is not a capture.
    port: Option<String>,
    /// Direction, from `-Q`.
    direction: Option<Direction>,
    /// All other arguments.
    rest: Vec<String>,
}

impl Asked {
    fn read(arguments: &[String]) -> Self {
        let mut asked = Self::default();
        let mut elsewhere = false;
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            if let Some(long) = argument.strip_prefix("--") {
                match long.split_once('=') {
                    Some(("interface", port)) => asked.port = Some(port.to_owned()),
                    None if long == "interface" => asked.port = arguments.next().cloned(),
                    _ => {
                        elsewhere |= long.starts_with("list-") || matches!(long, "help" | "version");
                        asked.rest.push(argument.clone());
                    }
                }
            } else if let Some(letters) = argument.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                elsewhere |= asked.letters(letters, &mut arguments);
            } else {
                asked.rest.push(argument.clone());
            }
        }
        if elsewhere {
            asked.port = None;
        }
        asked
    }

    /// Handles an argument such as `-nni Ethernet0`: several letters, the last of which may have a value in the same
    /// argument or the next one.
    fn letters<'a>(&mut self, letters: &str, more: &mut impl Iterator<Item = &'a String>) -> bool {
        let mut kept = String::from("-");
        for (place, letter) in letters.char_indices() {
            if ELSEWHERE.contains(letter) {
                self.rest.push(format!("-{letters}"));
                return true;
            }
            if !WITH_VALUE.contains(letter) {
                kept.push(letter);
                continue;
            }
            let behind = letters.get(place + letter.len_utf8()..).filter(|value| !value.is_empty());
            let value = behind.map(str::to_owned).or_else(|| more.next().cloned());
            match (letter, value) {
                ('i', value) => self.port = value,
                ('Q', value) => self.direction = value.as_deref().and_then(direction),
                (_, value) => {
                    self.rest.push(format!("-{letter}"));
                    self.rest.extend(value);
                }
            }
            break;
        }
        if kept.len() > 1 {
            self.rest.insert(0, kept);
        }
        false
    }
}

fn direction(word: &str) -> Option<Direction> {
    match word {
        "in" => Some(Direction::In),
        "out" => Some(Direction::Out),
        _ => None,
    }
}

/// Returns the first tcpdump of the search path that is not a link to this program.
fn real() -> Option<PathBuf> {
    let own = std::fs::canonicalize("/proc/self/exe").ok();
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into());
    let found = std::env::split_paths(&path).map(|directory| directory.join("tcpdump"));
    found.filter(|program| program.is_file()).find(|program| std::fs::canonicalize(program).ok() != own)
}

/// Runs until the viewer ends or a signal comes. Returns the viewer's exit status.
fn watch(program: &Path, source: Capturing, asked: &Asked) -> Result<i32, Failure> {
    let stop = stop_flag(&[SIGTERM, SIGINT, SIGHUP])?;
    let device = source.devices.first().cloned().unwrap_or_default();
    let kernel = Kernel::see(program, &device, asked.direction)?;
    let mut viewer = Command::new(program)
        .args(["-r", "-"])
        .args(&asked.rest)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|why| Failure::failed(format!("error: cannot run {}: {why}", program.display())))?;
    let Some(to) = viewer.stdin.take() else { return Ok(1) };
    eprintln!("tcpdump: listening on {device}, what srv6d takes and what the kernel sees");
    let (packets, connection) = (source.packets, source.connection);
    let merging = std::thread::spawn(move || finished(merge(packets, kernel, to)));
    let status = wait(&mut viewer, &stop, &connection)?;
    capture::end(&connection);
    if let Ok(merged) = merging.join() {
        merged?;
    }
    Ok(status)
}

fn wait(viewer: &mut Child, stop: &AtomicBool, connection: &UnixStream) -> Result<i32, Failure> {
    let mut left = PATIENCE;
    loop {
        let ended = viewer.try_wait().map_err(|why| Failure::failed(format!("error: cannot wait: {why}")))?;
        if let Some(status) = ended {
            return Ok(status.code().unwrap_or(1));
        }
        if stop.load(Ordering::Relaxed) {
            // The stream ends after the last packet, and the viewer ends with it.
            capture::end(connection);
            left = left.saturating_sub(LOOK);
            if left.is_zero() {
                let _ = viewer.kill(); // it does not end by itself
            }
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Asked {
        Asked::read(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_port_is_found_and_the_rest_is_left_as_it_is() {
        for line in [
            "-nni Ethernet0 -c 5 ip6 proto 41",
            "-nn -iEthernet0 -c5 ip6 proto 41",
            "--interface=Ethernet0 -nn -c 5 ip6 proto 41",
        ] {
            let asked = read(line);
            assert_eq!((asked.port.as_deref(), asked.direction), (Some("Ethernet0"), None), "{line}");
            assert_eq!(asked.rest, ["-nn", "-c", "5", "ip6", "proto", "41"], "{line}");
        }
        let asked = read("-Q in -i eth1 -w /tmp/x.pcap -U icmp6");
        assert_eq!((asked.port.as_deref(), asked.direction), (Some("eth1"), Some(Direction::In)));
        assert_eq!(asked.rest, ["-U", "-w", "/tmp/x.pcap", "icmp6"]);
    }

    #[test]
    fn what_is_no_capture_of_a_port_is_left_to_tcpdump() {
        for line in ["-r x.pcap", "-D", "--version", "-nnr x.pcap -i Ethernet0", "icmp6", "-h"] {
            assert_eq!(read(line).port, None, "{line}");
        }
    }
}
