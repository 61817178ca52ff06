//! Ctrl-C must leave nothing behind: signals set a flag, and whoever waits looks at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::error::LabError;

/// How often a wait looks.
const TICK: Duration = Duration::from_millis(10);

/// Whether somebody asked to stop.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on SIGINT, SIGTERM and SIGHUP are noticed instead of ending the process.
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

    /// # Errors
    /// Somebody asked to stop.
    pub fn check(&self) -> Result<(), LabError> {
        if self.0.load(Ordering::Relaxed) { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// Asks `state` again and again until it has an answer; `None` after `patience`.
    ///
    /// # Errors
    /// Somebody asked to stop, or `state` failed.
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
}
