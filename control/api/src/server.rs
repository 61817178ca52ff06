//! The daemon's side of the management socket.

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, umask};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::debug;

use crate::connections::AcceptFailures;
use crate::{MAX_REQUEST_BYTES, Request, Response, decode, encode};

static UMASK: Mutex<()> = Mutex::new(());

/// Largest number of connections at a time. A further one takes the place of the oldest that has not asked yet. Only the
/// socket's owner and group can connect, and no client is disconnected because its reload takes long.
const CONNECTIONS: usize = 64;

/// Length of the longest request in bytes that is decoded at once.
const SHORT_REQUEST: usize = 64 * 1024;

/// A client that sends nothing for this long is disconnected.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request and the channel for its answer. The control loop takes these one at a time.
#[derive(Debug)]
pub struct Question {
    /// The request.
    pub request: Request,
    /// Who asks.
    pub peer: Peer,
    /// The channel for the answer. It is no error if the client has closed its connection.
    pub answer: oneshot::Sender<Answer>,
}

/// A process that asks, as the kernel shows it at the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub user: u32,
    /// Its id. `None`: it is in a namespace of processes that the daemon does not see.
    pub pid: Option<u32>,
}

/// Answer to a request: a response of one line, and whoever goes on with the connection behind it.
#[derive(Debug)]
pub struct Answer {
    response: Maker,
    successor: Option<Successor>,
}

/// Makes a response on a thread that is not the control loop's, because that may take long.
struct Maker(Box<dyn FnOnce() -> Response + Send>);

impl fmt::Debug for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Maker")
    }
}

/// Takes the connection over once the response has been sent.
struct Successor(Box<dyn FnOnce(StdUnixStream) + Send>);

impl fmt::Debug for Successor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Successor")
    }
}

impl Answer {
    /// Makes an answer after which the connection belongs to `successor`. The connection does not block.
    pub fn followed_by(response: Response, successor: impl FnOnce(StdUnixStream) + Send + 'static) -> Self {
        Self { successor: Some(Successor(Box::new(successor))), ..Self::from(response) }
    }

    /// Makes an answer whose response takes long to make. `make` has all that it is made of, and runs on another thread.
    pub fn made_by(make: impl FnOnce() -> Response + Send + 'static) -> Self {
        Self { response: Maker(Box::new(make)), successor: None }
    }
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Self::made_by(|| response)
    }
}

/// The reason why the socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another daemon answers on the socket.
    #[error("srv6d is already running as pid {pid} on {socket}; stop it, or give this one its own [api] socket")]
    AlreadyRunning {
        /// Id of the process that listens.
        pid: i32,
        /// Path of the socket.
        socket: PathBuf,
    },
    /// The path exists and is not a socket.
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
        /// Path of the socket.
        socket: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The listening socket. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

/// Makes the directory of a socket, with mode 0750, if it does not exist.
///
/// # Errors
/// It cannot be made.
pub fn make_directory(directory: &Path) -> io::Result<()> {
    // The directory of a relative path may be empty.
    if directory == Path::new("") || directory.exists() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o750).create(directory)
}

impl Server {
    /// Opens the socket with mode 0660. It replaces a socket that a daemon has left behind when it died.
    ///
    /// # Errors
    /// Another daemon is running on the socket, or the path cannot be used.
    pub fn listen(path: &Path) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Io { socket: path.to_owned(), source };
        if let Some(directory) = path.parent() {
            make_directory(directory).map_err(failed)?;
        }
        remove_stale(path)?;
        // The mode must be right from the first moment on, so the umask is set instead of calling chmod afterwards.
        let bound = {
            // The umask belongs to the whole process, so two threads that listen at the same time take turns.
            let _turn = UMASK.lock().unwrap_or_else(PoisonError::into_inner);
            let before = umask(Mode::from_bits_truncate(0o117));
            let bound = UnixListener::bind(path);
            umask(before);
            bound
        };
        Ok(Self { listener: bound.map_err(failed)?, path: path.to_owned() })
    }

    /// Passes every request to `control`. It ends when the receiver of `control` is gone.
    pub async fn serve(self, control: mpsc::Sender<Question>) {
        let (connections, mut accept_failures) = (Arc::new(Semaphore::new(CONNECTIONS)), AcceptFailures::default());
        let silent = Silent::default();
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    accept_failures.over();
                    if connections.available_permits() == 0 {
                        silent.disconnect_oldest();
                    }
                    // While all of them have asked and wait for their answers, further clients wait in the queue.
                    let Ok(turn) = Arc::clone(&connections).acquire_owned().await else { return };
                    let (control, silent) = (control.clone(), silent.clone());
                    drop(tokio::spawn(async move {
                        converse(stream, control, silent).await;
                        drop(turn);
                    }));
                }
                Err(why) => accept_failures.pause("management socket", &why).await,
            }
        }
    }
}

/// Connections whose clients are waited for: for a request, or to read an answer. The oldest one stands first. When there are
/// too many connections, it makes room.
#[derive(Clone, Debug, Default)]
struct Silent(Arc<Mutex<VecDeque<Weak<Notify>>>>);

impl Silent {
    /// Waits for a client, unless the connection has to make room or the client is silent for too long.
    async fn wait<T>(&self, client: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let awaited = self.add();
        tokio::select! {
            done = timeout(PATIENCE, client) => done?,
            () = awaited.notified() => Err(io::Error::other("there are too many connections, and it was silent")),
        }
    }

    /// Adds a connection. Its client is waited for as long as the result exists, and it is to be closed when that is
    /// notified.
    fn add(&self) -> Arc<Notify> {
        let awaited = Arc::new(Notify::new());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push_back(Arc::downgrade(&awaited));
        awaited
    }

    fn disconnect_oldest(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(oldest) = all.pop_front() {
            if let Some(awaited) = oldest.upgrade() {
                return awaited.notify_one();
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

/// Removes the socket file of a daemon that is no longer running.
///
/// # Errors
/// A daemon answers on the socket, or the path is no socket.
pub fn remove_stale(path: &Path) -> Result<(), ListenError> {
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

/// Handles one request and its answer.
async fn converse(stream: UnixStream, control: mpsc::Sender<Question>, silent: Silent) {
    if let Err(error) = exchange(stream, control, &silent).await {
        debug!(%error, "a client of the management socket went away");
    }
}

async fn exchange(stream: UnixStream, control: mpsc::Sender<Question>, silent: &Silent) -> io::Result<()> {
    let credentials = stream.peer_cred()?;
    let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0);
    let peer = Peer { user: credentials.uid(), pid };
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(read.take(MAX_REQUEST_BYTES));
    silent.wait(reader.read_line(&mut line)).await?;
    // A long line takes a while to decode, and this thread is that of the control loop.
    let request = if line.len() > SHORT_REQUEST {
        spawn_blocking(move || decode::<Request>(&line)).await.map_err(io::Error::other)?
    } else {
        decode::<Request>(&line)
    };
    let Answer { response, successor } = match request {
        Ok(request) => forward(request, peer, &control).await,
        Err(error) => Response::failed(error.to_string()).into(),
    };
    // Encoding tens of thousands of routes takes a while and must not delay the control loop, which runs on this thread.
    let encoded = spawn_blocking(move || encode((response.0)())).await.map_err(io::Error::other)?;
    let text = encoded.map_err(io::Error::other)?;
    silent.wait(write.write_all(text.as_bytes())).await?;
    if let Some(Successor(go_on)) = successor {
        let stream = reader.into_inner().into_inner().reunite(write).map_err(io::Error::other)?;
        go_on(stream.into_std()?);
    }
    Ok(())
}

/// Passes a request to the control loop and waits for its answer.
async fn forward(request: Request, peer: Peer, control: &mpsc::Sender<Question>) -> Answer {
    let (answer, answered) = oneshot::channel();
    let sent = control.send(Question { request, peer, answer }).await.is_ok();
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
    use std::time::Instant;

    use super::*;
    use crate::client::{AskError, ask};
    use crate::state::RouteStatus;
    use crate::{Reloaded, Topic};

    fn scratch(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("srv6d-api-{}-{name}", std::process::id()));
        drop(fs::remove_dir_all(&directory));
        directory.join("srv6d.sock")
    }

    fn clean(socket: &Path) {
        fs::remove_dir_all(socket.parent().unwrap()).unwrap();
    }

    /// Returns the channel of a control loop that counts reloads and refuses all other requests.
    fn control() -> mpsc::Sender<Question> {
        let (sender, mut questions) = mpsc::channel::<Question>(8);
        tokio::spawn(async move {
            let mut generation = 0;
            while let Some(Question { request, answer, .. }) = questions.recv().await {
                let response = if request == (Request::Reload { dry_run: false }) {
                    generation += 1;
                    Response::Reloaded(Reloaded {
                        generation,
                        changes: vec![],
                        warnings: vec![],
                        pending: vec![],
                        returned_to: None,
                    })
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

    /// Compares the longest time for which the loop stood still with the time that encoding takes.
    #[tokio::test]
    async fn a_long_answer_is_encoded_beside_the_loop() {
        let row = |number: u32| RouteStatus {
            prefix: format!("2001:db8:{number:x}::/64"),
            table: 254,
            kind: "unicast".to_owned(),
            next_hops: Vec::new(),
        };
        let routes = Response::Routes((0..300_000).map(row).collect());
        let begun = Instant::now();
        let length = encode(&routes).unwrap().len();
        let encoding = begun.elapsed();

        let (control, mut questions) = mpsc::channel::<Question>(1);
        let answering = async {
            drop(questions.recv().await.unwrap().answer.send(routes.into()));
        };
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let client = async {
            theirs.write_all(encode(&Request::Show { topic: Topic::Routes }).unwrap().as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            theirs.read_to_end(&mut answer).await.unwrap();
            answer.len()
        };
        let conversation = async { tokio::join!(answering, converse(ours, control, Silent::default()), client).2 };
        let mut conversation = std::pin::pin!(conversation);
        let (mut longest, mut last) = (Duration::ZERO, Instant::now());
        let answered = loop {
            tokio::select! {
                answered = &mut conversation => break answered,
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
            longest = longest.max(last.elapsed());
            last = Instant::now();
        };
        longest = longest.max(last.elapsed());
        assert_eq!(answered, length);
        assert!(longest < encoding / 2, "the loop stood still for {longest:?}, and encoding takes {encoding:?}");
    }

    /// A client that does not read its answer is waited for like one that does not ask.
    #[tokio::test]
    async fn the_oldest_client_that_is_waited_for_makes_room() {
        let silent = Silent::default();
        let never = || silent.wait(std::future::pending::<io::Result<()>>());
        let making_room = async {
            tokio::task::yield_now().await;
            silent.disconnect_oldest();
        };
        let (oldest, ()) = tokio::join!(never(), making_room);
        assert!(oldest.is_err_and(|why| why.to_string().contains("too many connections")));
        silent.disconnect_oldest();
        assert_eq!(silent.wait(async { Ok(7) }).await.unwrap(), 7, "one that is done makes no room any more");
    }

    #[tokio::test]
    async fn silent_clients_make_room_for_one_that_asks() {
        let socket = scratch("silent");
        let serving = tokio::spawn(Server::listen(&socket).unwrap().serve(control()));
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS + 8 {
            silent.push(UnixStream::connect(&socket).await.unwrap());
        }
        let request = Request::Reload { dry_run: false };
        let answer = timeout(PATIENCE / 2, ask_from_a_thread(&socket, request)).await.unwrap();
        assert!(matches!(answer, Ok(Response::Reloaded(_))), "{answer:?}");
        let mut end = [0];
        let read = timeout(PATIENCE / 2, silent[0].read(&mut end)).await.unwrap();
        assert_eq!(read.unwrap(), 0);
        serving.abort();
        drop(serving.await);
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
