//! `srv6d capture`: writes the packets of ports as pcapng.

use std::cell::Cell;
use std::io::{self, BufReader, ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use srv6d_pcap::{Collector, Output, Wanted};

use crate::{Failure, stop_flag};
use srv6d_api::client::{self, Capturing};
use srv6d_api::{Direction, Refusal};

/// Longest wait for the last packets of a daemon that was asked to end its stream.
const LAST: Duration = Duration::from_secs(1);

/// Arguments of `srv6d capture`.
#[derive(Debug, Args)]
pub struct CaptureArguments {
    /// Names of ports or of their network devices [default: all ports]
    #[arg(value_name = "PORT")]
    ports: Vec<String>,
    #[command(flatten)]
    wanted: Wanted,
    /// Capture only received or only sent packets
    #[arg(long, value_enum)]
    direction: Option<Direction>,
    /// Capture also the packets that the kernel sees on the ports (needs tcpdump)
    #[arg(long)]
    kernel: bool,
}

/// Captures until a signal ends it, there are enough packets, or the reader of the output has gone.
pub fn capture(arguments: &CaptureArguments, socket: &Path) -> Result<(), Failure> {
    let wanted = &arguments.wanted;
    let output = Output::open(wanted).map_err(|why| {
        let file = wanted.write.as_deref().unwrap_or(Path::new("standard output"));
        Failure::failed(format!("error: cannot write {}: {why}", file.display()))
    })?;
    let Some(mut output) = output else {
        let what = "error: a capture is not text, so it is not written to a terminal";
        let fix = format!("srv6d capture {} | tcpdump -n -r -, or add --write FILE", arguments.ports.join(" "));
        return Err(Failure::invalid(format!("{what}\nfix: {fix}")));
    };
    let stop = stop_flag(&[SIGINT, SIGTERM])?;
    let Capturing { packets, devices, connection } = open(&arguments.ports, arguments.direction, socket)?;
    let seen_by_kernel = devices.iter().filter(|_| arguments.kernel);
    let kernel = seen_by_kernel.map(|device| Kernel::see(&tcpdump(), device, arguments.direction));
    let kernel = kernel.collect::<Result<Vec<Kernel>, Failure>>()?;
    let announced = devices.iter().try_for_each(|device| output.interface(device));
    let asked = Cell::new(None);
    let is_stopped = || is_over(&stop, &connection, &asked);
    finished(announced.and_then(|()| merge_wanted(packets, kernel, wanted, output, is_stopped)))
}

/// Returns the program that captures the packets that the kernel sees.
fn tcpdump() -> PathBuf {
    PathBuf::from("tcpdump")
}

/// Asks the daemon for the packets of ports, or of all ports if none is named.
pub fn open(ports: &[String], direction: Option<Direction>, socket: &Path) -> Result<Capturing, Failure> {
    let refused = |refusal: Refusal| Failure::failed(format!("error: {}", refusal.errors.join("\n")));
    client::capture(socket, ports, direction)?.map_err(refused)
}

/// Asks a daemon to end its stream behind the packets that it has captured.
pub fn end(connection: &UnixStream) {
    let _ = connection.shutdown(Shutdown::Write); // it may have ended already
}

/// Returns whether the wait for the end of a stream is over, after a signal has asked for it. The first call after the signal
/// tells the daemon.
fn is_over(stop: &AtomicBool, connection: &UnixStream, asked: &Cell<Option<Instant>>) -> bool {
    if !stop.load(Ordering::Relaxed) {
        return false;
    }
    let since = asked.get().unwrap_or_else(|| {
        end(connection);
        Instant::now()
    });
    asked.set(Some(since));
    since.elapsed() > LAST
}

/// A tcpdump that sees what the kernel sees of a device. It is ended when this value is dropped.
#[derive(Debug)]
pub struct Kernel {
    device: String,
    child: Child,
}

impl Kernel {
    /// Starts tcpdump on a device.
    pub fn see(tcpdump: &Path, device: &str, direction: Option<Direction>) -> Result<Self, Failure> {
        let child = see_kernel(tcpdump, device, direction)?;
        Ok(Self { device: device.to_owned(), child })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}

/// Starts tcpdump on a device. Its output is a pcap stream of the packets that the kernel sees.
fn see_kernel(tcpdump: &Path, device: &str, direction: Option<Direction>) -> Result<Child, Failure> {
    let mut command = Command::new(tcpdump);
    command.args(["-i", device, "-U", "--time-stamp-precision=nano", "-w", "-"]);
    match direction {
        Some(Direction::In) => drop(command.args(["-Q", "in"])),
        Some(Direction::Out) => drop(command.args(["-Q", "out"])),
        None => {}
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    child.map_err(|why| {
        let fix = "install tcpdump, or omit --kernel";
        Failure::failed(format!("error: cannot run {}: {why}\nfix: {fix}", tcpdump.display()))
    })
}

/// Writes the packets of all streams as one stream, until the daemon's stream ends or the reader of the output has gone.
pub fn merge(packets: BufReader<UnixStream>, kernel: Kernel, to: impl Write + Send + 'static) -> io::Result<()> {
    merge_wanted(packets, vec![kernel], &Wanted::default(), Output::to(to)?, || false)
}

fn merge_wanted(
    packets: BufReader<UnixStream>,
    mut kernel: Vec<Kernel>,
    wanted: &Wanted,
    output: Output,
    is_stopped: impl Fn() -> bool,
) -> io::Result<()> {
    let mut collector = Collector::default();
    collector.stream(packets, "");
    for Kernel { device, child } in &mut kernel {
        if let Some(seen) = child.stdout.take() {
            collector.beside(BufReader::new(seen), device);
        }
    }
    collector.write(wanted, output, is_stopped)
}

/// Converts the result of a capture. A reader that closes the output early is no error.
pub fn finished(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("error: cannot write the capture: {why}")))
        }
        _ => Ok(()),
    }
}
