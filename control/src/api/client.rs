//! Asks a running daemon, blocking: what `srv6d show` and `srv6d reload` use.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{ProtocolError, Request, Response, decode, encode};
use crate::process;

/// A daemon that is well answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// A reload waits for ports to be opened; the kernel may need a second to give a queue back.
const PATIENCE_FOR_CHANGES: Duration = Duration::from_secs(30);

/// How long an answer is waited for.
const fn patience(request: &Request) -> Duration {
    match request {
        Request::Reload { .. } | Request::Rollback { .. } | Request::Diff { .. } => PATIENCE_FOR_CHANGES,
        Request::Show { .. } | Request::Sync | Request::Capture { .. } => PATIENCE,
    }
}

/// The daemon gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens.
    #[error(
        "srv6d is not running: nothing answers on {socket}\n\
         fix: start it with `systemctl start srv6d` or `srv6d run --config /etc/srv6d/srv6d.toml`; \
         if it listens elsewhere, name its socket with --socket or SRV6D_SOCKET"
    )]
    NotRunning {
        /// Where it was looked for.
        socket: PathBuf,
    },
    /// Somebody listens, but not to this user.
    #[error("no permission to open {socket}: run as root or as a member of the group that owns the socket")]
    Forbidden {
        /// The socket.
        socket: PathBuf,
    },
    /// It takes too long.
    #[error("srv6d (pid {pid}) does not answer on {socket} within {} s: {state}", patience.as_secs())]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// Its process, 0 where that is not known.
        pid: i32,
        /// How long it was waited for.
        patience: Duration,
        /// What is the matter with it, and what to do.
        state: String,
    },
    /// The conversation broke off.
    #[error("the daemon behind {socket} did not answer: {source}")]
    Broken {
        /// The socket.
        socket: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The answer makes no sense.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// One question, one answer.
///
/// # Errors
/// Nobody listens on `socket`, the user may not open it, or what came back is not an answer.
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

/// Asks, and returns the connection on which the answer comes.
///
/// # Errors
/// As [`ask`].
pub fn begin(socket: &Path, request: &Request) -> Result<UnixStream, AskError> {
    let failed = |why| refused(socket, request, 0, why);
    let mut stream = connect(socket, patience(request)).map_err(failed)?;
    stream.write_all(encode(request)?.as_bytes()).map_err(failed)?;
    Ok(stream)
}

/// Connects; every step of the conversation may take so long.
fn connect(socket: &Path, patience: Duration) -> io::Result<UnixStream> {
    let stream = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    stream.set_read_timeout(Some(patience))?;
    // For connect(2), too: it waits where the listener's queue is full.
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

/// The process at the other end; 0 where the kernel does not tell.
fn pid_of(stream: &UnixStream) -> i32 {
    getsockopt(stream, PeerCredentials).map_or(0, |peer| peer.pid())
}

/// Why a daemon does not answer, and the fix.
fn state_of(pid: i32) -> String {
    if process::is_stopped(pid) {
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
    use crate::api::Topic;

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
