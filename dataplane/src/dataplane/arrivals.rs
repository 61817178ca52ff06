//! How packets come in on the port of a host: by a tc program in place of the XDP program.
//!
//! What arrives on a host is for the host itself. An XDP program would cost each of these packets the conversion to XDP's form, and
//! in generic mode the merging by GRO. tc programs see them as merged: one decapsulates what SIDs deliver to this node, and
//! another one sends what else is claimed through srv6d's own veth, with a VLAN tag that names the port. The rest is the
//! kernel's.

use std::time::Duration;

use srv6d_srv6::desired::{Behavior, LocalSid, Port, PortId, Role};
use srv6d_xsk::arrivals::tag_of;
use srv6d_xsk::{Mode, XskError};

use super::{Dataplane, PacketMemory, device_name};

/// The mode that is shown of such a port.
const BY_TC_MODE: &str = "tc";

/// The reason shown on a port whose packets come in by tc programs.
pub(super) const BY_TC: &str = "tc programs at its ingress, as what arrives on a host is for the host itself";

/// Time in which packets pass from the driver to the ingress of the port.
const ON_THEIR_WAY: Duration = Duration::from_millis(10);

impl Dataplane {
    /// Puts the XDP program or the tc program on each port, whichever fits what is in force.
    pub(super) fn sync_arrivals(&mut self) {
        let wanted = self.port_of_a_host().filter(|_| self.arrivals_refused.is_none());
        for name in self.devices.keys().cloned().collect::<Vec<_>>() {
            match (wanted.as_ref() == Some(&name), self.comes_by_tc(&name)) {
                (true, false) => {
                    if let Err(why) = self.take_by_tc(&name) {
                        tracing::info!("{name}: {why}: its packets come in by the XDP program");
                        self.arrivals_refused = Some(why.to_string());
                    }
                }
                (false, true) => {
                    if let Err(why) = self.take_by_xdp(&name) {
                        let what =
                            "its packets still come in by tc programs, and none if it checks where they come from";
                        tracing::warn!("{name}: {why}: {what}");
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns whether packets come in by the tc program on this device.
    pub(super) fn comes_by_tc(&self, name: &str) -> bool {
        self.devices.get(name).is_some_and(|device| device.arrivals.is_some())
    }

    /// Returns the device of the only port of a host, whose SIDs decapsulate, if it has any.
    fn port_of_a_host(&self) -> Option<String> {
        let desired = self.tables.desired();
        let decapsulates = |sid: &LocalSid| matches!(sid.behavior, Behavior::EndDt { .. });
        if !desired.has_tc_engine() || self.in_front.is_refused() || !desired.sids.iter().all(decapsulates) {
            return None;
        }
        if desired.ports.iter().filter(|port| port.role != Role::Kernel).count() > 1 {
            return None;
        }
        let mut real = self.devices.iter().filter(|(_, device)| !device.claim_all);
        let (Some((name, device)), None) = (real.next(), real.next()) else { return None };
        let mut ports = (0..).map(PortId).zip(&desired.ports).filter(|(_, port)| device_name(port) == name);
        let (Some((id, port)), None) = (ports.next(), ports.next()) else { return None };
        let is_chosen = desired.auto_offload.contains(&id) && device.asked_mode == Mode::Auto;
        let is_copied = device.memory == PacketMemory::Copy;
        let own_veth = desired.host.and_then(|host| desired.ports.get(usize::from(host.port.0)))?;
        let fits = port.mtu <= own_veth.mtu && self.devices.contains_key(device_name(own_veth));
        (is_chosen && is_copied && fits && is_open(port)).then(|| name.clone())
    }

    fn take_by_tc(&mut self, name: &str) -> Result<(), XskError> {
        let (Some(program), Some(&number)) = (self.claim_program.clone(), self.numbers.get(name)) else {
            return Ok(());
        };
        program.set_own_veth(&self.kernel_end)?;
        for device in self.devices.values_mut().filter(|device| device.claim_all) {
            device.program.set_vlans(tag_of(number).as_slice())?;
        }
        let Some(device) = self.devices.get_mut(name) else { return Ok(()) };
        device.arrivals = Some(program.attach_arrivals(name)?);
        // What offload has put in front goes with the program.
        self.in_front.take_off(name, &mut device.program)?;
        device.program.rest();
        BY_TC_MODE.clone_into(&mut device.port.mode);
        Ok(())
    }

    /// Puts the XDP program back. The tag stays known, because packets with it may be on their way through the own veth.
    fn take_by_xdp(&mut self, name: &str) -> Result<(), XskError> {
        let Some(device) = self.devices.get_mut(name) else { return Ok(()) };
        device.program.resume()?;
        // Packets that have passed the place of the XDP program before it was there still need the other ones.
        std::thread::sleep(ON_THEIR_WAY);
        device.arrivals = None;
        device.port.mode = device.program.chosen().0.to_string();
        Ok(())
    }
}

/// Returns whether a port neither guards SIDs nor checks sources, and has no tag.
fn is_open(port: &Port) -> bool {
    port.role == Role::Fabric && port.vlan.is_none() && port.allowed_sources.is_empty()
}
