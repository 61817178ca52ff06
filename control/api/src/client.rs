//! Sends requests to a running daemon and waits for the answer, as `srv6d show` and `srv6d reload` do.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::jobs::JobRequest;
use crate::{Direction, ProtocolError, Refusal, Request, Response, decode, encode};

/// Longest wait for an answer. A daemon that works well answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// Longest wait for a change. A reload waits until ports are open, and the kernel may need a second to release a queue.
const PATIENCE_FOR_CHANGES: Duration = Duration::from_secs(30);

/// Longest wait for a placement, which may wait for others and for a controller.
const PATIENCE_FOR_PLACEMENTS: Duration = Duration::from_mins(2);

/// Returns how long to wait for the answer to a request.
const fn patience(request: &Request) -> Duration {
    match request {
        Request::Reload { .. } | Request::Rollback { .. } | Request::Diff { .. } => PATIENCE_FOR_CHANGES,
        Request::Job(request)
            if matches!(
                **request,
                JobRequest::Place { .. } | JobRequest::Replace { .. } | JobRequest::Start { .. }
            ) =>
        {
            PATIENCE_FOR_PLACEMENTS
        }
        Request::Job(_)
        | Request::Show { .. }
        | Request::Sync
        | Request::Capture { .. }
        | Request::Explain { .. }
        | Request::Match { .. } => PATIENCE,
    }
}

/// The reason why the daemon gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No process listens on the socket.
    #[error(
        "srv6d is not running: nothing answers on {socket}\n\
         fix: start it with `systemctl start srv6d` or `srv6d run --config /etc/srv6d/srv6d.toml`; \
         if it listens elsewhere, name its socket with --socket or SRV6D_SOCKET"
    )]
    NotRunning {
        /// Path of the socket.
        socket: PathBuf,
    },
    /// A daemon listens, but this user may not open the socket.
    #[error("no permission to open {socket}: run as root or as a member of the group that owns the socket")]
    Forbidden {
        /// Path of the socket.
        socket: PathBuf,
    },
    /// The daemon does not answer in time.
    #[error("srv6d (pid {pid}) does not answer on {socket} within {} s: {state}", patience.as_secs())]
    Silent {
        /// Path of the socket.
        socket: PathBuf,
        /// The daemon's process id; 0 if it is not known.
        pid: i32,
        /// How long the answer was awaited.
        patience: Duration,
        /// State of the daemon, and what to do.
        state: String,
    },
    /// The connection broke off.
    #[error("the daemon behind {socket} did not answer: {source}")]
    Broken {
        /// Path of the socket.
        socket: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The answer cannot be parsed.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// Sends a request and returns the answer.
///
/// # Errors
/// No process listens on `socket`, the user may not open it, or the answer cannot be parsed.
pub fn ask(socket: &Path, request: &Request) -> Result<Response, AskError> {
    let broken = |source| AskError::Broken { socket: socket.to_owned(), source };
    let mut stream = begin(socket, request)?;
    stream.shutdown(Shutdown::Write).map_err(broken)?;
    let mut line = String::new();
    stream.read_to_string(&mut line).map_err(|why| refused(socket, request, pid_of(&stream), why))?;
    if line.is_empty() {
        return Err(broken(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(decode(&line)?)
}

/// Sends a request and returns the connection on which the answer comes.
///
/// # Errors
/// The errors are those of [`ask`].
pub fn begin(socket: &Path, request: &Request) -> Result<UnixStream, AskError> {
    let failed = |why| refused(socket, request, 0, why);
    let mut stream = connect(socket, patience(request)).map_err(failed)?;
    stream.write_all(encode(request)?.as_bytes()).map_err(failed)?;
    Ok(stream)
}

/// A daemon that sends the packets of ports.
#[derive(Debug)]
pub struct Capturing {
    /// The pcapng stream.
    pub packets: BufReader<UnixStream>,
    /// Names of the ports' network devices.
    pub devices: Vec<String>,
    /// The same connection, by which it is closed.
    pub connection: UnixStream,
}

/// Asks for the packets of ports, or of all ports if none is named. Returns why the daemon refuses.
///
/// # Errors
/// The errors are those of [`ask`].
pub fn capture(
    socket: &Path,
    ports: &[String],
    direction: Option<Direction>,
) -> Result<Result<Capturing, Refusal>, AskError> {
    let broken = |source| AskError::Broken { socket: socket.to_owned(), source };
    let stream = begin(socket, &Request::Capture { ports: ports.to_vec(), direction })?;
    // There may be no packets for a long time.
    stream.set_read_timeout(None).map_err(broken)?;
    let connection = stream.try_clone().map_err(broken)?;
    let mut packets = BufReader::new(stream);
    let mut line = String::new();
    packets.read_line(&mut line).map_err(broken)?;
    match decode(&line)? {
        Response::Capturing { devices } => Ok(Ok(Capturing { packets, devices, connection })),
        Response::Refused(refusal) => Ok(Err(refusal)),
        _ => Err(broken(io::ErrorKind::InvalidData.into())),
    }
}

/// Connects. `patience` limits every later read and write, too.
fn connect(socket: &Path, patience: Duration) -> io::Result<UnixStream> {
    let stream = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    stream.set_read_timeout(Some(patience))?;
    // This also limits connect(2), which blocks if the listener's queue is full.
    stream.set_write_timeout(Some(patience))?;
    stream.connect(&SockAddr::unix(socket)?)?;
    Ok(stream.into())
}

fn refused(socket: &Path, request: &Request, pid: i32, why: io::Error) -> AskError {
    let socket = socket.to_owned();
    match why.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AskError::NotRunning { socket },
        io::ErrorKind::PermissionDenied => AskError::Forbidden { socket },
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            AskError::Silent { socket, pid, patience: patience(request), state: state_of(pid) }
        }
        _ => AskError::Broken { socket, source: why },
    }
}

/// Returns the id of the process at the other end; 0 if the kernel does not tell.
fn pid_of(stream: &UnixStream) -> i32 {
    getsockopt(stream, PeerCredentials).map_or(0, |peer| peer.pid())
}

/// Returns why a daemon does not answer, and the fix.
fn state_of(pid: i32) -> String {
    if srv6d_process::is_stopped(pid) {
        return format!("it is stopped (SIGSTOP, or a debugger)\nfix: kill -CONT {pid}");
    }
    "it is busy or hangs; the ports that it has go on forwarding\n\
     fix: ask again in a moment; if that does not help, see its log (`journalctl -u srv6d`) and restart it \
     (`systemctl restart srv6d`)"
        .to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::Topic;

    #[test]
    fn a_daemon_that_does_not_answer_is_named_with_a_fix() {
        let directory = std::env::temp_dir().join(format!("srv6d-client-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("srv6d.sock");
        let silent = UnixListener::bind(&socket).unwrap();
        let error = ask(&socket, &Request::Show { topic: Topic::Ports }).unwrap_err();
        assert!(matches!(error, AskError::Silent { pid, .. } if pid.cast_unsigned() == std::process::id()), "{error}");
        let said = error.to_string();
        assert!(said.contains("does not answer") && said.contains("within 3 s") && said.contains("fix: "), "{said}");
        drop(silent);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
