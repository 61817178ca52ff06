//! `srv6d capture`: writes the packets of a port as pcap.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, IsTerminal, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use clap::{Args, ValueHint};

use crate::Failure;
use srv6d_api::client::{self, AskError};
use srv6d_api::{Direction, Request, Response, decode};
use srv6d_daemon::capture::{PcapStream, copy};

/// Arguments of `srv6d capture`.
#[derive(Debug, Args)]
pub struct CaptureArguments {
    /// Name of the port or of its network device
    #[arg(value_name = "PORT")]
    port: String,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    write: Option<PathBuf>,
    /// Capture only received or only sent packets
    #[arg(long, value_enum)]
    direction: Option<Direction>,
    /// Capture also the packets that the kernel sees on the port (needs tcpdump)
    #[arg(long)]
    kernel: bool,
}

/// Captures until a signal ends it or the reader of the output has gone.
pub fn capture(arguments: &CaptureArguments, socket: &Path) -> Result<(), Failure> {
    let to: Box<dyn Write + Send> = match &arguments.write {
        Some(file) => Box::new(
            File::create(file)
                .map_err(|why| Failure::failed(format!("error: cannot write {}: {why}", file.display())))?,
        ),
        None if io::stdout().is_terminal() => {
            let what = "error: a capture is not text, so it is not written to a terminal";
            let fix = format!("srv6d capture {} | tcpdump -n -r -, or add --write FILE", arguments.port);
            return Err(Failure::invalid(format!("{what}\nfix: {fix}")));
        }
        None => Box::new(io::stdout()),
    };
    let Source { packets, device, .. } = Source::open(&arguments.port, arguments.direction, socket)?;
    let kernel = arguments.kernel.then(|| see_kernel(&tcpdump(), &device, arguments.direction)).transpose()?;
    finished(merge(packets, kernel, to))
}

/// Returns the program that captures the packets that the kernel sees.
fn tcpdump() -> PathBuf {
    PathBuf::from("tcpdump")
}

/// A daemon that sends the packets of a port.
pub struct Source {
    /// The pcap stream.
    pub packets: BufReader<UnixStream>,
    /// Name of the port's network device.
    pub device: String,
    /// The connection of the stream, which is needed to close it.
    pub connection: UnixStream,
}

impl Source {
    /// Asks the daemon for the packets of a port.
    pub fn open(port: &str, direction: Option<Direction>, socket: &Path) -> Result<Self, Failure> {
        let stream = client::begin(socket, &Request::Capture { port: port.to_owned(), direction })?;
        let broken = |source| Failure::from(AskError::Broken { socket: socket.to_owned(), source });
        // There may be no packets for a long time.
        stream.set_read_timeout(None).map_err(broken)?;
        let connection = stream.try_clone().map_err(broken)?;
        let mut packets = BufReader::new(stream);
        let mut line = String::new();
        packets.read_line(&mut line).map_err(broken)?;
        match decode(&line).map_err(AskError::from)? {
            Response::Capturing { device } => Ok(Self { packets, device, connection }),
            Response::Refused(refusal) => Err(Failure::failed(format!("error: {}", refusal.errors.join("\n")))),
            _ => Err(Failure::failed("error: the daemon gave another answer")),
        }
    }

    /// Ends the stream behind the packets that are on their way.
    pub fn end(connection: &UnixStream) {
        let _ = connection.shutdown(Shutdown::Both); // it may have ended already
    }
}

/// Starts tcpdump on a device. Its output is a pcap stream of the packets that the kernel sees.
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
        let fix = "install tcpdump, or omit --kernel";
        Failure::failed(format!("error: cannot run {}: {why}\nfix: {fix}", tcpdump.display()))
    })
}

/// Writes the packets of both streams as one stream, in the order in which they arrive. It ends when the daemon's
/// stream ends or the reader of the output has gone.
pub fn merge(packets: BufReader<UnixStream>, kernel: Option<Child>, to: impl Write + Send + 'static) -> io::Result<()> {
    let stream = Arc::new(Mutex::new(PcapStream::new(to)?));
    let mut kernel = kernel;
    let seen = kernel.as_mut().and_then(|child| child.stdout.take()).map(|seen| {
        let stream = Arc::clone(&stream);
        // The thread is not joined: it ends together with its pipe or with this process.
        std::thread::spawn(move || copy(seen, &stream))
    });
    let copied = copy(packets, &stream);
    if let Some(mut child) = kernel {
        let _ = child.kill(); // it may have ended already
        let _ = child.wait();
    }
    drop(seen);
    copied
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
