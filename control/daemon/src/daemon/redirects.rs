//! Decides when to check whether ports still send what XDP programs redirect to them. What a port does not send is
//! lost.

use std::io;
use std::time::Duration;

use srv6d_xsk::FeatureChanges;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Interval of the check. The kernel notifies of changes since Linux 6.3; before, this is the only way to see one.
const EVERY: Duration = Duration::from_millis(500);

/// The kernel's notifications, and a clock.
pub struct Redirects {
    changes: Option<AsyncFd<FeatureChanges>>,
    tick: Interval,
}

impl Redirects {
    pub fn start() -> Self {
        let mut tick = interval(EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let changes = FeatureChanges::open().and_then(watch);
        let changes = changes.inspect_err(|why| tracing::debug!("no notifications of devices' features: {why}")).ok();
        Self { changes, tick }
    }

    /// Waits until it is time to look.
    pub async fn may_have_changed(&mut self) {
        let Self { changes, tick } = self;
        tokio::select! {
            () = notified(changes.as_ref()) => {}
            _ = tick.tick() => {}
        }
    }
}

#[allow(deprecated, reason = "the constructor without `unsafe`: its OwnedFd stays open and itself while it is watched")]
fn watch(changes: FeatureChanges) -> io::Result<AsyncFd<FeatureChanges>> {
    AsyncFd::with_interest(changes, Interest::READABLE)
}

async fn notified(changes: Option<&AsyncFd<FeatureChanges>>) {
    let Some(changes) = changes else { return std::future::pending().await };
    if let Ok(mut ready) = changes.readable().await {
        // The flag is cleared before the socket is read, so that a notification between the two wakes the loop once more.
        ready.clear_ready();
        changes.get_ref().take();
    }
}
