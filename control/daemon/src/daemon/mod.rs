//! `srv6d run`: one control loop on one thread.
//!
//! ```text
//! kernel (links, addresses, neighbours, routes) ─┐
//! FRR's routes, offers of controllers ───────────┤
//! SIGHUP, `srv6d reload` ────────────────────────┼─► plan ─► attach, publish, detach ─► steering routes
//! packets that wait for a neighbour ─────────────┤   (node.rs)
//! routers that say "packet too big" ─────────────┘
//! ```
//!
//! Packets never pass through this loop: workers forward whether it is busy or not.

mod answers;
mod explain;
#[cfg(feature = "faults")]
mod fault;
#[cfg(not(feature = "faults"))]
#[path = "no_fault.rs"]
mod fault;
mod history;
mod jobs;
mod node;
mod overlay;
mod path_mtu;
mod reading;
mod redirects;
mod resolution;
mod view;
mod watchdog;

use std::fs;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use caps::Capability;
use sd_notify::NotifyState;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{Level, error, info, warn};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::confine;
use crate::fpm::Fpm;
use crate::job::{Jobs, Placed};
use crate::kernel::{self, Guards, KernelError, Mirror};
use crate::limits;
use crate::metrics::{self, Scrape};
use crate::probes::UnusedPaths;
use crate::source::running::Controllers;
use fault::Fault;
use node::Node;
pub use overlay::{Configured, Extension, Overlay, Synced};
use reading::{Job, Read, Readings, is_read_for};
use redirects::Redirects;
use srv6d_api::server::{self, ListenError, Question, Server};
use srv6d_api::{DEFAULT_SOCKET, Request, Response};
use srv6d_config::{Config, Errors};
use srv6d_plan::{self as plan, Environment};
use srv6d_srv6::desired::Links;
use watchdog::Watchdog;

/// Interval at which neighbours in use are refreshed and missing ones are asked for again.
const TICK: Duration = Duration::from_secs(3);

/// Number of questions that may wait for the control loop.
const QUEUE: usize = 16;

/// The reason why the daemon did not start, or ended unexpectedly.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration file cannot be read.
    #[error("cannot read {path}: {why}; name another file with --config")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        why: io::Error,
    },
    /// The configuration is invalid.
    #[error(transparent)]
    Invalid(#[from] Errors),
    /// The management socket cannot be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Netlink, the own veth or the guard failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// AF_XDP or the compilation of the tables failed.
    #[error(transparent)]
    Dataplane(#[from] srv6d_dataplane::DataplaneError),
    /// A worker panicked.
    #[error("a worker has died (its panic is above): srv6d ends, and its ports are the kernel's again")]
    WorkerDied,
    /// Somebody deleted the own veth.
    #[error("srv6d's own interface {0} was deleted: srv6d ends, and its ports are the kernel's again; start it again")]
    OwnVethGone(String),
    /// The runtime or a signal handler failed.
    #[error("cannot {what}: {why}")]
    System {
        /// The failed action.
        what: &'static str,
        /// The error of the system.
        why: io::Error,
    },
}

/// A daemon that has read its configuration, started its guards, and given up privileges.
#[derive(Debug)]
pub struct Prepared {
    path: PathBuf,
    extension: Arc<dyn Extension>,
    configured: Configured,
    guards: Guards,
    unconfined: bool,
    has_client_inside: bool,
}

impl Prepared {
    /// Reads the configuration and gives up privileges unless `unconfined`. It must be called while the process has
    /// one thread, because later threads inherit its privileges. `socket` overrides the configuration's.
    /// `extension` reads the configuration, now and later.
    ///
    /// # Errors
    /// Returns an error if the configuration cannot be read or is invalid, or a guard process cannot be started.
    pub fn new(
        path: &Path,
        unconfined: bool,
        socket: Option<&Path>,
        extension: Arc<dyn Extension>,
    ) -> Result<Self, RunError> {
        log_to_stderr();
        limits::raise_open_files();
        let configured = read(path, &*extension)?;
        // The privilege to execute a program is given up below.
        let guards = Guards::spawn()?;
        if unconfined {
            warn!("privileges are kept, as --unconfined asks");
        } else {
            let socket = socket_of(&configured.config, socket);
            if let Some(directory) = socket.parent() {
                let _ = server::make_directory(directory); // the server says what is wrong with it
            }
            confine(path, &changed_by(&configured.config, socket));
        }
        if srv6d_xsk::probe::speculation_barriers() {
            warn!("CAP_PERFMON is missing: {BARRIERS}");
        }
        Ok(Self { path: path.to_owned(), extension, configured, guards, unconfined, has_client_inside: false })
    }

    /// Keeps the right to connect Unix streams, for a thread of this process that asks over the management socket.
    #[must_use]
    pub fn with_client_inside(self) -> Self {
        Self { has_client_inside: true, ..self }
    }

    /// Runs until SIGTERM or SIGINT. `socket` overrides the configuration's.
    ///
    /// # Errors
    /// Returns [`RunError`]. The kernel has its ports back in any case.
    pub fn run(self, socket: Option<PathBuf>) -> Result<(), RunError> {
        let runtime = runtime()?;
        let ended = runtime.block_on(serve(self, socket));
        // A configuration that is still being read is of no use any more.
        runtime.shutdown_background();
        ended
    }
}

/// Returns the path of the management socket. `socket` overrides the configuration's.
fn socket_of<'a>(config: &'a Config, socket: Option<&'a Path>) -> &'a Path {
    let written = config.api.socket.as_ref().map(|socket| socket.get_ref().as_path());
    socket.or(written).unwrap_or(Path::new(DEFAULT_SOCKET))
}

/// Returns the directories of the files that the daemon changes: its socket, the states of controllers and jobs, and settings of
/// interfaces.
fn changed_by(config: &Config, socket: &Path) -> Vec<PathBuf> {
    let state = config.jalapeno.as_ref().and_then(|jalapeno| jalapeno.state.as_ref());
    let jobs = config.jobs.as_ref().and_then(|jobs| jobs.state.as_ref());
    let states = [state, jobs].into_iter().flatten().map(|state| state.get_ref().as_path());
    let files = [socket].into_iter().chain(states);
    // A relative path without a directory is in the current one.
    let directory = |file: &Path| match file.parent() {
        Some(directory) if directory != Path::new("") => directory.to_owned(),
        _ => PathBuf::from("."),
    };
    files.map(directory).chain(confine::SETTINGS.map(PathBuf::from)).collect()
}

/// What becomes of programs that are loaded without `CAP_PERFMON`.
const BARRIERS: &str = "the kernel's verifier puts barriers against speculation into the XDP and tc programs, which then take \
                        two to four times as long; give the process that capability, too (`srv6d doctor`)";

fn capabilities() -> Vec<Capability> {
    confine::of_the_daemon().unwrap_or_else(|_| confine::OF_THE_DAEMON.to_vec())
}

/// Gives up the privileges that the daemon does not need, and logs failures.
fn confine(path: &Path, changed: &[PathBuf]) {
    // This comes before the system calls are filtered.
    if let Err(why) = confine::only_change_below(changed) {
        warn!("cannot restrict which files are changed: {why}; srv6d runs with more privileges than it needs");
    }
    let locked_memory = limits::raise_locked_memory();
    let mut keep = capabilities();
    if !locked_memory {
        // This privilege is needed until the workers have their packet memory.
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

/// Removes the veth of a daemon that was killed, and with it the routes into it. Returns false if there is none.
///
/// # Errors
/// Returns an error if it belongs to a running daemon, or the kernel refuses to remove it.
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

/// Returns the present state of the kernel.
///
/// # Errors
/// Returns an error if netlink fails.
pub fn environment() -> Result<Environment, RunError> {
    runtime()?.block_on(async {
        let mut mirror = Mirror::start()?;
        mirror.follow_routes(true)?;
        Ok(mirror.environment().await?)
    })
}

/// Returns the queueing discipline of a device's transmit side. Returns `None` if the device does not exist, or the
/// kernel gives no answer.
pub fn qdisc(interface: &str) -> Option<String> {
    let index = nix::net::if_::if_nametoindex(interface).ok()?;
    let runtime = runtime().ok()?;
    runtime.block_on(async { kernel::root_qdiscs(Mirror::start().ok()?.handle()).await.remove(&index) })
}

/// Returns the gateway of the kernel's route to an address, if it has one.
///
/// # Errors
/// Returns an error if netlink fails.
pub fn gateway(address: std::net::IpAddr) -> Result<Option<std::net::IpAddr>, RunError> {
    runtime()?.block_on(async { Ok(Mirror::start()?.gateway(address).await) })
}

fn runtime() -> Result<tokio::runtime::Runtime, RunError> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|why| RunError::System { what: "start the control loop", why })
}

fn read(path: &Path, extension: &dyn Extension) -> Result<Configured, RunError> {
    let text = srv6d_text::read_text(path).map_err(|why| RunError::Unreadable { path: path.to_owned(), why })?;
    Ok(extension.read(&text, &path.display().to_string(), &kernel::interfaces())?)
}

/// Logs to standard error. `RUST_LOG` sets the levels.
pub fn log_to_stderr() {
    let info = || Targets::new().with_default(Level::INFO);
    let asked = std::env::var("RUST_LOG").ok().filter(|asked| !asked.is_empty()).map(|asked| asked.parse::<Targets>());
    let (levels, refused) = match asked {
        None => (info(), None),
        Some(Ok(levels)) => (levels, None),
        Some(Err(why)) => (info(), Some(why)),
    };
    let log = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_target(false);
    let log = log.with_ansi(io::stderr().is_terminal());
    // journald adds its own time stamps.
    let under_systemd = std::env::var_os("JOURNAL_STREAM").is_some();
    let log = if under_systemd { log.without_time().boxed() } else { log.boxed() };
    // This fails only for a second daemon in the same process (in a test).
    let _ = tracing_subscriber::registry().with(log.with_filter(levels)).try_init();
    if let Some(why) = refused {
        warn!("RUST_LOG is passed over, the level is info: {why}; write e.g. RUST_LOG=debug, or srv6d=debug,warn");
    }
}

/// An event that wakes up the control loop.
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
    Links,
    Paths,
    Hangup,
    Read(Box<(Job, Read)>),
    Placed(Box<Placed>),
    Fault,
    Stop(&'static str),
}

/// The origins of events.
struct Events {
    mirror: Mirror,
    /// Path of the management socket.
    socket: PathBuf,
    sources: Controllers,
    fpm: Fpm,
    links: watch::Receiver<Arc<Links>>,
    unused_paths: watch::Receiver<UnusedPaths>,
    workers: AsyncFd<OwnedFd>,
    questions: mpsc::Receiver<Question>,
    scrapes: mpsc::Receiver<Scrape>,
    tick: Interval,
    redirects: Redirects,
    watchdog: Watchdog,
    hangup: Signal,
    readings: Readings,
    fault: Fault,
    terminate: Signal,
    interrupt: Signal,
}

impl Events {
    async fn next(&mut self, offloads: bool, has_postponed: bool, jobs: &mut Jobs) -> Event {
        tokio::select! {
            _ = self.terminate.recv() => Event::Stop("SIGTERM"),
            _ = self.interrupt.recv() => Event::Stop("SIGINT"),
            ready = self.workers.readable() => {
                // The flag is cleared before the descriptor is read, so that an event between the two wakes the loop
                // once more.
                if let Ok(mut ready) = ready {
                    ready.clear_ready();
                }
                Event::Workers
            }
            () = self.mirror.changed() => Event::Kernel,
            source = self.sources.changed() => Event::Offer(source),
            () = self.fpm.changed() => Event::Announced,
            Ok(()) = self.links.changed() => Event::Links,
            Ok(()) = self.unused_paths.changed() => Event::Paths,
            _ = self.hangup.recv() => Event::Hangup,
            read = self.readings.next() => Event::Read(Box::new(read)),
            placed = jobs.placed() => Event::Placed(Box::new(placed)),
            () = self.fault.wanted() => Event::Fault,
            Some(question) = self.questions.recv() => Event::Question(question),
            Some(scrape) = self.scrapes.recv() => Event::Scrape(scrape),
            _ = self.tick.tick() => Event::Tick,
            () = self.redirects.may_have_changed(), if offloads => Event::Redirects,
            () = self.watchdog.due() => Event::Beat,
            () = tokio::time::sleep(resolution::ANSWER), if has_postponed => Event::Postponed,
        }
    }
}

impl Events {
    /// Changes the sources to those of the configuration in force. Returns true if jobs offer other paths than before.
    fn configure(&mut self, node: &mut Node) -> bool {
        self.sources.configure(node.inputs.config(), &node.name);
        let table = node.inputs.config().fpm.clone();
        if table.is_none() {
            node.forget_announced();
        }
        self.fpm.configure(table.as_ref());
        node.glb.read_key();
        node.jobs.configure(node.inputs.config(), &self.socket)
    }
}

/// Tells the node the state of its sources.
fn report(node: &mut Node, sources: &Controllers, fpm: &Fpm) {
    (node.statuses, node.fpm) = (sources.status(), fpm.status());
}

async fn serve(prepared: Prepared, socket: Option<PathBuf>) -> Result<(), RunError> {
    let Prepared { path, extension, configured, guards, unconfined, has_client_inside } = prepared;
    let handler = |kind| signal(kind).map_err(|why| RunError::System { what: "handle signals", why });
    let (hangup, terminate) = (handler(SignalKind::hangup())?, handler(SignalKind::terminate())?);
    let interrupt = handler(SignalKind::interrupt())?;
    // Without a handler they would end the daemon and take its ports with it. A handler stays when its stream is dropped.
    for without_meaning in [SignalKind::user_defined1(), SignalKind::user_defined2(), SignalKind::alarm()] {
        drop(handler(without_meaning)?);
    }
    let fault = Fault::armed_by_environment().map_err(|why| RunError::System { what: "handle signals", why })?;
    let mut mirror = Mirror::start()?;
    mirror.follow_routes(true)?;
    let planned = plan::plan(&configured.config, &configured.environment(&mirror.environment().await?))?;
    // This is the first change, because a second daemon must not disturb the first.
    let socket = socket.unwrap_or_else(|| planned.api.socket.clone());
    let server = Server::listen(&socket)?;
    if !unconfined
        && !has_client_inside
        && let Some(failure) = confine::refuse_local_streams()
    {
        warn!("{failure}; srv6d runs with more privileges than it needs");
    }
    let (clients, questions) = mpsc::channel(QUEUE);
    let (collectors, scrapes) = mpsc::channel(QUEUE);

    let mut node = Box::pin(Node::start(&path, extension, configured, guards, &planned, &mut mirror)).await?;
    if !unconfined {
        confine::keep_of_this_thread(&capabilities());
    }
    let workers = match node.wakeup().and_then(watch) {
        Ok(workers) => workers,
        Err(why) => {
            node.stop(&mirror).await;
            return Err(RunError::System { what: "listen to the workers", why });
        }
    };
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut events = Events {
        mirror,
        socket,
        sources: Controllers::default(),
        fpm: Fpm::default(),
        links: node.glb.links(),
        unused_paths: node.probing.unused(),
        workers,
        questions,
        scrapes,
        tick,
        redirects: Redirects::start(),
        watchdog: Watchdog::start(),
        hangup,
        readings: Readings::default(),
        fault,
        terminate,
        interrupt,
    };
    if events.configure(&mut node) {
        // Ranks that joined before a restart have their paths again before anything is answered.
        node.follow_jobs("jobs", &mut events.mirror).await?;
    }
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
    let _ = serving.await; // this removes its socket file
    ended
}

/// Watches a descriptor on which the control loop sleeps.
#[allow(deprecated, reason = "the constructor without `unsafe`: an OwnedFd stays open and itself while it is watched")]
fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// Serves metrics. A failure (`lo` down, port taken) is logged, and the node forwards nevertheless.
async fn serve_metrics(address: std::net::SocketAddr, control: mpsc::Sender<Scrape>) {
    match metrics::listen(address).await {
        Ok(listener) => drop(tokio::spawn(metrics::serve(listener, control))),
        Err(why) => warn!("no metrics on {address}: {why}; set `lo` up, or choose another [api] metrics or \"off\""),
    }
}

async fn control(node: &mut Node, events: &mut Events) -> Result<(), RunError> {
    let mut told = node.status();
    loop {
        let (offloads, has_postponed) = (node.dataplane.offloads(), node.resolutions.has_postponed());
        let event = events.next(offloads, has_postponed, &mut node.jobs).await;
        let is_of_a_client = matches!(event, Event::Question(_) | Event::Scrape(_));
        let mirror = &mut events.mirror;
        match event {
            Event::Stop(why) => {
                info!("{why}: stopping");
                return Ok(());
            }
            Event::Workers => node.serve_workers(mirror).await?,
            Event::Kernel => node.follow_kernel(mirror).await?,
            Event::Tick => {
                node.tick(mirror).await?;
                if node.jobs.sweep() {
                    node.follow_jobs("jobs", mirror).await?;
                }
            }
            Event::Redirects => node.dataplane.refresh_offload(),
            Event::Beat => events.watchdog.beat(),
            Event::Postponed => node.ask_for_postponed(mirror),
            Event::Offer(source) => {
                node.statuses = events.sources.status();
                let mut offers = events.sources.offers();
                offers.extend(node.jobs.offers());
                node.follow_offers(offers, source, mirror).await?;
            }
            Event::Announced => node.follow_announced(events.fpm.snapshot(), mirror).await?,
            Event::Links => {
                let links = events.links.borrow_and_update().clone();
                node.follow_links(links, mirror).await?;
            }
            Event::Paths => {
                let unused = events.unused_paths.borrow_and_update().clone();
                node.follow_paths(unused, mirror).await?;
            }
            Event::Fault => events.fault.happen(&node.dataplane),
            Event::Hangup => {
                events.readings.add(Job { request: Request::Reload { dry_run: false }, answer: None }, node);
            }
            Event::Read(read) => {
                let (Job { request, answer }, read) = *read;
                report(node, &events.sources, &events.fpm);
                let changes_inputs = matches!(request, Request::Reload { .. } | Request::Rollback { .. });
                let response = Box::pin(node.answer_read(request, read, mirror)).await;
                if changes_inputs && events.configure(node) {
                    node.follow_jobs("jobs", &mut events.mirror).await?;
                }
                match answer {
                    Some(answer) => drop(answer.send(response.into())), // a client that hung up is no error
                    None => log_refusal(&response),
                }
                events.readings.go_on(node);
            }
            Event::Placed(placed) => {
                let done = node.jobs.follow(*placed);
                node.finish_job(done, mirror).await?;
            }
            Event::Question(Question { request: Request::Job(request), peer, answer }) => {
                let done = node.jobs.take(*request, peer, answer);
                node.finish_job(done, mirror).await?;
            }
            Event::Question(Question { request, answer, .. }) if is_read_for(&request) => {
                events.readings.add(Job { request, answer: Some(answer) }, node);
            }
            Event::Question(Question { request: Request::Capture { ports, direction }, answer, .. }) => {
                let _ = answer.send(node.capture(&ports, direction)); // a client that hung up is no error
            }
            Event::Question(Question { request, answer, .. }) => {
                report(node, &events.sources, &events.fpm);
                if request == Request::Sync {
                    events.sources.sync();
                }
                let answered = node.answer(request, mirror).await;
                // A client that hung up is no error.
                let _ = answer.send(answered);
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
        if is_of_a_client {
            // The runtime looks at descriptors only when the loop yields to it. Otherwise a hundred waiting clients
            // would be answered before what the kernel and the workers say is noticed.
            tokio::task::yield_now().await;
        }
    }
}

fn log_refusal(response: &Response) {
    if let Response::Refused(refusal) = response {
        error!("reload refused, the old configuration stays in force:\n{}", refusal.errors.join("\n"));
    }
}

fn notify(states: &[NotifyState]) {
    if let Err(why) = sd_notify::notify(states) {
        warn!("cannot tell systemd: {why}");
    }
}
