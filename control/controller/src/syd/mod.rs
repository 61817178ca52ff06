//! Client of syd, Jalapeno's successor: a workload is requested once, its flows are read, and changes arrive as events.
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

/// Settings of the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Base URL.
    pub endpoint: String,
    /// Id of the topology.
    pub topology: String,
    /// Id of the workload.
    pub workload: String,
    /// Id of this node, whose flows are programmed.
    pub node: String,
    /// The other endpoints, with the prefixes behind each, because flows contain no prefixes.
    pub peers: BTreeMap<String, Vec<IpNet>>,
    /// Disjointness of the paths: `none`, `link`, `node` or `srlg`.
    pub disjointness: String,
    /// Sharing of links: `exclusive` or `shared`.
    pub sharing: String,
    /// Id of the tenant.
    pub tenant: Option<String>,
    /// Policy of the topology.
    pub policy: Option<String>,
    /// Flexible algorithm.
    pub algo: Option<u8>,
    /// Duration of the allocation's lease.
    pub lease: Duration,
    /// CA certificates (PEM) for an `https` endpoint; `None` means those of the system.
    pub ca: Option<String>,
    /// Time between two rounds.
    pub interval: Duration,
    /// Maximum time for one answer.
    pub timeout: Duration,
    /// Maximum number of bytes of answers that are held at a time.
    pub max_answer: usize,
    /// Limits on the carriers that the controller may use; its prefixes come from the configuration.
    pub allowed: Allowed,
    /// Whether the task changes nothing at the server: it neither requests the workload nor keeps it alive, and reads
    /// the flows if the workload exists.
    pub only_look: bool,
}

/// Runs until the task is told to stop, or until nobody receives its snapshots.
pub async fn run(settings: Settings, publish: watch::Sender<Arc<Snapshot>>, mut commands: mpsc::Receiver<Command>) {
    // Prefixes come from the configuration; only carriers come from the controller.
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
    let Stop { done } = task.run_rounds(&mut commands).await;
    if let Some(done) = done {
        task.complete().await;
        // The receiver may have been dropped.
        let _ = done.send(());
    }
}
