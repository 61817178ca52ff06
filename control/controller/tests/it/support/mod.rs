//! A source that runs next to a test, and functions that wait for its snapshots.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "every test file uses its part of it")]

pub mod lab;
pub mod syd;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use srv6d_controller::{Command, Peer, Snapshot};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Maximum time for anything that a test waits for.
const PATIENCE: Duration = Duration::from_mins(3);

/// The task of a controller, and the snapshots that it publishes.
pub struct Source {
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
}

impl Source {
    /// Starts a source after `known` was published.
    pub fn after<F>(
        known: Snapshot,
        run: impl FnOnce(watch::Sender<Arc<Snapshot>>, mpsc::Receiver<Command>) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (publish, snapshots) = watch::channel(Arc::new(known));
        let (commands, told) = mpsc::channel(4);
        Self { snapshots, commands, task: tokio::spawn(run(publish, told)) }
    }

    /// Starts a source without an earlier snapshot.
    pub fn start<F>(run: impl FnOnce(watch::Sender<Arc<Snapshot>>, mpsc::Receiver<Command>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::after(Snapshot::default(), run)
    }

    /// Waits for the first snapshot for which `so` is true. Otherwise the test fails with the last snapshot in its
    /// message.
    pub async fn until(&mut self, what: &str, so: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        let found = timeout(PATIENCE, self.snapshots.wait_for(|snapshot| so(snapshot))).await;
        if let Ok(Ok(snapshot)) = found {
            return Arc::clone(&snapshot);
        }
        drop(found);
        panic!("never {what}: {:#?}", self.snapshots.borrow());
    }

    /// Returns the snapshot after `more` further rounds.
    pub async fn rounds(&mut self, more: u64) -> Arc<Snapshot> {
        let begun = self.now().health.attempts;
        // A round that has begun already may end first.
        self.until("so many rounds", |snapshot| snapshot.health.attempts > begun + more).await
    }

    pub fn now(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    pub async fn sync(&self) {
        self.commands.send(Command::Sync).await.unwrap();
    }

    /// Stops the source, which must end in time.
    pub async fn stop(self) {
        let (done, stopped) = oneshot::channel();
        self.commands.send(Command::Stop { done }).await.unwrap();
        timeout(PATIENCE, stopped).await.unwrap().unwrap();
        timeout(PATIENCE, self.task).await.unwrap().unwrap();
    }
}

/// Returns every carrier to a peer as text.
pub fn carriers(peer: &Peer) -> Vec<String> {
    let paths = peer.prefixes.iter().flat_map(|prefix| &prefix.paths);
    paths.flat_map(|path| &path.segments).map(ToString::to_string).collect()
}
