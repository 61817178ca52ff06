//! syd, Jalapeno's successor: a workload is requested once, its flows are read, and changes arrive as events.
//!
//! ```text
//! POST /paths/request ─► GET /paths/{w}/flows ─► Snapshot
//!          ▲                     ▲
//!          │ draining, 404       │ event, interval          heartbeats keep the lease; POST complete at the end
//! ```

mod api;
mod events;
mod flows;
mod task;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::sync::{mpsc, watch};

use api::Api;
use task::Task;

use crate::allowed::Allowed;
use crate::rounds::Stop;
use crate::snapshot::{CarrierPath, Command, PrefixPaths, Snapshot};

/// Everything the task needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Base URL.
    pub endpoint: String,
    /// Id of the topology.
    pub topology: String,
    /// Id of the workload.
    pub workload: String,
    /// Id of this node: whose flows are programmed.
    pub node: String,
    /// The other endpoints, and the prefixes behind each: flows carry none.
    pub peers: BTreeMap<String, Vec<IpNet>>,
    /// `none`, `link`, `node`, `srlg`.
    pub disjointness: String,
    /// `exclusive` or `shared`.
    pub sharing: String,
    /// Tenant.
    pub tenant: Option<String>,
    /// Policy of the topology.
    pub policy: Option<String>,
    /// Flexible algorithm.
    pub algo: Option<u8>,
    /// Lease of the allocation.
    pub lease: Duration,
    /// Certificates (PEM) that the one of an `https` endpoint must be signed by; `None`: the system's.
    pub ca: Option<String>,
    /// Time between two looks.
    pub interval: Duration,
    /// Time for one answer.
    pub timeout: Duration,
    /// Bytes of answers that are held at a time.
    pub max_answer: usize,
    /// The prefixes that the controller may steer.
    pub allowed: Allowed,
    /// Change nothing there: a workload is neither requested nor kept alive, and its flows are read if it exists.
    pub only_look: bool,
}

/// Follows a syd API until it is told to stop, or nobody listens.
pub async fn run(settings: Settings, publish: watch::Sender<Arc<Snapshot>>, mut commands: mpsc::Receiver<Command>) {
    // The prefixes are the configuration's own, only the carriers are the controller's.
    let has_segments = |path: &CarrierPath| settings.allowed.segments(&path.segments).is_ok();
    let may_stay = |known: &PrefixPaths| known.paths.iter().all(has_segments);
    let snapshot = Snapshot::begin(&publish, settings.peers.keys().cloned(), may_stay);
    let api = match Api::new(&settings) {
        Ok(api) => api,
        Err(why) => {
            let mut snapshot = snapshot;
            snapshot.health.last_error = Some(why.what);
            publish.send_replace(Arc::new(snapshot));
            return;
        }
    };
    let mut task = Task::new(settings, api, publish, snapshot);
    let Stop { done } = task.follow(&mut commands).await;
    if let Some(done) = done {
        task.complete().await;
        // Whoever asked may be gone.
        let _ = done.send(());
    }
}
