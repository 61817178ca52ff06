//! The daemon's end of the management socket.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, umask};
use srv6d_dataplane::capture::Capture;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tracing::debug;

use super::{MAX_REQUEST_BYTES, Request, Response, decode, encode};
use crate::capture::{self, Turn};
use crate::connections::Refusals;

static UMASK: Mutex<()> = Mutex::new(());

/// Conversations at a time. The socket is its owner's and group's alone, so they wait for each other, and nobody is hung up
/// on whose reload takes its time.
const CONNECTIONS: usize = 64;

/// A client that says nothing for this long is hung up on.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request and the way back for its answer; the control loop takes these one at a time.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub request: Request,
    /// Where the answer goes; a client that hung up is no error.
    pub answer: oneshot::Sender<Answer>,
}

/// What comes back of a request.
#[derive(Debug)]
pub enum Answer {
    /// One line.
    Said(Response),
    /// Packets of this device, for as long as the client listens, and the right to send them.
    Capture(Capture, String, Turn),
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Self::Said(response)
    }
}

/// The socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another daemon answers on it.
    #[error("srv6d is already running as pid {pid} on {socket}; stop it, or give this one its own [api] socket")]
    AlreadyRunning {
        /// Process that listens.
        pid: i32,
        /// The socket.
        socket: PathBuf,
    },
    /// Something that is not a socket has that name.
    #[error("{socket} exists and is not a socket; remove it, or choose another [api] socket")]
    NotASocket {
        /// The path.
        socket: PathBuf,
    },
    /// The kernel refused.
    #[error(
        "cannot listen on {socket}: {source}; the directory must exist and be writable for this user (systemd: RuntimeDirectory=srv6d), or choose another [api] socket"
    )]
    Io {
        /// The socket.
        socket: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The listening socket; its file goes when this is dropped.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    /// Opens the socket, mode 0660, in the place of one that a dead daemon left behind.
    ///
    /// # Errors
    /// Another daemon is alive on it, or the path cannot be used.
    pub fn listen(path: &Path) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Io { socket: path.to_owned(), source };
        if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
            fs::DirBuilder::new().recursive(true).mode(0o750).create(directory).map_err(failed)?;
        }
        remove_stale(path)?;
        // The mode must be right from the first moment on, so umask and not a later chmod.
        let bound = {
            // It is the whole process's: two that listen at once take turns.
            let _turn = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
            let before = umask(Mode::from_bits_truncate(0o117));
            let bound = UnixListener::bind(path);
            umask(before);
            bound
        };
        Ok(Self { listener: bound.map_err(failed)?, path: path.to_owned() })
    }

    /// Hands every request to `control`; ends when `control` is gone.
    pub async fn serve(self, control: mpsc::Sender<Question>) {
        let (connections, mut refusals) = (Arc::new(Semaphore::new(CONNECTIONS)), Refusals::default());
        loop {
            // Others wait in the listener's queue: one that is silent is hung up on after [`PATIENCE`].
            let Ok(turn) = Arc::clone(&connections).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    refusals.over();
                    let control = control.clone();
                    drop(tokio::spawn(async move {
                        converse(stream, control).await;
                        drop(turn);
                    }));
                }
                Err(why) => refusals.pause("management socket", &why).await,
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

/// Removes the socket file of a daemon that no longer lives.
pub(crate) fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let failed = |source| ListenError::Io { socket: path.to_owned(), source };
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !kind.is_socket() {
        return Err(ListenError::NotASocket { socket: path.to_owned() });
    }
    match StdUnixStream::connect(path) {
        Ok(alive) => {
            let pid = getsockopt(&alive, PeerCredentials).map_or(0, |peer| peer.pid());
            Err(ListenError::AlreadyRunning { pid, socket: path.to_owned() })
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
        Err(error) => Err(failed(error)),
    }
}

/// One request, one answer.
async fn converse(stream: UnixStream, control: mpsc::Sender<Question>) {
    if let Err(error) = exchange(stream, control).await {
        debug!(%error, "a client of the management socket went away");
    }
}

async fn exchange(stream: UnixStream, control: mpsc::Sender<Question>) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(read.take(MAX_REQUEST_BYTES));
    timeout(PATIENCE, reader.read_line(&mut line)).await??;
    let mut direction = None;
    let answer = match decode::<Request>(&line) {
        Ok(request) => {
            if let Request::Capture { direction: wanted, .. } = &request {
                direction = *wanted;
            }
            forward(request, &control).await
        }
        Err(error) => Response::failed(error.to_string()).into(),
    };
    let (response, capture) = match answer {
        Answer::Said(response) => (response, None),
        Answer::Capture(capture, device, turn) => {
            (Response::Capturing { device: device.clone() }, Some((capture, device, turn)))
        }
    };
    let text = encode(&response).map_err(io::Error::other)?;
    timeout(PATIENCE, write.write_all(text.as_bytes())).await??;
    if let Some((capture, device, turn)) = capture {
        let stream = reader.into_inner().into_inner().reunite(write).map_err(io::Error::other)?;
        capture::send_in_background(turn, stream.into_std()?, capture, direction, device);
    }
    Ok(())
}

/// Through the control loop and back.
async fn forward(request: Request, control: &mpsc::Sender<Question>) -> Answer {
    let (answer, answered) = oneshot::channel();
    let sent = control.send(Question { request, answer }).await.is_ok();
    match answered.await {
        Ok(answer) if sent => answer,
        _ => Response::failed("srv6d is stopping").into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "a test stops at the first surprise"
    )]
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener as StdUnixListener;

    use super::super::client::{AskError, ask};
    use super::super::{Reloaded, Topic};
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("srv6d-api-{}-{name}", std::process::id()));
        drop(fs::remove_dir_all(&directory));
        directory.join("srv6d.sock")
    }

    fn clean(socket: &Path) {
        fs::remove_dir_all(socket.parent().unwrap()).unwrap();
    }

    /// A control loop that counts reloads and refuses the rest.
    fn control() -> mpsc::Sender<Question> {
        let (sender, mut questions) = mpsc::channel::<Question>(8);
        tokio::spawn(async move {
            let mut generation = 0;
            while let Some(Question { request, answer }) = questions.recv().await {
                let response = if request == (Request::Reload { dry_run: false }) {
                    generation += 1;
                    Response::Reloaded(Reloaded { generation, changes: vec![], warnings: vec![], pending: vec![] })
                } else {
                    Response::failed("only reload here")
                };
                drop(answer.send(response.into()));
            }
        });
        sender
    }

    async fn ask_from_a_thread(socket: &Path, request: Request) -> Result<Response, AskError> {
        let socket = socket.to_owned();
        tokio::task::spawn_blocking(move || ask(&socket, &request)).await.unwrap()
    }

    #[tokio::test]
    async fn questions_are_answered_in_order_and_only_for_owner_and_group() {
        let socket = scratch("answers");
        let server = Server::listen(&socket).unwrap();
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
        let serving = tokio::spawn(server.serve(control()));
        for expected in 1..=3 {
            let Response::Reloaded(reloaded) =
                ask_from_a_thread(&socket, Request::Reload { dry_run: false }).await.unwrap()
            else {
                panic!("not reloaded");
            };
            assert_eq!(reloaded.generation, expected);
        }
        let refused = ask_from_a_thread(&socket, Request::Show { topic: Topic::Sids }).await.unwrap();
        assert_eq!(refused, Response::failed("only reload here"));
        serving.abort();
        drop(serving.await);
        assert!(!socket.exists(), "the socket file goes with the server");
        clean(&socket);
    }

    #[tokio::test]
    async fn nonsense_is_refused_with_a_reason() {
        let socket = scratch("nonsense");
        let serving = tokio::spawn(Server::listen(&socket).unwrap().serve(control()));
        let mut stream = UnixStream::connect(&socket).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let Response::Refused(refusal) = decode::<Response>(&answer).unwrap() else { panic!("{answer}") };
        assert!(refusal.errors[0].contains("not a message of the srv6d protocol"), "{refusal:?}");
        serving.abort();
        drop(serving.await);
        clean(&socket);
    }

    #[tokio::test]
    async fn dead_socket_is_replaced_and_live_one_names_its_owner() {
        let socket = scratch("stale");
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        drop(StdUnixListener::bind(&socket).unwrap());
        assert!(socket.exists(), "a closed listener leaves its file behind");

        let alive = Server::listen(&socket).unwrap();
        let error = Server::listen(&socket).unwrap_err().to_string();
        assert!(error.contains(&format!("already running as pid {}", std::process::id())), "{error}");
        drop(alive);

        fs::write(&socket, "precious").unwrap();
        assert!(matches!(Server::listen(&socket), Err(ListenError::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
        clean(&socket);
    }

    #[test]
    fn nobody_there_says_how_to_start() {
        let error =
            ask(Path::new("/nonexistent/srv6d.sock"), &Request::Reload { dry_run: false }).unwrap_err().to_string();
        assert!(error.contains("srv6d is not running") && error.contains("srv6d run --config"), "{error}");
    }
}
