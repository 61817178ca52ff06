//! Asks a running daemon, blocking: what `srv6d show` and `srv6d reload` use.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ProtocolError, Request, Response, decode, encode};

/// A reload waits for ports to be opened; the kernel may need a second to give a queue back.
const PATIENCE: Duration = Duration::from_secs(30);

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
    stream.read_to_string(&mut line).map_err(broken)?;
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
    let broken = |source| AskError::Broken { socket: socket.to_owned(), source };
    let mut stream = UnixStream::connect(socket).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            AskError::NotRunning { socket: socket.to_owned() }
        }
        io::ErrorKind::PermissionDenied => AskError::Forbidden { socket: socket.to_owned() },
        _ => broken(source),
    })?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(broken)?;
    stream.write_all(encode(request)?.as_bytes()).map_err(broken)?;
    Ok(stream)
}
