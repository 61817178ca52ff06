//! Faults and rarities on demand, for tests of what they do to the node. Inert unless the environment asks for them.

use std::io;
use std::time::Duration;

use srv6d_dataplane::Dataplane;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Environment variable that arms them.
const ARMED: &str = "SRV6D_TEST_FAULTS";

/// Devices, separated by spaces, whose packets lie apart from the others', as those of zero-copy ports do.
const APART: &str = "SRV6D_TEST_APART";

/// The device is one of those. No fault, but as rare: few machines have a driver with zero-copy.
pub fn is_apart(device: &str) -> bool {
    std::env::var(APART).is_ok_and(|devices| devices.split_whitespace().any(|name| name == device))
}

/// Set: the kernel is taken to have refused the program of `offload = "xdp"`.
const NO_OFFLOAD: &str = "SRV6D_TEST_NO_OFFLOAD";

/// The kernel is to have refused it.
pub fn refuses_offload() -> bool {
    std::env::var_os(NO_OFFLOAD).is_some()
}

/// Value of [`ARMED`] with which the control loop hangs for so many seconds, instead of a worker's panic.
const HANG: &str = "hang=";

/// What SIGUSR2 brings.
enum Kind {
    WorkerPanics,
    LoopHangs(Duration),
}

/// SIGUSR2: a worker panics, or the control loop hangs.
pub struct Fault(Option<(Signal, Kind)>);

impl Fault {
    /// Without the variable the signal keeps the meaning it has for every process.
    pub fn armed_by_environment() -> io::Result<Self> {
        let Ok(armed) = std::env::var(ARMED) else { return Ok(Self(None)) };
        let seconds = armed.strip_prefix(HANG).and_then(|seconds| seconds.parse().ok());
        let kind = seconds.map_or(Kind::WorkerPanics, |seconds| Kind::LoopHangs(Duration::from_secs(seconds)));
        Ok(Self(Some((signal(SignalKind::user_defined2())?, kind))))
    }

    pub async fn wanted(&mut self) {
        match &mut self.0 {
            Some((signal, _)) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    }

    pub fn happen(&self, dataplane: &Dataplane) {
        match self.0 {
            Some((_, Kind::LoopHangs(time))) => std::thread::sleep(time),
            Some((_, Kind::WorkerPanics)) => dataplane.break_a_worker(),
            None => {}
        }
    }
}
