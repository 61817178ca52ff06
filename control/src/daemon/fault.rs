//! Faults on demand, for tests of what a fault does to the node. Inert unless the environment asks for them.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Environment variable that arms them.
const ARMED: &str = "SRV6D_TEST_FAULTS";

/// SIGUSR2: a worker panics.
pub struct Fault(Option<Signal>);

impl Fault {
    /// Without the variable the signal keeps the meaning it has for every process.
    pub fn armed_by_environment() -> io::Result<Self> {
        let armed = std::env::var_os(ARMED).is_some();
        Ok(Self(armed.then(|| signal(SignalKind::user_defined2())).transpose()?))
    }

    pub async fn wanted(&mut self) {
        match &mut self.0 {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    }
}
