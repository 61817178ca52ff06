//! `srv6d capture`: packets of a port, as pcap.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, IsTerminal, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use clap::{Args, ValueHint};

use super::output::Failure;
use crate::api::client::{self, AskError};
use crate::api::{Direction, Request, Response, decode};
use crate::capture::{PcapStream, copy};

/// What is captured, and where it goes.
#[derive(Debug, Args)]
pub struct CaptureArguments {
    /// Port, or its network device
    #[arg(value_name = "PORT")]
    port: String,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    write: Option<PathBuf>,
    /// Only what is received, or only what is sent
    #[arg(long, value_enum)]
    direction: Option<Direction>,
    /// What the kernel sees on the port, too (needs tcpdump)
    #[arg(long)]
    kernel: bool,
}

/// Captures until it is told to end, or nobody reads any more.
pub fn capture(arguments: &CaptureArguments, socket: &Path) -> Result<(), Failure> {
    let to: Box<dyn Write + Send> = match &arguments.write {
        Some(file) => Box::new(
            File::create(file)
                .map_err(|why| Failure::failed(format!("error: cannot write {}: {why}", file.display())))?,
        ),
        None if io::stdout().is_terminal() => {
            let what = "error: a capture is no text for a terminal";
            let fix = format!("srv6d capture {} | tcpdump -n -r -, or add --write FILE", arguments.port);
            return Err(Failure::invalid(format!("{what}\nfix: {fix}")));
        }
        None => Box::new(io::stdout()),
    };
    let Source { packets, device, .. } = Source::open(&arguments.port, arguments.direction, socket)?;
    let kernel = arguments.kernel.then(|| see_kernel(&tcpdump(), &device, arguments.direction)).transpose()?;
    finished(merge(packets, kernel, to))
}

/// The program that sees what the kernel sees.
fn tcpdump() -> PathBuf {
    PathBuf::from("tcpdump")
}

/// A daemon that sends packets.
pub struct Source {
    /// A pcap stream.
    pub packets: BufReader<UnixStream>,
    /// Network device of the port.
    pub device: String,
    /// The same connection, to end it.
    pub connection: UnixStream,
}

impl Source {
    /// Asks for the packets of a port.
    pub fn open(port: &str, direction: Option<Direction>, socket: &Path) -> Result<Self, Failure> {
        let stream = client::begin(socket, &Request::Capture { port: port.to_owned(), direction })?;
        let broken = |source| Failure::from(AskError::Broken { socket: socket.to_owned(), source });
        // Packets come when they come.
        stream.set_read_timeout(None).map_err(broken)?;
        let connection = stream.try_clone().map_err(broken)?;
        let mut packets = BufReader::new(stream);
        let mut line = String::new();
        packets.read_line(&mut line).map_err(broken)?;
        match decode(&line).map_err(AskError::from)? {
            Response::Capturing { device } => Ok(Self { packets, device, connection }),
            Response::Refused(refusal) => Err(Failure::failed(format!("error: {}", refusal.errors.join("\n")))),
            _ => Err(Failure::failed("error: the daemon answered something else")),
        }
    }

    /// No more packets: the stream ends behind those that are on their way.
    pub fn end(connection: &UnixStream) {
        let _ = connection.shutdown(Shutdown::Both); // it may have ended by itself
    }
}

/// What the kernel sees on a device, as another pcap stream.
pub fn see_kernel(tcpdump: &Path, device: &str, direction: Option<Direction>) -> Result<Child, Failure> {
    let mut command = Command::new(tcpdump);
    command.args(["-i", device, "-U", "--time-stamp-precision=nano", "-w", "-"]);
    match direction {
        Some(Direction::In) => drop(command.args(["-Q", "in"])),
        Some(Direction::Out) => drop(command.args(["-Q", "out"])),
        None => {}
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    child.map_err(|why| {
        let fix = "install tcpdump, or leave --kernel out";
        Failure::failed(format!("error: cannot run {}: {why}\nfix: {fix}", tcpdump.display()))
    })
}

/// Writes the packets of both streams as one, each as it comes, until the daemon's ends or nobody reads.
pub fn merge(packets: BufReader<UnixStream>, kernel: Option<Child>, to: impl Write + Send + 'static) -> io::Result<()> {
    let stream = Arc::new(Mutex::new(PcapStream::new(to)?));
    let mut kernel = kernel;
    let seen = kernel.as_mut().and_then(|child| child.stdout.take()).map(|seen| {
        let stream = Arc::clone(&stream);
        // Its end is not waited for: it ends with its pipe, or with this process.
        std::thread::spawn(move || copy(seen, &stream))
    });
    let copied = copy(packets, &stream);
    if let Some(mut child) = kernel {
        let _ = child.kill(); // it may have ended
        let _ = child.wait();
    }
    drop(seen);
    copied
}

/// A reader that has seen enough is no failure.
pub fn finished(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("error: cannot write the capture: {why}")))
        }
        _ => Ok(()),
    }
}
