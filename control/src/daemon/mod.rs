//! `srv6d run`: one control loop on one thread.
//!
//! ```text
//! kernel (links, addresses, neighbours) ─┐
//! SIGHUP, `srv6d reload` ────────────────┼─► plan ─► attach, publish, detach ─► steering routes
//! packets that wait for a neighbour ─────┤   (node.rs)
//! routers that say "packet too big" ─────┘
//! ```
//!
//! Packets never pass here: workers forward whether this loop is busy or not.

mod answers;
mod fault;
mod history;
mod node;
mod path_mtu;
mod resolution;
mod view;
mod watchdog;

use std::fs;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use caps::Capability;
use sd_notify::NotifyState;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

use crate::api::Request;
use crate::api::server::{ListenError, Question, Server};
use crate::config::{Config, Errors};
use crate::confine;
use crate::files;
use crate::fpm::Fpm;
use crate::kernel::{self, Guards, KernelError, Mirror};
use crate::limits;
use crate::metrics::{self, Scrape};
use crate::plan::{self, Environment};
use crate::sonic;
use crate::source::running::Sources;
use fault::Fault;
use node::Node;
use watchdog::Watchdog;

/// How often neighbours in use are kept fresh and absent ones are asked for again.
const TICK: Duration = Duration::from_secs(3);

/// How often ports are asked whether they still send what XDP programs redirect into them: what they do not is lost.
const REDIRECTS: Duration = Duration::from_millis(500);

/// Questions that may wait for the control loop.
const QUEUE: usize = 16;

/// Why the daemon did not start, or ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration file cannot be read.
    #[error("cannot read {path}: {why}; name another file with --config")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// The configuration is invalid.
    #[error(transparent)]
    Invalid(#[from] Errors),
    /// The management socket.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Netlink, own veth, guard.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// AF_XDP, or the tables.
    #[error(transparent)]
    Dataplane(#[from] srv6d_dataplane::DataplaneError),
    /// A worker panicked.
    #[error("a worker has died (its panic is above): srv6d ends, and its ports are the kernel's again")]
    WorkerDied,
    /// Somebody deleted the own veth.
    #[error("srv6d's own interface {0} was deleted: srv6d ends, and its ports are the kernel's again; start it anew")]
    OwnVethGone(String),
    /// The runtime or a signal handler.
    #[error("cannot {what}: {why}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        why: io::Error,
    },
}

/// A daemon that has read its configuration, started its guards, and given up what it does not need.
#[derive(Debug)]
pub struct Prepared {
    path: PathBuf,
    config: Config,
    guards: Guards,
    unconfined: bool,
}

impl Prepared {
    /// Reads the configuration and gives privileges up unless `unconfined`. To be called while the process has one thread:
    /// the ones that are started later have no more than it.
    ///
    /// # Errors
    /// The configuration cannot be read, or is invalid; a guard process cannot be started.
    pub fn new(path: &Path, unconfined: bool) -> Result<Self, RunError> {
        log_to_stderr();
        limits::raise_open_files();
        let config = read(path)?;
        // Executing a program is among what is given up.
        let guards = Guards::spawn()?;
        if unconfined {
            warn!("privileges are kept, as --unconfined asks");
        } else {
            confine(path);
        }
        Ok(Self { path: path.to_owned(), config, guards, unconfined })
    }

    /// Runs until SIGTERM or SIGINT; `socket` overrides the configuration's.
    ///
    /// # Errors
    /// [`RunError`]; ports are the kernel's again in any case.
    pub fn run(self, socket: Option<PathBuf>) -> Result<(), RunError> {
        runtime()?.block_on(serve(self, socket))
    }
}

/// Gives up what the daemon does not need, and says where that is felt.
fn confine(path: &Path) {
    let locked_memory = limits::raise_locked_memory();
    let mut keep = confine::OF_THE_DAEMON.to_vec();
    if !locked_memory {
        // Until the workers have their packet memory.
        keep.push(Capability::CAP_IPC_LOCK);
    }
    for failure in confine::confine(&keep) {
        warn!("{failure}; srv6d runs with more privileges than it needs");
    }
    if let Err(why) = fs::File::open(path) {
        warn!(
            "{} can no longer be read ({why}): srv6d has given up the right to read other users' files, and `reload` will \
             fail; let the file belong to the user that runs srv6d, or start srv6d with --unconfined",
            path.display()
        );
    }
}

/// Removes the veth of a daemon that was killed, and with it the routes into it. False: there is none.
///
/// # Errors
/// It belongs to a daemon that runs, or the kernel refuses.
pub fn cleanup(interface: &str) -> Result<bool, RunError> {
    runtime()?.block_on(async {
        let mirror = Mirror::start()?;
        let removed = kernel::remove_stale(mirror.handle(), interface).await?;
        if removed {
            kernel::remove_leftovers(mirror.handle(), interface).await?;
        }
        Ok(removed)
    })
}

/// What the kernel shows now.
///
/// # Errors
/// No netlink.
pub fn environment() -> Result<Environment, RunError> {
    runtime()?.block_on(async {
        let mut mirror = Mirror::start()?;
        mirror.follow_routes(true)?;
        Ok(mirror.environment().await?)
    })
}

/// The queueing discipline for what a device sends. `None`: there is no such device, or the kernel does not tell.
pub fn qdisc(interface: &str) -> Option<String> {
    let index = nix::net::if_::if_nametoindex(interface).ok()?;
    let runtime = runtime().ok()?;
    runtime.block_on(async { kernel::root_qdiscs(Mirror::start().ok()?.handle()).await.remove(&index) })
}

/// The gateway of the kernel's route to an address, if it has one.
///
/// # Errors
/// No netlink.
pub fn gateway(address: std::net::IpAddr) -> Result<Option<std::net::IpAddr>, RunError> {
    runtime()?.block_on(async { Ok(Mirror::start()?.gateway(address).await) })
}

fn runtime() -> Result<tokio::runtime::Runtime, RunError> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|why| RunError::System { what: "start the control loop", why })
}

fn read(path: &Path) -> Result<Config, RunError> {
    let text = files::read_text(path).map_err(|why| RunError::Unreadable { path: path.to_owned(), why })?;
    Ok(sonic::configuration(&text, &path.display().to_string(), Some(&sonic::interfaces()))?)
}

/// What goes on, on standard error; `RUST_LOG` says how much of it.
pub fn log_to_stderr() {
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|asked| !asked.is_empty()).map(EnvFilter::try_new);
    let (filter, refused) = match asked {
        None => (EnvFilter::new("info"), None),
        Some(Ok(filter)) => (filter, None),
        Some(Err(why)) => (EnvFilter::new("info"), Some(why)),
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false);
    // journald has its own time stamps.
    let under_systemd = std::env::var_os("JOURNAL_STREAM").is_some();
    let log = log.with_ansi(io::stderr().is_terminal());
    // Only a second daemon in the same process (a test) has set one already.
    let _ = if under_systemd { log.without_time().try_init() } else { log.try_init() };
    if let Some(why) = refused {
        warn!("RUST_LOG is passed over, the level is info: {why}; write e.g. RUST_LOG=debug, or srv6d=debug,warn");
    }
}

/// What the control loop wakes up for.
enum Event {
    Kernel,
    Workers,
    Tick,
    Redirects,
    Beat,
    Postponed,
    Question(Question),
    Scrape(Scrape),
    Offer(&'static str),
    Announced,
    Hangup,
    Fault,
    Stop(&'static str),
}

/// Where events come from.
struct Events {
    mirror: Mirror,
    sources: Sources,
    fpm: Fpm,
    workers: AsyncFd<OwnedFd>,
    questions: mpsc::Receiver<Question>,
    scrapes: mpsc::Receiver<Scrape>,
    tick: Interval,
    redirects: Interval,
    watchdog: Watchdog,
    hangup: Signal,
    fault: Fault,
    terminate: Signal,
    interrupt: Signal,
}

impl Events {
    async fn next(&mut self, offloads: bool, has_postponed: bool) -> Event {
        tokio::select! {
            _ = self.terminate.recv() => Event::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Event::Stop("SIGINT"),
            ready = self.workers.readable() => {
                // Before the descriptor is read: what happens between the two wakes the loop once more.
                if let Ok(mut ready) = ready {
                    ready.clear_ready();
                }
                Event::Workers
            }
            () = self.mirror.changed() => Event::Kernel,
            source = self.sources.changed() => Event::Offer(source),
            () = self.fpm.changed() => Event::Announced,
            _ = self.hangup.recv() => Event::Hangup,
            () = self.fault.wanted() => Event::Fault,
            Some(question) = self.questions.recv() => Event::Question(question),
            Some(scrape) = self.scrapes.recv() => Event::Scrape(scrape),
            _ = self.tick.tick() => Event::Tick,
            _ = self.redirects.tick(), if offloads => Event::Redirects,
            () = self.watchdog.due() => Event::Beat,
            () = tokio::time::sleep(resolution::ANSWER), if has_postponed => Event::Postponed,
        }
    }
}

impl Events {
    /// Sources are those of the configuration in force.
    async fn configure(&mut self, node: &mut Node) {
        self.sources.configure(&node.inputs.config, &node.name).await;
        let table = node.inputs.config.fpm.clone();
        if table.is_none() {
            node.forget_announced();
        }
        self.fpm.configure(table.as_ref());
    }
}

/// Lets the node know how its sources are doing.
fn report(node: &mut Node, sources: &Sources, fpm: &Fpm) {
    (node.statuses, node.fpm) = (sources.status(), fpm.status());
}

async fn serve(prepared: Prepared, socket: Option<PathBuf>) -> Result<(), RunError> {
    let Prepared { path, config, guards, unconfined } = prepared;
    let handler = |kind| signal(kind).map_err(|why| RunError::System { what: "handle signals", why });
    let (hangup, terminate) = (handler(SignalKind::hangup())?, handler(SignalKind::terminate())?);
    let interrupt = handler(SignalKind::interrupt())?;
    let fault = Fault::armed_by_environment().map_err(|why| RunError::System { what: "handle signals", why })?;
    let mut mirror = Mirror::start()?;
    mirror.follow_routes(true)?;
    let planned = plan::plan(&config, &mirror.environment().await?)?;
    // Before anything is touched: a second daemon must not disturb the first.
    let server = Server::listen(socket.as_deref().unwrap_or(&planned.api.socket))?;
    let (clients, questions) = mpsc::channel(QUEUE);
    let (collectors, scrapes) = mpsc::channel(QUEUE);

    let mut node = Box::pin(Node::start(&path, config, guards, &planned, &mut mirror)).await?;
    if !unconfined {
        confine::keep_of_this_thread(&confine::OF_THE_DAEMON);
    }
    let workers = match node.wakeup().and_then(watch) {
        Ok(workers) => workers,
        Err(why) => {
            node.stop(&mirror).await;
            return Err(RunError::System { what: "listen to the workers", why });
        }
    };
    let every = |period| {
        let mut interval = interval(period);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval
    };
    let (tick, redirects) = (every(TICK), every(REDIRECTS));
    let mut sources = Sources::default();
    sources.configure(&node.inputs.config, &node.name).await;
    let mut fpm = Fpm::default();
    fpm.configure(node.inputs.config.fpm.as_ref());
    let mut events = Events {
        mirror,
        sources,
        fpm,
        workers,
        questions,
        scrapes,
        tick,
        redirects,
        watchdog: Watchdog::start(),
        hangup,
        fault,
        terminate,
        interrupt,
    };
    let serving = tokio::spawn(server.serve(clients));
    if let Some(address) = planned.api.metrics {
        serve_metrics(address, collectors).await;
    }
    notify(&[NotifyState::Ready, NotifyState::Status(&node.status())]);
    info!("ready: {}", node.status());
    let ended = control(&mut node, &mut events).await;
    notify(&[NotifyState::Stopping]);
    events.sources.stop().await;
    node.stop(&events.mirror).await;
    serving.abort();
    let _ = serving.await; // its socket file goes with it
    ended
}

/// A descriptor the control loop sleeps on.
#[allow(deprecated, reason = "the constructor without `unsafe`: an OwnedFd stays open and itself while it is watched")]
fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// Metrics are a comfort: without them (`lo` down, port taken) the node forwards all the same.
async fn serve_metrics(address: std::net::SocketAddr, control: mpsc::Sender<Scrape>) {
    match metrics::listen(address).await {
        Ok(listener) => drop(tokio::spawn(metrics::serve(listener, control))),
        Err(why) => warn!("no metrics on {address}: {why}; set `lo` up, or choose another [api] metrics or \"off\""),
    }
}

async fn control(node: &mut Node, events: &mut Events) -> Result<(), RunError> {
    let mut told = node.status();
    loop {
        let event = events.next(node.dataplane.offloads(), node.resolutions.has_postponed()).await;
        let mirror = &mut events.mirror;
        match event {
            Event::Stop(why) => {
                info!("{why}: stopping");
                return Ok(());
            }
            Event::Workers => node.serve_workers(mirror).await?,
            Event::Kernel => node.follow_kernel(mirror).await?,
            Event::Tick => node.tick(mirror).await?,
            Event::Redirects => node.dataplane.refresh_offload(),
            Event::Beat => events.watchdog.beat(),
            Event::Postponed => node.ask_for_postponed(mirror),
            Event::Offer(source) => {
                node.statuses = events.sources.status();
                node.follow_offers(events.sources.offers(), source, mirror).await?;
            }
            Event::Announced => node.follow_announced(events.fpm.snapshot(), mirror).await?,
            Event::Fault => events.fault.happen(&node.dataplane),
            Event::Hangup => {
                reload(node, mirror).await;
                events.configure(node).await;
            }
            Event::Question(Question { request: Request::Capture { port, .. }, answer }) => {
                let _ = answer.send(node.capture(&port)); // a client that hung up is no error
            }
            Event::Question(Question { request, answer }) => {
                report(node, &events.sources, &events.fpm);
                let changes_inputs = matches!(request, Request::Reload { .. } | Request::Rollback { .. });
                if request == Request::Sync {
                    events.sources.sync();
                }
                let response = node.answer(request, mirror).await;
                if changes_inputs {
                    events.configure(node).await;
                }
                // A client that hung up is no error.
                let _ = answer.send(response.into());
            }
            Event::Scrape(scrape) => {
                report(node, &events.sources, &events.fpm);
                let _ = scrape.send(node.state(mirror).await);
            }
        }
        if let Some(in_force) = node.announced_in_force() {
            events.fpm.planned(in_force);
        }
        let status = node.status();
        if status != told {
            notify(&[NotifyState::Status(&status)]);
            told = status;
        }
    }
}

async fn reload(node: &mut Node, mirror: &mut Mirror) {
    if let crate::api::Response::Refused(refusal) = node.reload(mirror).await {
        error!("reload refused, the old configuration stays in force:\n{}", refusal.errors.join("\n"));
    }
}

fn notify(states: &[NotifyState]) {
    if let Err(why) = sd_notify::notify(states) {
        warn!("cannot tell systemd: {why}");
    }
}
