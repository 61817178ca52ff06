//! The listening server and what its routes share.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use axum::body::Bytes;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, broadcast, oneshot};
use tokio::task::JoinHandle;
use tracing::info;

use crate::faults::FaultPlan;
use crate::load::Book;
use crate::metrics::Metrics;
use crate::placement::Placements;
use crate::store::Version;
use crate::{Edition, Store, connections, router};

/// Changes a slow listener of events may lag behind before it only learns that it did.
const EVENTS: usize = 64;

/// Requests that are answered at one time: a search takes a core of the machine.
const SEARCHES: usize = 4;

/// Answers that are kept at one time.
const KEPT: usize = 64;

/// What every route sees.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) edition: Edition,
    inner: Arc<RwLock<Inner>>,
    pub(crate) changes: broadcast::Sender<u64>,
    pub(crate) faults: Arc<FaultPlan>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) placements: Arc<Placements>,
    pub(crate) kept: Arc<Kept>,
    /// Turns to bring a body.
    pub(crate) bodies: Arc<Semaphore>,
    /// Turns to search.
    pub(crate) searches: Arc<Semaphore>,
}

/// Answers that are asked for again and again: by graph and values, with the version of the store they are of.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<HashMap<String, (Version, Bytes)>>);

impl Kept {
    /// The answer of that version, made if there is none.
    pub(crate) fn get_or_make<E>(
        &self,
        key: String,
        version: Version,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.get(&key) {
            Some((of, answer)) if *of == version => Ok(answer.clone()),
            _ => {
                let answer = make()?;
                if kept.len() >= KEPT {
                    kept.clear();
                }
                kept.insert(key, (version, answer.clone()));
                Ok(answer)
            }
        }
    }
}

/// Documents, and what was allocated in them.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) book: Book,
}

impl Shared {
    /// A panic of another request is no reason to refuse this one.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever listens is told that the topology is another one.
    pub(crate) fn announce(&self) {
        let revision = self.read().store.revision();
        // Nobody listens: nothing is lost.
        let _ = self.changes.send(revision);
    }

    /// Switches a vertex or an edge on or off, and tells whoever listens. False: there is none of that name.
    pub(crate) fn set_up(&self, name: &str, up: bool) -> bool {
        let known = self.write().store.set_up(name, up);
        if known {
            self.announce();
        }
        known
    }
}

/// A server that has not been started.
#[derive(Debug, Default)]
pub struct Server {
    /// What it answers from.
    pub store: Store,
    /// Whose habits it has.
    pub edition: Edition,
    /// What goes wrong on purpose.
    pub faults: FaultPlan,
}

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {why}\nfix: {}", fix(*address, why))]
pub struct StartError {
    /// The address.
    pub address: SocketAddr,
    /// What the system said.
    pub why: std::io::Error,
}

fn fix(address: SocketAddr, why: &std::io::Error) -> String {
    let port = address.port();
    match why.kind() {
        ErrorKind::AddrInUse => {
            format!("choose another port, --listen {}, or see who has it: ss -ltnp 'sport = :{port}'", {
                SocketAddr::new(address.ip(), port.checked_add(1).unwrap_or(30800))
            })
        }
        ErrorKind::AddrNotAvailable => {
            format!("choose an address of this machine, e.g. --listen 127.0.0.1:{port}; `ip address` lists them")
        }
        ErrorKind::PermissionDenied => "choose a port from 1024 up: those below are root's".to_owned(),
        _ => "choose another --listen".to_owned(),
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    shared: Shared,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens; port 0 takes a free one.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(self, address: SocketAddr) -> Result<Running, StartError> {
        let failed = |why| StartError { address, why };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Shared {
            edition: self.edition,
            inner: Arc::new(RwLock::new(Inner { store: self.store, book: Book::default() })),
            changes: broadcast::channel(EVENTS).0,
            faults: Arc::new(self.faults),
            metrics: Arc::default(),
            placements: Arc::default(),
            kept: Arc::default(),
            bodies: Arc::new(Semaphore::new(SEARCHES)),
            searches: Arc::new(Semaphore::new(SEARCHES)),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let router = router::router(shared.clone());
        let task = tokio::spawn(async move {
            // Streams of events end with their listeners, not with the server: it does not wait for them.
            tokio::select! {
                () = connections::serve(listener, router) => {}
                _ = stopped => {}
            }
        });
        Ok(Running { address, shared, stop: Some(stop), task })
    }
}

impl Running {
    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Base URL, as clients are given it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes another topology; what is switched off stays so, and what is allocated stays allocated.
    pub fn replace(&self, store: Store) {
        {
            let mut inner = self.shared.write();
            let Inner { store: held, book } = &mut *inner;
            held.replace(store);
            book.apply(held);
        }
        self.shared.metrics.topology_read();
        info!("the topology was read again");
        self.shared.announce();
    }

    /// Switches a vertex (by id) or an edge (by key) on or off. False: there is none of that name.
    pub fn set_up(&self, name: &str, up: bool) -> bool {
        self.shared.set_up(name, up)
    }

    /// Number of requests answered so far, those that went wrong on purpose included.
    pub fn requests(&self) -> u64 {
        self.shared.faults.requests()
    }

    /// Ends it.
    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            // It may have ended by itself.
            let _ = stop.send(());
        }
        // A panic of the task ends with it.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}
