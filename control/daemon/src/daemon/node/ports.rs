//! Attaches and detaches the devices of ports.

use srv6d_dataplane::DataplaneError;
use srv6d_srv6::desired::Desired;
use srv6d_xsk::{Mode, XskError};
use tracing::{info, warn};

use super::{Cause, Node, RunError, fault};
use crate::daemon::view::device_of;
use srv6d_config::PortMode;
use srv6d_plan::{Plan, PortDevice};

impl Node {
    /// Attaches devices that are new. A refusal at start, reload or rollback is an error; later it is recorded and tried again.
    /// A port with a foreign XDP program is always recorded only: it waits for the end of that program as for a
    /// missing device.
    pub(super) fn attach_new(&mut self, plan: &Plan, cause: &Cause) -> Result<Vec<String>, RunError> {
        let mut added = Vec::new();
        self.refused.retain(|device, _| plan.devices.iter().any(|port| port.device == *device && port.present));
        for port in &plan.devices {
            let Some(ifindex) = self.environment.device(&port.device).map(|device| device.ifindex) else { continue };
            if self.attached.get(&port.device).is_some_and(|known| *known != ifindex) {
                self.detach(&port.device);
            }
            if self.attached.contains_key(&port.device) {
                continue;
            }
            match self.attach(port, ifindex) {
                Ok(()) => added.push(port.device.clone()),
                // The device has gone since the last look. The next event reports it.
                Err(DataplaneError::Xsk(XskError::NoInterface { .. })) => {}
                Err(why @ DataplaneError::Xsk(XskError::ForeignProgram { .. })) => {
                    self.note_refusal(&port.device, &why);
                }
                Err(why) if cause.is_request() => {
                    self.detach_all(&added);
                    return Err(why.into());
                }
                Err(why) => self.note_refusal(&port.device, &why),
            }
        }
        Ok(added)
    }

    /// Returns true if the device is neither attached nor refused: it was detached because its packet memory went
    /// with another device.
    pub(super) fn had_to_go(&self, device: &str) -> bool {
        !self.attached.contains_key(device) && !self.refused.contains_key(device)
    }

    fn attach(&mut self, port: &PortDevice, ifindex: u32) -> Result<(), DataplaneError> {
        let attached = fault::attach(&mut self.dataplane, &port.device, mode(port.mode))?;
        info!("{}: attached, {} mode, {} queue(s): {}", port.device, attached.mode, attached.queues, attached.reason);
        self.attached.insert(port.device.clone(), ifindex);
        self.refused.remove(&port.device);
        Ok(())
    }

    fn note_refusal(&mut self, device: &str, why: &DataplaneError) {
        let why = why.to_string();
        // The log line names the device already.
        let why = why.strip_prefix(&format!("{device}: ")).unwrap_or(&why);
        if self.refused.get(device).is_none_or(|known| known != why) {
            warn!("{device}: not attached: {why}");
        }
        self.refused.insert(device.to_owned(), why.to_owned());
    }

    /// Marks refused ports as down. A port without sockets sends nothing, so next hops over it are replaced as over a
    /// port without carrier.
    pub(super) fn take_down_refused(&self, desired: &mut Desired) {
        for number in 0..desired.ports.len() {
            let Some(port) = desired.ports.get(number) else { continue };
            let is_refused = self.refused.contains_key(device_of(desired, port));
            if let Some(port) = desired.ports.get_mut(number).filter(|_| is_refused) {
                port.up = false;
            }
        }
    }

    pub(super) fn detach_unwanted(&mut self, plan: &Plan) {
        let wanted = |device: &String| plan.devices.iter().any(|port| port.device == *device && port.present);
        let gone: Vec<String> = self.attached.keys().filter(|device| !wanted(device)).cloned().collect();
        self.detach_all(&gone);
    }

    pub(super) fn detach_all(&mut self, devices: &[String]) {
        for device in devices {
            self.detach(device);
        }
    }

    /// Detaches a device. Others may have to be detached with it, and are attached again.
    fn detach(&mut self, device: &str) {
        for gone in self.dataplane.detach(device) {
            self.attached.remove(&gone);
            info!("{gone}: detached");
        }
    }
}

const fn mode(mode: PortMode) -> Mode {
    match mode {
        PortMode::Auto => Mode::Auto,
        PortMode::ZeroCopy => Mode::ZeroCopy,
        PortMode::Native => Mode::Native,
        PortMode::Generic => Mode::Generic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_fails_because_of_a_port() {
        let requests = [Cause::Start, Cause::Reload, Cause::Rollback(3)];
        assert!(requests.iter().all(Cause::is_request));
        let offer = Cause::Offer("syd".to_owned());
        let others = [Cause::Kernel, Cause::PathMtu, Cause::Links, Cause::Probes, offer];
        assert!(!others.iter().any(Cause::is_request));
    }
}
