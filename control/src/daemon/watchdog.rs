//! Whether the control loop still turns.
//!
//! A loop that hangs costs no packet at once: workers go on with the tables they have. But neighbours age, and reload,
//! `show` and metrics wait. systemd is told by the loop itself that it is well (`WatchdogSec=`), and restarts the daemon
//! when that ends. Without systemd a thread says so in the log, and nothing more: ending the daemon would cost the packets
//! that it still forwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{error, warn};

/// Time without a beat after which the loop counts as hung, unless systemd's own limit is shorter.
const HUNG: Duration = Duration::from_secs(10);

/// Longest time between two beats, and between two looks at them.
const BEAT: Duration = Duration::from_secs(1);

/// Milliseconds since the start of the watchdog at which the loop last turned.
#[derive(Debug)]
struct Beats {
    start: Instant,
    last: AtomicU64,
}

impl Beats {
    fn beat(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }
}

/// The control loop's end: it asks for [`due`](Self::due) beats, and the thread beside it counts on them.
#[derive(Debug)]
pub struct Watchdog {
    beats: Arc<Beats>,
    due: Interval,
    tells_systemd: bool,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the thread, and tells systemd from now on if its environment asks for that.
    pub fn start() -> Self {
        let limit = sd_notify::watchdog_enabled();
        let period = limit.map_or(BEAT, |limit| (limit / 4).min(BEAT)).max(Duration::from_millis(1));
        let hung = limit.map_or(HUNG, |limit| (limit / 2).min(HUNG));
        let beats = Arc::new(Beats { start: Instant::now(), last: AtomicU64::new(0) });
        let watched = Arc::clone(&beats);
        let watch = move || watch(&watched, period, hung);
        let thread = thread::Builder::new().name("srv6d-watchdog".to_owned()).spawn(watch);
        if let Err(why) = &thread {
            warn!("nobody watches the control loop: {why}");
        }
        let mut due = interval(period);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { beats, due, tells_systemd: limit.is_some(), thread: thread.ok() }
    }

    /// Completes when the next beat is due.
    pub async fn due(&mut self) {
        self.due.tick().await;
    }

    /// The loop turns: to be called from the loop itself, and from nowhere else.
    pub fn beat(&self) {
        self.beats.beat();
        if self.tells_systemd {
            super::notify(&[NotifyState::Watchdog]);
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // The thread ends when it is the only one that has the beats.
        self.beats = Arc::new(Beats { start: Instant::now(), last: AtomicU64::new(0) });
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join(); // its panic has been printed
        }
    }
}

/// Says when the loop hangs, and when it is back. Ends with the [`Watchdog`].
fn watch(beats: &Arc<Beats>, period: Duration, hung: Duration) {
    let mut longest = Duration::ZERO;
    while Arc::strong_count(beats) > 1 {
        thread::park_timeout(period);
        let silence = beats.silence();
        if silence >= hung {
            if longest.is_zero() {
                error!(
                    "the control loop hangs since {} s: ports forward with the tables they have; neighbours, reload, show \
                     and metrics wait; if it does not come back, restart srv6d",
                    silence.as_secs()
                );
            }
            longest = silence;
        } else if !longest.is_zero() {
            warn!("the control loop is back after {} s", longest.as_secs());
            longest = Duration::ZERO;
        }
    }
}
