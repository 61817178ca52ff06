//! Rounds of a controller's task: the pauses between them, and the commands that arrive meanwhile.

use std::future::Future;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::snapshot::Command;

/// Maximum pause between two requests to a failing controller, unless the interval is longer.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// The task has to end.
#[derive(Debug)]
pub struct Stop {
    /// Is notified when the task has ended; `None` if nobody waits for it.
    pub done: Option<oneshot::Sender<()>>,
}

/// Waits for the command to ask the controller now.
///
/// # Errors
/// If the task has to end.
pub async fn told(commands: &mut mpsc::Receiver<Command>) -> Result<(), Stop> {
    match commands.recv().await {
        Some(Command::Sync) => Ok(()),
        Some(Command::Stop { done }) => Err(Stop { done: Some(done) }),
        None => Err(Stop { done: None }),
    }
}

/// Runs a round to its end. The returned flag is `true` if the task was meanwhile told to ask now, so that another
/// round is due at once.
///
/// # Errors
/// If the task has to end. The unfinished round is dropped.
pub async fn finish<T>(
    round: impl Future<Output = T>,
    commands: &mut mpsc::Receiver<Command>,
) -> Result<(T, bool), Stop> {
    let mut round = std::pin::pin!(round);
    let mut again = false;
    loop {
        tokio::select! {
            result = &mut round => return Ok((result, again)),
            command = told(commands) => {
                command?;
                again = true;
            }
        }
    }
}

/// Returns the pause before the next round. It doubles with every failure, up to a limit, and has a jitter of 20 % in
/// both directions, so that many hosts do not come back together. `random` lies in 0..1.
pub fn pause(interval: Duration, failed: u32, random: f64) -> Duration {
    let longest = MAX_BACKOFF.max(interval);
    let doubled = interval.saturating_mul(2u32.saturating_pow(failed.min(16)));
    let pause = if failed == 0 { interval } else { doubled.min(longest) };
    pause.mul_f64(0.8 + 0.4 * random)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use tokio::time::sleep;

    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_differ() {
        let interval = Duration::from_secs(5);
        let middle = |failed| pause(interval, failed, 0.5);
        assert_eq!(
            [middle(0), middle(1), middle(2), middle(3), middle(40)],
            [5, 10, 20, 30, 30].map(Duration::from_secs)
        );
        assert_eq!(pause(interval, 0, 0.0), Duration::from_secs(4));
        assert_eq!(pause(interval, 0, 1.0), Duration::from_secs(6));
        assert_eq!(pause(Duration::from_mins(1), 3, 0.5), Duration::from_mins(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_hears_what_it_is_told() {
        let round = || sleep(Duration::from_hours(1));
        let (sender, mut commands) = mpsc::channel(4);
        sender.send(Command::Sync).await.unwrap();
        assert!(finish(round(), &mut commands).await.unwrap().1, "another round is due");
        assert!(!finish(round(), &mut commands).await.unwrap().1);
        let (done, _) = oneshot::channel();
        sender.send(Command::Stop { done }).await.unwrap();
        assert!(finish(round(), &mut commands).await.unwrap_err().done.is_some());
        drop(sender);
        assert!(finish(round(), &mut commands).await.unwrap_err().done.is_none());
    }
}
