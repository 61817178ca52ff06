//! The replacement of `fault.rs` in a daemon without the feature `faults`: no fault can be requested.

use std::io;

use srv6d_dataplane::{AttachedPort, Dataplane, DataplaneError};
use srv6d_xsk::Mode;

/// A fault that never happens.
pub struct Fault;

impl Fault {
    #[allow(clippy::unnecessary_wraps, reason = "as in fault.rs")]
    pub fn armed_by_environment() -> io::Result<Self> {
        Ok(Self)
    }

    #[allow(clippy::unused_self, reason = "as in fault.rs")]
    pub async fn wanted(&mut self) {
        std::future::pending::<()>().await;
    }

    #[allow(clippy::unused_self, reason = "as in fault.rs")]
    pub fn happen(&self, _: &Dataplane) {}
}

/// Attaches a device.
pub fn attach(dataplane: &mut Dataplane, device: &str, mode: Mode) -> Result<AttachedPort, DataplaneError> {
    dataplane.attach(device, mode)
}

/// Prepares a dataplane that has no port yet.
pub fn prepare(_: &mut Dataplane) {}
