//! Watches whether the control loop still turns.
//!
//! A loop that hangs costs no packet at once, because workers go on with the tables they have. But neighbours age,
//! and reload, `show` and metrics wait. The loop itself reports to systemd (`WatchdogSec=`), which restarts the
//! daemon when the reports end. Without systemd a thread only logs it: ending the daemon would cost the packets that
//! it still forwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{error, warn};

/// Time without a beat after which the loop counts as hung, unless systemd's own limit is shorter.
const HUNG: Duration = Duration::from_secs(10);

/// Longest time between two beats, and between two checks of them.
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

/// The part of the watchdog that the control loop holds. The loop has to beat whenever [`due`](Self::due) says so; the
/// watching thread reports a loop that does not.
#[derive(Debug)]
pub struct Watchdog {
    beats: Arc<Beats>,
    due: Interval,
    tells_systemd: bool,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the thread. If the environment asks for it, systemd is told from now on.
    pub fn start() -> Self {
        let limit = sd_notify::watchdog_enabled();
        let period = limit.map_or(BEAT, |limit| (limit / 4).min(BEAT)).max(Duration::from_millis(1));
        let hung = limit.map_or(HUNG, |limit| (limit / 2).min(HUNG));
        let beats = Arc::new(Beats { start: Instant::now(), last: AtomicU64::new(0) });
        let watched = Arc::clone(&beats);
        let watch = move || watch(&watched, period, hung);
        let thread = thread::Builder::new().name("srv6d-watchdog".to_owned()).spawn(watch);
        if let Err(why) = &thread {
            warn!("the control loop is not watched: {why}");
        }
        let mut due = interval(period);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { beats, due, tells_systemd: limit.is_some(), thread: thread.ok() }
    }

    /// Completes when the next beat is due.
    pub async fn due(&mut self) {
        self.due.tick().await;
    }

    /// Reports that the loop turns. Only the loop itself may call this.
    pub fn beat(&self) {
        self.beats.beat();
        if self.tells_systemd {
            super::notify(&[NotifyState::Watchdog]);
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // The thread ends when it has the only reference to the beats.
        self.beats = Arc::new(Beats { start: Instant::now(), last: AtomicU64::new(0) });
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join(); // its panic has been printed
        }
    }
}

/// Logs when the loop hangs, and when it is back. It ends with the [`Watchdog`].
fn watch(beats: &Arc<Beats>, period: Duration, hung: Duration) {
    let mut longest = Duration::ZERO;
    while Arc::strong_count(beats) > 1 {
        thread::park_timeout(period);
        let silence = beats.silence();
        if silence >= hung {
            if longest.is_zero() {
                error!(
                    "the control loop hangs for {} s already: ports forward with the tables they have; neighbours, \
                     reload, show and metrics wait; if it does not come back, restart srv6d",
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
