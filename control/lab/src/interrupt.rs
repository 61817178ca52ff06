//! Handles Ctrl-C, which must leave nothing behind: signals set a flag, and every wait checks it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::error::LabError;

/// Time between two checks during a wait.
const TICK: Duration = Duration::from_millis(10);

/// Whether a signal has asked to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on, so that they do not end the process.
    ///
    /// # Errors
    /// The kernel refused the signal handler.
    pub fn watch() -> Result<Self, LabError> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0))
                .map_err(|error| LabError::Failed(format!("cannot watch for signal {signal}: {error}")))?;
        }
        Ok(interrupt)
    }

    /// Checks whether a signal has asked to stop.
    ///
    /// # Errors
    /// [`LabError::Interrupted`] if one has.
    pub fn check(&self) -> Result<(), LabError> {
        if self.0.load(Ordering::Relaxed) { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// Calls `state` repeatedly until it returns a value. Returns `None` after `patience`.
    ///
    /// # Errors
    /// A signal asked to stop, or `state` failed.
    pub fn wait_for<T>(
        &self,
        patience: Duration,
        mut state: impl FnMut() -> Result<Option<T>, LabError>,
    ) -> Result<Option<T>, LabError> {
        let deadline = Instant::now() + patience;
        loop {
            self.check()?;
            if let Some(answer) = state()? {
                return Ok(Some(answer));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(TICK);
        }
    }

    /// Calls `left`, which returns how much is left to do, until it returns 0; then returns true. Returns false if
    /// `quiet` has passed without a number smaller than every earlier one: a loaded machine may take long as long as it
    /// makes progress, and a number that goes up and down is no progress.
    ///
    /// # Errors
    /// A signal asked to stop, or `left` failed.
    pub fn wait_until_nothing_is_left(
        &self,
        quiet: Duration,
        mut left: impl FnMut() -> Result<usize, LabError>,
    ) -> Result<bool, LabError> {
        let (mut least, mut last_progress) = (usize::MAX, Instant::now());
        loop {
            self.check()?;
            let now = left()?;
            if now == 0 {
                return Ok(true);
            }
            if now < least {
                (least, last_progress) = (now, Instant::now());
            } else if last_progress.elapsed() >= quiet {
                return Ok(false);
            }
            thread::sleep(TICK);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn progress_is_waited_for_longer_than_the_quiet_time() {
        let quiet = Duration::from_millis(200);
        let (begin, mut left) = (Instant::now(), 8);
        let done = Interrupt::default().wait_until_nothing_is_left(quiet, || {
            thread::sleep(quiet / 4);
            left -= 1;
            Ok(left)
        });
        assert!(done.unwrap());
        assert!(begin.elapsed() > quiet);
    }

    #[test]
    fn a_number_that_goes_up_and_down_is_no_progress() {
        let mut left = 3;
        let done = Interrupt::default().wait_until_nothing_is_left(Duration::from_millis(100), || {
            left = if left == 3 { 2 } else { 3 };
            Ok(left)
        });
        assert!(!done.unwrap());
    }
}
