//! `[fpm]`: FRR's zebra connects and announces its routes; srv6d answers which of them are in force.
//!
//! ```text
//! zebra ──TCP──► server.rs ─► Snapshot ─► placed.rs ─► Environment::announced ─► plan ─► generation
//!   ▲              Rib                   VRFs are tables                                   │
//!   └── offloaded ◄── answers.rs ◄── InForce: everything but these ◄───────────────────────┘
//! ```

mod admission;
mod answers;
mod owner;
mod placed;
mod server;
pub mod view;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ipnet::Ipv6Net;
use srv6d_fpm::{Announced, Dialect, Limits, LocalSid, RouteKey};
use tokio::sync::{mpsc, watch};
use tracing::error;

use admission::Admission;
pub use placed::Placed;
use srv6d_api::state::FpmView;
use srv6d_config::{self as config, FpmDialect, Optional};

/// The address to which zebra connects by default (`fpm address`).
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2620);
const DEFAULT_STALE_TIME: Duration = Duration::from_mins(1);
const DEFAULT_RESTART_TIME: Duration = Duration::from_mins(15);

/// The settings of `[fpm]` with their defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The peers that may connect.
    admission: Admission,
    /// How long announced routes stay while no peer is connected.
    pub restart_time: Duration,
    /// If no stale route is announced again for this long, the remaining stale routes are removed.
    pub stale_time: Duration,
    /// The dialect that the peer speaks. `None`: it is recognised by the messages.
    pub dialect: Option<Dialect>,
    /// Limits on the number of announced routes.
    pub limits: Limits,
}

impl Settings {
    /// Reads the settings from the configuration's table.
    pub fn of(table: &config::Fpm) -> Self {
        Self {
            listen: or(&table.listen, config::ListenAddress(DEFAULT_LISTEN)).0,
            admission: Admission::of(table),
            restart_time: or(&table.restart_time, DEFAULT_RESTART_TIME),
            stale_time: or(&table.stale_time, DEFAULT_STALE_TIME),
            dialect: match or(&table.dialect, FpmDialect::Auto) {
                FpmDialect::Auto => None,
                FpmDialect::Frr => Some(Dialect::Stock),
                FpmDialect::Sonic => Some(Dialect::Sonic),
            },
            limits: table.max_routes.as_ref().map_or_else(Limits::default, |most| Limits {
                routes: usize::try_from(*most.get_ref()).unwrap_or(usize::MAX),
            }),
        }
    }
}

#[expect(clippy::ref_option, reason = "as the fields of the schema are")]
fn or<T: Copy>(value: &Optional<T>, default: T) -> T {
    value.as_ref().map_or(default, |value| *value.get_ref())
}

/// All routes and SIDs that are announced at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Serial number, which grows with every change.
    pub serial: u64,
    /// The dialect of the peer. `None`: it is not known yet.
    pub dialect: Option<Dialect>,
    /// Routes with their next hops resolved.
    pub routes: Vec<Announced>,
    /// SIDs that came in messages of their own.
    pub sids: Vec<(Ipv6Net, LocalSid)>,
}

/// The result of planning a snapshot: all of its routes are in force except those listed here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// Serial number of the snapshot.
    pub serial: u64,
    /// Routes that are not in force: they are left to the kernel, they wait, or the file says something else.
    pub without: Vec<RouteKey>,
}

/// The state of the server.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Why the server cannot listen.
    pub not_listening: Option<String>,
    /// The connected peer.
    pub peer: Option<SocketAddr>,
    /// Time at which the connection of the present peer began, or at which the last connection ended. `None`: no peer
    /// was ever connected.
    pub since: Option<SystemTime>,
    /// The reason why the last connection ended.
    pub last_error: Option<String>,
    /// The dialect, as recognised or configured.
    pub dialect: Option<Dialect>,
    /// The counters as they are shown. The peer and the state of the routes are filled in when they are shown.
    pub counts: FpmView,
}

/// The server, if `[fpm]` is configured. It has a thread of its own, so that the control loop is not delayed by a peer
/// that announces many routes.
#[derive(Debug, Default)]
pub struct Fpm(Option<Running>);

#[derive(Debug)]
struct Running {
    settings: watch::Sender<Settings>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    status: watch::Receiver<Status>,
    in_force: mpsc::UnboundedSender<InForce>,
}

impl Running {
    fn start(settings: Settings) -> Self {
        let (settings, told) = watch::channel(settings);
        let (publish, snapshots) = watch::channel(Arc::default());
        let (report, status) = watch::channel(Status::default());
        let (in_force, planned) = mpsc::unbounded_channel();
        let serve = move || server::run_on_this_thread(told, publish, report, planned);
        if let Err(why) = std::thread::Builder::new().name("srv6d-fpm".to_owned()).spawn(serve) {
            error!("fpm: cannot start its thread: {why}; allow srv6d more threads, and restart it");
        }
        Self { settings, snapshots, status, in_force }
    }
}

impl Fpm {
    /// Starts, changes or ends the server according to the configuration. Announced routes stay through changes.
    pub fn configure(&mut self, table: Option<&config::Fpm>) {
        match (table.map(Settings::of), &self.0) {
            (None, _) => self.0 = None,
            (Some(settings), None) => self.0 = Some(Running::start(settings)),
            (Some(settings), Some(running)) => {
                running.settings.send_if_modified(|known| {
                    let is_another = *known != settings;
                    *known = settings;
                    is_another
                });
            }
        }
    }

    /// Waits until the announced routes have changed. It can be cancelled without losing a change.
    pub async fn changed(&mut self) {
        if let Some(running) = &mut self.0
            && running.snapshots.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// Returns what is announced now. `None`: `[fpm]` is not configured.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.0.as_ref().map(|running| running.snapshots.borrow().clone())
    }

    /// Returns the address that the server listens on and its state. `None`: `[fpm]` is not configured.
    pub fn status(&self) -> Option<(SocketAddr, Status)> {
        self.0.as_ref().map(|running| (running.settings.borrow().listen, running.status.borrow().clone()))
    }

    /// Tells the server that a snapshot was planned, so that it may publish the next one.
    pub fn planned(&self, in_force: InForce) {
        if let Some(running) = &self.0 {
            // Sending fails only if the server's thread has ended, which happens only together with this struct.
            let _ = running.in_force.send(in_force);
        }
    }
}
