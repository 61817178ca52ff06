//! `[probes]`: packets that go along the paths of steered prefixes and come back, so that paths that do not work are left out.
//!
//! ```text
//! paths in force ─► Watched: loops ─► Watch ─► a raw socket for each port ─► next hop of the path ─► fabric
//! one UDP socket ◄── this node's kernel ◄──────────────────────────────────────────────────────────────┘
//!       └─► Watch: which loops are dead ─► names of paths ─► control loop: an amendment of the tables
//! ```
//!
//! A thread of its own does all of this, so neither the control loop nor a worker waits for it, and nobody can make it read
//! more than a bounded number of datagrams in a turn. It keeps no privilege.

mod prober;
mod socket;
mod view;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use srv6d_api::state::ProbesView;
use srv6d_dataplane::Dataplane;
use srv6d_plan::{Environment, Plan};
use tokio::sync::watch;
use tracing::error;

use crate::confine::keep_of_this_thread;
use prober::Prober;
use watched::{Basis, Wanted};

/// Longest time for which the thread sleeps, so that it notices changes.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// Names of the paths that are left out.
pub type UnusedPaths = Arc<BTreeSet<String>>;

/// The probes of this node, if `[probes]` is configured.
#[derive(Debug, Default)]
pub struct Probing {
    running: Option<Running>,
    unused: watch::Sender<UnusedPaths>,
}

#[derive(Debug)]
struct Running {
    /// What is probed, and what that follows from.
    told: Option<(Basis, Wanted)>,
    prober: Arc<Mutex<Prober>>,
    thread: Option<JoinHandle<()>>,
}

impl Probing {
    /// Starts, changes or ends the probes according to the state in force. It does nothing if that has not changed.
    pub fn follow(&mut self, plan: &Plan, environment: &Environment, dataplane: &Dataplane) {
        let Some(settings) = &plan.probes else {
            self.running = None;
            tell(&self.unused, UnusedPaths::default());
            return;
        };
        let running = self.running.get_or_insert_with(|| Running::start(self.unused.clone()));
        match &running.told {
            Some((basis, wanted)) if basis.is(settings, plan, dataplane.generation(), environment) => {
                let mut prober = running.prober();
                if prober.lacks_sockets() {
                    prober.configure(wanted);
                }
            }
            known => {
                let wanted = watched::wanted(settings, plan, dataplane.desired(), environment);
                let is_known = known.as_ref().is_some_and(|(_, known)| *known == wanted);
                let mut prober = running.prober();
                if !is_known || prober.lacks_sockets() {
                    prober.configure(&wanted);
                }
                drop(prober);
                let basis = Basis::of(settings, plan, dataplane.generation(), environment);
                running.told = Some((basis, wanted));
            }
        }
    }

    /// Returns the channel that tells which paths are left out.
    pub fn unused(&self) -> watch::Receiver<UnusedPaths> {
        self.unused.subscribe()
    }

    /// Returns the state of the probes. `None`: `[probes]` is not configured.
    pub fn view(&self) -> Option<ProbesView> {
        let running = self.running.as_ref()?;
        // The thread waits for no more than a copy.
        let copy = running.prober().copy();
        let mut view = copy.view();
        if running.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            view.trouble = Some("its thread has ended: no probe is sent or received; restart srv6d".to_owned());
        }
        Some(view)
    }

    /// Returns what the probes of each path say. `None`: `[probes]` is not configured.
    pub fn states(&self) -> Option<BTreeMap<String, &'static str>> {
        Some(self.running.as_ref()?.prober().states())
    }
}

impl Running {
    fn start(unused: watch::Sender<UnusedPaths>) -> Self {
        let prober = Arc::new(Mutex::new(Prober::new(unused)));
        let of_thread = Arc::clone(&prober);
        let started = std::thread::Builder::new().name("srv6d-probes".to_owned()).spawn(move || run(&of_thread));
        if let Err(why) = &started {
            error!("probes: cannot start the thread: {why}; allow srv6d more threads, and restart it");
        }
        Self { told: None, prober, thread: started.ok() }
    }

    fn prober(&self) -> MutexGuard<'_, Prober> {
        self.prober.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.prober().end();
    }
}

/// Runs turn after turn until the probes end. It sleeps until something is due, or a probe has come back.
fn run(prober: &Mutex<Prober>) {
    keep_of_this_thread(&[]);
    let start = Instant::now();
    loop {
        let (due, receiver) = {
            let mut prober = prober.lock().unwrap_or_else(PoisonError::into_inner);
            if prober.is_over() {
                return;
            }
            (prober.turn(nanoseconds(start)), prober.receiver())
        };
        let sleep = due.map(|due| Duration::from_nanos(due.saturating_sub(nanoseconds(start))));
        let sleep = sleep.unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP);
        match &receiver {
            Some(receiver) => {
                let waiting = &mut [PollFd::new(receiver.as_fd(), PollFlags::POLLIN)];
                let _ = ppoll(waiting, Some(TimeSpec::from_duration(sleep)), None); // a signal ends it early
            }
            None => std::thread::sleep(sleep.max(Duration::from_millis(1))),
        }
    }
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Tells the control loop which paths are left out, unless it knows that already.
fn tell(told: &watch::Sender<UnusedPaths>, unused: UnusedPaths) {
    told.send_if_modified(|known| {
        let is_news = *known != unused;
        if is_news {
            *known = unused;
        }
        is_news
    });
}
