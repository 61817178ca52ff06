//! Faults and rare cases that tests request by environment variables. The feature `faults` compiles this file in. A
//! shipped binary has `no_fault.rs` in its place.

use std::io;
use std::time::Duration;

use srv6d_dataplane::{AttachedPort, Dataplane, DataplaneError};
use srv6d_xsk::Mode;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Environment variable that enables the faults.
const ARMED: &str = "SRV6D_TEST_FAULTS";

/// Devices, separated by spaces, that get a packet memory of their own, as zero-copy ports do.
const APART: &str = "SRV6D_TEST_APART";

/// If it is set, the daemon behaves as if the kernel had refused the program of `offload = "xdp"`.
const NO_OFFLOAD: &str = "SRV6D_TEST_NO_OFFLOAD";

/// If it is set, the daemon behaves as on a kernel without tcx.
const NO_TCX: &str = "SRV6D_TEST_NO_TCX";

/// Attaches a device, with a packet memory of its own if the environment requests it.
pub fn attach(dataplane: &mut Dataplane, device: &str, mode: Mode) -> Result<AttachedPort, DataplaneError> {
    let is_apart = std::env::var(APART).is_ok_and(|devices| devices.split_whitespace().any(|name| name == device));
    if is_apart { dataplane.attach_apart(device) } else { dataplane.attach(device, mode) }
}

/// Prepares a dataplane that has no port yet.
pub fn prepare(dataplane: &mut Dataplane) {
    if std::env::var_os(NO_OFFLOAD).is_some() {
        dataplane.refuse_offload();
    }
    if std::env::var_os(NO_TCX).is_some() {
        dataplane.forgo_tcx();
    }
}

/// Prefix of the value of [`ARMED`] that makes the control loop hang for this number of seconds, instead of a
/// worker's panic.
const HANG: &str = "hang=";

/// The fault that SIGUSR2 causes.
enum Kind {
    WorkerPanics,
    LoopHangs(Duration),
}

/// Handles SIGUSR2: a worker panics, or the control loop hangs.
pub struct Fault(Option<(Signal, Kind)>);

impl Fault {
    /// Installs the signal handler. Without the variable the signal keeps its default meaning.
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
