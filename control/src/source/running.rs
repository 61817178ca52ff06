//! Controllers at work: one task each, started and ended as the configuration says.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, select_all};
use srv6d_controller::jalapeno::PathKind;
use srv6d_controller::{Command, Snapshot, jalapeno, syd};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{info, warn};

use super::settings::{Steer, jalapeno_settings, syd_settings};
use super::{Offer, OfferedPath, OfferedSteer};
use crate::config::Config;

/// Commands that may wait for a controller's task.
const QUEUE: usize = 4;
/// Giving back what was allocated must not hold up the end for long.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);

/// What a task was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Settings {
    Jalapeno(jalapeno::Settings),
    Syd(syd::Settings),
}

impl Settings {
    /// So that asking changes nothing at the controller, nor in a file of bookings.
    fn only_look(self) -> Self {
        match self {
            Self::Jalapeno(settings) if settings.kind == PathKind::Load => {
                Self::Jalapeno(jalapeno::Settings { kind: PathKind::Shortest, state: None, ..settings })
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

/// The thread on which controllers are asked, with a runtime of its own: however long their answers keep it busy, the
/// control loop goes on.
#[derive(Debug)]
struct Thread {
    runtime: Handle,
    /// The thread ends when this is dropped, and what still runs on it is dropped.
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
    /// Begins with what an earlier task knew: until the first answer, that is the last good state.
    fn start(settings: Settings, steer: Steer, known: Arc<Snapshot>, runtime: &Handle) -> Self {
        let (publish, snapshots) = watch::channel(known);
        let (commands, told) = mpsc::channel(QUEUE);
        let task = runtime.spawn(settings.clone().run(publish, told));
        Self { settings, steer, snapshots, commands, task }
    }

    async fn stop(self) {
        let (done, stopped) = oneshot::channel();
        let told = self.commands.send(Command::Stop { done }).await.is_ok();
        if !told || timeout(RELEASE_WITHIN, stopped).await.is_err() {
            self.task.abort();
        }
    }
}

/// Every controller, by name.
#[derive(Debug, Default)]
pub struct Sources {
    running: BTreeMap<&'static str, Running>,
    /// Started with the first controller.
    thread: Option<Thread>,
    /// Nothing is booked or allocated by asking.
    only_look: bool,
    /// Why a configured controller was not started.
    refused: BTreeMap<&'static str, String>,
}

/// One controller as it is now.
#[derive(Clone, Debug)]
pub struct Status {
    /// `jalapeno` or `syd`.
    pub name: &'static str,
    /// Where its API is.
    pub endpoint: String,
    /// What it published last.
    pub snapshot: Arc<Snapshot>,
    /// Why it was not started.
    pub refused: Option<String>,
}

impl Sources {
    /// Sources that book and allocate nothing: shortest paths stand in for paths by load, and of syd's workloads only
    /// those that exist are looked at.
    pub fn that_only_look() -> Self {
        Self { only_look: true, ..Self::default() }
    }

    /// Starts, restarts and ends tasks so that they are those of the configuration; one whose settings are as before
    /// goes on undisturbed.
    pub async fn configure(&mut self, config: &Config, node: &str) {
        self.refused.clear();
        let blocks = || config.blocks.iter().map(|block| *block.get_ref().prefix.get_ref()).collect();
        let jalapeno = config.jalapeno.as_ref().map(|table| {
            let steer = Steer::of(&table.steering);
            jalapeno_settings(table, blocks(), |file| fs::read_to_string(file))
                .map(|settings| (Settings::Jalapeno(settings), steer))
        });
        let syd = config.syd.as_ref().map(|table| {
            let steer = Steer::of(&table.steering);
            syd_settings(table, blocks(), node, |file| fs::read_to_string(file))
                .map(|settings| (Settings::Syd(settings), steer))
        });
        for (name, wanted) in [("jalapeno", jalapeno), ("syd", syd)] {
            let only_look = self.only_look;
            let wanted = wanted.map(|wanted| {
                wanted.map(|(settings, steer)| (if only_look { settings.only_look() } else { settings }, steer))
            });
            self.configure_one(name, wanted).await;
        }
    }

    async fn configure_one(&mut self, name: &'static str, wanted: Option<Result<(Settings, Steer), String>>) {
        let old = self.running.remove(name);
        match (wanted, old) {
            (Some(Ok((settings, steer))), Some(old)) if old.settings == settings => {
                self.running.insert(name, Running { steer, ..old });
            }
            (Some(Ok((settings, steer))), old) => {
                let known = old.as_ref().map(|old| old.snapshots.borrow().clone()).unwrap_or_default();
                if let Some(old) = old {
                    old.stop().await;
                }
                match self.runtime() {
                    Ok(runtime) => {
                        info!("{name}: paths from {}", settings.endpoint());
                        let running = Running::start(settings, steer, known, &runtime);
                        self.running.insert(name, running);
                    }
                    Err(why) => {
                        let why = format!("cannot start the thread that asks it: {why}; allow srv6d more threads");
                        warn!("{name}: {why}");
                        self.refused.insert(name, why);
                    }
                }
            }
            // What it offered before stays in force: the mistake is in a file beside the configuration.
            (Some(Err(why)), old) => {
                warn!("{name}: {why}");
                self.refused.insert(name, why);
                self.running.extend(old.map(|old| (name, old)));
            }
            (None, Some(old)) => old.stop().await,
            (None, None) => {}
        }
    }

    /// Where controllers are asked.
    fn runtime(&mut self) -> io::Result<Handle> {
        let thread = match self.thread.take() {
            Some(thread) => thread,
            None => Thread::start()?,
        };
        Ok(self.thread.insert(thread).runtime.clone())
    }

    /// Returns the name of a controller that has published. Can be cancelled without losing anything.
    pub async fn changed(&mut self) -> &'static str {
        let waiting: Vec<BoxFuture<'_, &'static str>> = self
            .running
            .iter_mut()
            .map(|(name, running)| {
                async move {
                    if running.snapshots.changed().await.is_err() {
                        // Its task has ended, and says nothing more.
                        std::future::pending::<()>().await;
                    }
                    *name
                }
                .boxed()
            })
            .collect();
        if waiting.is_empty() {
            return std::future::pending().await;
        }
        select_all(waiting).await.0
    }

    /// What all of them want now.
    pub fn offers(&self) -> Vec<Offer> {
        self.running.iter().map(|(name, running)| offer(name, &running.snapshots.borrow(), &running.steer)).collect()
    }

    /// Every round of every controller so far has ended.
    pub fn settled(&self) -> bool {
        self.running.values().all(|running| running.snapshots.borrow().health.next.is_some())
    }

    /// How each is doing.
    pub fn status(&self) -> Vec<Status> {
        let running = self.running.iter().map(|(name, running)| Status {
            name,
            endpoint: running.settings.endpoint().to_owned(),
            snapshot: running.snapshots.borrow().clone(),
            refused: self.refused.get(name).cloned(),
        });
        let never = self.refused.iter().filter(|(name, _)| !self.running.contains_key(*name));
        let refused = never.map(|(name, why)| Status {
            name,
            endpoint: String::new(),
            snapshot: Arc::default(),
            refused: Some(why.clone()),
        });
        running.chain(refused).collect()
    }

    /// Tells every controller to ask now.
    pub fn sync(&self) {
        for running in self.running.values() {
            // A full queue holds one that says the same.
            let _ = running.commands.try_send(Command::Sync);
        }
    }

    /// Ends all of them.
    pub async fn stop(&mut self) {
        for (_, running) in std::mem::take(&mut self.running) {
            running.stop().await;
        }
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
            });
        }
    }
    Offer { source: name.to_owned(), steers }
}
