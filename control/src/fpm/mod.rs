//! `[fpm]`: FRR's zebra connects and says what it routes; what is in force is said back.
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

use crate::api::state::FpmView;
use crate::config::{self, FpmDialect, Optional};
use admission::Admission;
pub use placed::Placed;

/// Where zebra connects to unless it is told otherwise (`fpm address`).
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2620);
const DEFAULT_STALE_TIME: Duration = Duration::from_mins(1);
const DEFAULT_RESTART_TIME: Duration = Duration::from_mins(15);

/// `[fpm]` with its defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Who may connect.
    admission: Admission,
    /// How long what was announced stays while nobody is connected.
    pub restart_time: Duration,
    /// How long nothing stale may be announced again until the rest goes.
    pub stale_time: Duration,
    /// Who speaks; `None`: seen from what it says.
    pub dialect: Option<Dialect>,
    /// How much may be announced.
    pub limits: Limits,
}

impl Settings {
    /// Of the configuration's table.
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

/// Everything that is announced at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Counted up with every change.
    pub serial: u64,
    /// Who said it; `None`: nothing has told yet.
    pub dialect: Option<Dialect>,
    /// Routes, next hops found.
    pub routes: Vec<Announced>,
    /// SIDs in messages of their own.
    pub sids: Vec<(Ipv6Net, LocalSid)>,
}

/// A snapshot has been planned: all of its routes are in force but these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// Of the snapshot.
    pub serial: u64,
    /// Not in force: left to the kernel, waiting, or the file says something else.
    pub without: Vec<RouteKey>,
}

/// How it goes.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Why nobody can connect.
    pub not_listening: Option<String>,
    /// Who is connected.
    pub peer: Option<SocketAddr>,
    /// Since when somebody is, or nobody is any more; `None`: nobody ever was.
    pub since: Option<SystemTime>,
    /// How the last connection ended.
    pub last_error: Option<String>,
    /// Seen in what is said, or configured.
    pub dialect: Option<Dialect>,
    /// What is counted, as it is shown; who is connected, and what became of the routes, is filled in there.
    pub counts: FpmView,
}

/// The server, if `[fpm]` is configured. It has a thread of its own: however much a peer says, the control loop goes on.
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
            error!(
                "fpm: cannot start its thread: {why}; write [fpm] anew and `srv6d reload` when there is room for it"
            );
        }
        Self { settings, snapshots, status, in_force }
    }
}

impl Fpm {
    /// Starts, changes or ends the server so that it is the configuration's. What was announced stays through changes.
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

    /// Returns when something else is announced. Can be cancelled without losing a change.
    pub async fn changed(&mut self) {
        if let Some(running) = &mut self.0
            && running.snapshots.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// What is announced now; `None`: `[fpm]` is not configured.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.0.as_ref().map(|running| running.snapshots.borrow().clone())
    }

    /// How it goes, and where it listens; `None`: `[fpm]` is not configured.
    pub fn status(&self) -> Option<(SocketAddr, Status)> {
        self.0.as_ref().map(|running| (running.settings.borrow().listen, running.status.borrow().clone()))
    }

    /// A snapshot was planned: the server may go on.
    pub fn planned(&self, in_force: InForce) {
        if let Some(running) = &self.0 {
            // Its thread ends with this struct alone.
            let _ = running.in_force.send(in_force);
        }
    }
}
