//! The listening server, and the state that its routes share.

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
use crate::{Edition, Store, connections, placement, router};

/// Maximum number of changes that a slow listener of events may lag behind. After more, it gets only the latest one.
const EVENTS: usize = 64;

/// Maximum number of requests that are processed at the same time; each search uses one core of the machine.
const SEARCHES: usize = 4;

/// Maximum number of clients that listen to events. Each keeps its connection, so this is only a part of all connections.
pub(crate) const LISTENERS: usize = 64;

/// Maximum number of bytes that long bodies take together.
const BODIES: usize = SEARCHES * placement::MOST_BYTES;

/// Maximum number of cached answers.
const KEPT: usize = 64;

/// The state that all routes share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) edition: Edition,
    inner: Arc<RwLock<Inner>>,
    pub(crate) changes: broadcast::Sender<u64>,
    pub(crate) faults: Arc<FaultPlan>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) placements: Arc<Placements>,
    pub(crate) cache: Arc<AnswerCache>,
    /// Permits for listening to events.
    pub(crate) listeners: Arc<Semaphore>,
    /// Permits for the bytes of long bodies, one for each byte.
    pub(crate) room: Arc<Semaphore>,
    /// Permits for answering requests with a body.
    pub(crate) bodies: Arc<Semaphore>,
    /// Permits for searches.
    pub(crate) searches: Arc<Semaphore>,
}

/// Cache of answers to frequent requests, by graph and values, each with the version of the store that it belongs to.
#[derive(Debug, Default)]
pub(crate) struct AnswerCache(Mutex<HashMap<String, (Version, Bytes)>>);

impl AnswerCache {
    /// Returns the cached answer for this version, or computes it.
    pub(crate) fn get_or_make<E>(
        &self,
        key: String,
        version: Version,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match cache.get(&key) {
            Some((of, answer)) if *of == version => Ok(answer.clone()),
            _ => {
                let answer = make()?;
                if cache.len() >= KEPT {
                    cache.clear();
                }
                cache.insert(key, (version, answer.clone()));
                Ok(answer)
            }
        }
    }
}

/// Documents, and the allocations in them.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) book: Book,
}

impl Shared {
    /// Locks the state for reading, also after a panic of another request.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the new revision of the topology to all listeners.
    pub(crate) fn announce(&self) {
        let revision = self.read().store.revision();
        // Without listeners nothing needs to be sent.
        let _ = self.changes.send(revision);
    }

    /// Switches a vertex or an edge on or off, and notifies listeners. Returns `false` if no vertex or edge has that
    /// name.
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
    /// Documents from which it answers.
    pub store: Store,
    /// Edition of the API whose behaviour it has.
    pub edition: Edition,
    /// Faults that it injects.
    pub faults: FaultPlan,
}

/// The server cannot listen on the address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {why}\nfix: {}", fix(*address, why))]
pub struct StartError {
    /// The address to listen on.
    pub address: SocketAddr,
    /// Error of the system.
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

/// A running server.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    shared: Shared,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    /// Starts to listen; port 0 selects a free port.
    ///
    /// # Errors
    /// [`StartError`], if the server cannot listen on the address.
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
            cache: Arc::default(),
            listeners: Arc::new(Semaphore::new(LISTENERS)),
            room: Arc::new(Semaphore::new(BODIES)),
            bodies: Arc::new(Semaphore::new(SEARCHES)),
            searches: Arc::new(Semaphore::new(SEARCHES)),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let router = router::router(shared.clone());
        let task = tokio::spawn(async move {
            // Event streams end when their listeners end. The server does not wait for them.
            tokio::select! {
                () = connections::serve(listener, router) => {}
                _ = stopped => {}
            }
        });
        Ok(Running { address, shared, stop: Some(stop), task })
    }
}

impl Running {
    /// Returns the address on which it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the base URL for clients.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Replaces the topology. Vertices and edges that are switched off stay off, and allocations stay.
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

    /// Switches a vertex (by id) or an edge (by key) on or off. Returns `false` if no vertex or edge has that name.
    pub fn set_up(&self, name: &str, up: bool) -> bool {
        self.shared.set_up(name, up)
    }

    /// Returns the number of requests so far, including those with an injected fault.
    pub fn requests(&self) -> u64 {
        self.shared.faults.requests()
    }

    /// Stops the server.
    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            // The task may have ended by itself.
            let _ = stop.send(());
        }
        // A panic of the task has no further effect.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}
