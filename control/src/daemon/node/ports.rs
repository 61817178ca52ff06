//! Devices become ports and cease to be some.

use srv6d_dataplane::DataplaneError;
use srv6d_srv6::model::Desired;
use srv6d_xsk::{Mode, XskError};
use tracing::{info, warn};

use super::{Cause, Node, RunError, fault};
use crate::config::PortMode;
use crate::daemon::view::device_of;
use crate::plan::{Plan, PortDevice};

impl Node {
    /// Attaches what is there and was not. A refusal at start or reload is an error; later it is noted and tried again, as is
    /// at any time that of a port with somebody else's XDP program: it waits for the end of that program as for a device
    /// that is missing.
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
                // Gone between the look and now: the next event says so.
                Err(DataplaneError::Xsk(XskError::NoInterface { .. })) => {}
                Err(why @ DataplaneError::Xsk(XskError::ForeignProgram { .. })) => {
                    self.note_refusal(&port.device, &why);
                }
                Err(why) if matches!(cause, Cause::Kernel | Cause::PathMtu | Cause::Offer(_)) => {
                    self.note_refusal(&port.device, &why);
                }
                Err(why) => {
                    self.detach_all(&added);
                    return Err(why.into());
                }
            }
        }
        Ok(added)
    }

    /// Neither attached nor refused: detached because its packet memory went with another device.
    pub(super) fn had_to_go(&self, device: &str) -> bool {
        !self.attached.contains_key(device) && !self.refused.contains_key(device)
    }

    fn attach(&mut self, port: &PortDevice, ifindex: u32) -> Result<(), DataplaneError> {
        let attached = if fault::is_apart(&port.device) {
            self.dataplane.attach_apart(&port.device)?
        } else {
            self.dataplane.attach(&port.device, mode(port.mode))?
        };
        info!("{}: attached, {} mode, {} queue(s): {}", port.device, attached.mode, attached.queues, attached.reason);
        self.attached.insert(port.device.clone(), ifindex);
        self.refused.remove(&port.device);
        Ok(())
    }

    fn note_refusal(&mut self, device: &str, why: &DataplaneError) {
        let why = why.to_string();
        // Said of the device already.
        let why = why.strip_prefix(&format!("{device}: ")).unwrap_or(&why);
        if self.refused.get(device).is_none_or(|known| known != why) {
            warn!("{device}: not attached: {why}");
        }
        self.refused.insert(device.to_owned(), why.to_owned());
    }

    /// A port without sockets sends nothing: next hops over it give way to others, as over a port without carrier.
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

    /// Others may have to go with it, and are attached again.
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
