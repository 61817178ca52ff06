//! Runs the controllers' tasks: one for each, started and ended as the configuration demands.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all, select_all};
use srv6d_controller::jalapeno::Criterion;
use srv6d_controller::{Command, Snapshot, jalapeno, syd};
use srv6d_offer::{Offer, OfferedPath, OfferedSteer};
use srv6d_text::read_text;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{info, warn};

use super::settings::{Steer, jalapeno_settings, syd_settings};
use srv6d_config::Config;

/// Number of commands that may wait for a controller's task.
const QUEUE: usize = 4;
/// Longest time until a task ends, which releases what it has allocated.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);
const JALAPENO: &str = "jalapeno";
const SYD: &str = "syd";

/// The settings that a task was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Settings {
    Jalapeno(jalapeno::Settings),
    Syd(syd::Settings),
}

impl Settings {
    /// Returns settings with which a request changes nothing at the controller, nor in a file of bookings.
    fn only_look(self) -> Self {
        match self {
            Self::Jalapeno(settings) if settings.kind == Criterion::Load => {
                Self::Jalapeno(jalapeno::Settings { kind: Criterion::Shortest, state: None, ..settings })
            }
            Self::Jalapeno(settings) => Self::Jalapeno(settings),
            Self::Syd(settings) => Self::Syd(syd::Settings { only_look: true, ..settings }),
        }
    }

    fn endpoint(&self) -> &str {
        match self {
            Self::Jalapeno(settings) => &settings.endpoint,
            Self::Syd(settings) => &settings.endpoint,
        }
    }

    fn run(self, publish: watch::Sender<Arc<Snapshot>>, commands: mpsc::Receiver<Command>) -> BoxFuture<'static, ()> {
        match self {
            Self::Jalapeno(settings) => jalapeno::run(settings, publish, commands).boxed(),
            Self::Syd(settings) => syd::run(settings, publish, commands).boxed(),
        }
    }
}

/// The thread on which controllers are asked, with a runtime of its own. Long answers keep this thread busy, but not
/// the control loop.
#[derive(Debug)]
struct Thread {
    runtime: Handle,
    /// When this is dropped, the thread ends, and its tasks are dropped.
    _end: oneshot::Sender<()>,
}

impl Thread {
    fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || {
            let _ = runtime.block_on(ended);
            // A large answer that is still being parsed ends by itself.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("srv6d-sources".to_owned()).spawn(run)?;
        Ok(Self { runtime: handle, _end: end })
    }
}

/// One controller's task.
#[derive(Debug)]
struct Running {
    settings: Settings,
    steer: Steer,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
}

impl Running {
    /// Starts a task with the last good state of an earlier one, which is valid until the first answer. It asks only
    /// when the earlier task has ended, because that one would otherwise release what this one has just allocated.
    fn start(
        (settings, steer): Wanted,
        known: Arc<Snapshot>,
        earlier: Option<JoinHandle<()>>,
        runtime: &Handle,
    ) -> Self {
        let (publish, snapshots) = watch::channel(known);
        let (commands, told) = mpsc::channel(QUEUE);
        let run = settings.clone().run(publish, told);
        let task = runtime.spawn(async move {
            if let Some(earlier) = earlier {
                let _ = earlier.await; // a panic has been printed
            }
            run.await;
        });
        Self { settings, steer, snapshots, commands, task }
    }

    /// Ends the task. It is aborted if it takes longer than [`RELEASE_WITHIN`].
    async fn stop(self) {
        let stop = async {
            let (done, stopped) = oneshot::channel();
            self.commands.send(Command::Stop { done }).await.is_ok() && stopped.await.is_ok()
        };
        if timeout(RELEASE_WITHIN, stop).await != Ok(true) {
            self.task.abort();
        }
    }
}

/// The settings that a configuration demands.
type Wanted = (Settings, Steer);

/// Files that the table of a controller names. They are read in parallel to the control loop, because a file system
/// may be slow.
#[derive(Debug)]
struct Reading {
    endpoint: String,
    wanted: JoinHandle<Result<Wanted, String>>,
}

/// An event of a controller.
enum Change {
    /// It has published a snapshot.
    Published,
    /// Its files have been read.
    Read(Box<Result<Wanted, String>>),
}

/// Every controller, by name.
#[derive(Debug, Default)]
pub struct Controllers {
    running: BTreeMap<&'static str, Running>,
    /// Tables whose files are being read.
    reading: BTreeMap<&'static str, Reading>,
    /// Tasks that release what they have allocated, at most one of each name.
    ending: BTreeMap<&'static str, JoinHandle<()>>,
    /// The thread, which is started with the first controller.
    thread: Option<Thread>,
    /// Whether requests must not book or allocate anything.
    only_look: bool,
    /// Reasons why configured controllers were not started.
    refused: BTreeMap<&'static str, String>,
}

/// The current state of one controller.
#[derive(Clone, Debug)]
pub struct Status {
    /// `jalapeno` or `syd`.
    pub name: &'static str,
    /// Address of its API.
    pub endpoint: String,
    /// The snapshot that it published last.
    pub snapshot: Arc<Snapshot>,
    /// The reason why it was not started.
    pub refused: Option<String>,
}

impl Controllers {
    /// Creates sources that book and allocate nothing. Shortest paths replace paths by load, and only existing
    /// workloads of syd are read.
    pub fn that_only_look() -> Self {
        Self { only_look: true, ..Self::default() }
    }

    /// Changes the tasks to those of the configuration. [`Self::changed`] starts each one when its files have been
    /// read. A task whose settings have not changed continues undisturbed, and one without a table ends. This never
    /// waits.
    pub fn configure(&mut self, config: &Config, node: &str) {
        self.refused.clear();
        let only_look = self.only_look;
        let looking = move |settings: Settings| if only_look { settings.only_look() } else { settings };
        let blocks: Vec<_> = config.blocks.iter().map(|block| *block.get_ref().prefix.get_ref()).collect();
        match config.jalapeno.clone() {
            Some(table) => {
                let (endpoint, steer, blocks) =
                    (table.endpoint.get_ref().0.clone(), Steer::of(&table.steering), blocks.clone());
                self.read(JALAPENO, endpoint, move || {
                    Ok((looking(Settings::Jalapeno(jalapeno_settings(&table, blocks, read_text)?)), steer))
                });
            }
            None => self.end(JALAPENO),
        }
        match config.syd.clone() {
            Some(table) => {
                let (endpoint, steer, node) =
                    (table.endpoint.get_ref().0.clone(), Steer::of(&table.steering), node.to_owned());
                self.read(SYD, endpoint, move || {
                    Ok((looking(Settings::Syd(syd_settings(&table, blocks, &node, read_text)?)), steer))
                });
            }
            None => self.end(SYD),
        }
    }

    /// Starts to read the files of a table. Those of an earlier table no longer matter.
    fn read(
        &mut self,
        name: &'static str,
        endpoint: String,
        wanted: impl FnOnce() -> Result<Wanted, String> + Send + 'static,
    ) {
        match self.runtime() {
            Ok(runtime) => {
                let wanted = runtime.spawn_blocking(wanted);
                self.reading.insert(name, Reading { endpoint, wanted });
            }
            Err(why) => {
                self.reading.remove(name);
                let why = format!("cannot start the thread that asks it: {why}; allow srv6d more threads");
                self.refuse(name, why);
            }
        }
    }

    /// Puts a table in force whose files have been read.
    fn put_in_force(&mut self, name: &'static str, wanted: Result<Wanted, String>) {
        let (settings, steer) = match wanted {
            Ok(wanted) => wanted,
            // The earlier offer stays in force, because the mistake is in a file and not in the configuration.
            Err(why) => return self.refuse(name, why),
        };
        if let Some(running) = self.running.get_mut(name).filter(|running| running.settings == settings) {
            running.steer = steer;
            return;
        }
        let known = self.running.get(name).map(|old| old.snapshots.borrow().clone()).unwrap_or_default();
        self.end(name);
        match self.runtime() {
            Ok(runtime) => {
                info!("{name}: paths from {}", settings.endpoint());
                let earlier = self.ending.remove(name);
                self.running.insert(name, Running::start((settings, steer), known, earlier, &runtime));
            }
            Err(why) => self.refuse(name, why.to_string()),
        }
    }

    fn refuse(&mut self, name: &'static str, why: String) {
        warn!("{name}: {why}");
        self.refused.insert(name, why);
    }

    /// Ends a task, if there is one, on the thread of the sources, because its controller may be slow.
    fn end(&mut self, name: &'static str) {
        self.reading.remove(name);
        let Some(old) = self.running.remove(name) else { return };
        if let Ok(runtime) = self.runtime() {
            self.ending.insert(name, runtime.spawn(old.stop()));
        }
    }

    /// Returns the runtime on which controllers are asked.
    fn runtime(&mut self) -> io::Result<Handle> {
        let thread = match self.thread.take() {
            Some(thread) => thread,
            None => Thread::start()?,
        };
        Ok(self.thread.insert(thread).runtime.clone())
    }

    /// Returns the name of a controller that has published, or that has been started or refused. It can be cancelled
    /// without losing anything.
    pub async fn changed(&mut self) -> &'static str {
        let published = self.running.iter_mut().map(|(name, running)| {
            async move {
                if running.snapshots.changed().await.is_err() {
                    // The task has ended, and publishes nothing more.
                    std::future::pending::<()>().await;
                }
                (*name, Change::Published)
            }
            .boxed()
        });
        let read = self.reading.iter_mut().map(|(name, reading)| {
            async move {
                let wanted = (&mut reading.wanted).await;
                let stopped = |why| Err(format!("its files were not read: {why}; reload the configuration"));
                (*name, Change::Read(Box::new(wanted.unwrap_or_else(stopped))))
            }
            .boxed()
        });
        let waiting: Vec<BoxFuture<'_, (&'static str, Change)>> = published.chain(read).collect();
        if waiting.is_empty() {
            return std::future::pending().await;
        }
        let (name, change) = select_all(waiting).await.0;
        if let Change::Read(wanted) = change {
            self.reading.remove(name);
            self.put_in_force(name, *wanted);
        }
        name
    }

    /// Returns the present offers of all controllers.
    pub fn offers(&self) -> Vec<Offer> {
        self.running.iter().map(|(name, running)| offer(name, &running.snapshots.borrow(), &running.steer)).collect()
    }

    /// Returns true if every controller has completed a round.
    pub fn settled(&self) -> bool {
        self.reading.is_empty() && self.running.values().all(|running| running.snapshots.borrow().health.next.is_some())
    }

    /// Returns the state of each controller.
    pub fn status(&self) -> Vec<Status> {
        let running = self.running.iter().map(|(name, running)| Status {
            name,
            endpoint: running.settings.endpoint().to_owned(),
            snapshot: running.snapshots.borrow().clone(),
            refused: self.refused.get(name).cloned(),
        });
        let not_running = |name: &str| !self.running.contains_key(name);
        let status = |name, endpoint, refused| Status { name, endpoint, snapshot: Arc::default(), refused };
        let never = self.refused.iter().filter(|(name, _)| not_running(name));
        let refused = never.map(|(name, why)| status(name, String::new(), Some(why.clone())));
        let not_yet = self.reading.iter().filter(|(name, _)| not_running(name));
        let reading = not_yet.map(|(name, reading)| status(name, reading.endpoint.clone(), None));
        running.chain(refused).chain(reading).collect()
    }

    /// Tells every controller to ask now.
    pub fn sync(&self) {
        for running in self.running.values() {
            // A full queue already holds the same command.
            let _ = running.commands.try_send(Command::Sync);
        }
    }

    /// Ends all of them in parallel.
    pub async fn stop(&mut self) {
        self.end(JALAPENO);
        self.end(SYD);
        // Each task has its own limit. This one is for a thread that hangs.
        let _ = timeout(RELEASE_WITHIN, join_all(std::mem::take(&mut self.ending).into_values())).await;
    }
}

fn offer(name: &str, snapshot: &Snapshot, steer: &Steer) -> Offer {
    let mut steers = Vec::new();
    for (peer, known) in &snapshot.peers {
        for prefix in &known.prefixes {
            let path = |path: &srv6d_controller::CarrierPath| OfferedPath {
                name: path.name.clone(),
                segments: path.segments.clone(),
                weight: path.weight,
            };
            steers.push(OfferedSteer {
                peer: peer.clone(),
                prefix: prefix.prefix,
                table: steer.table,
                source: None,
                full_srh: steer.full_srh,
                via: steer.via,
                port: steer.port.clone(),
                paths: prefix.paths.iter().map(path).collect(),
                last_good: Vec::new(),
                is_in_force: false,
            });
        }
    }
    Offer { source: name.to_owned(), steers, gone: Vec::new() }
}
