//! Claims at the ingress of a port by a tc program (`bpf/arrivals.h`), while the port has no XDP program.
//!
//! What is claimed goes through srv6d's own veth to the workers, with a VLAN tag that names the port ([`tag_of`]). All other
//! packets stay with the kernel, as merged by GRO. It needs tcx (Linux 6.6): a filter of clsact would outlive the process,
//! and send packets into a veth that has gone.

use aya::maps::{Array, MapData};
use aya::programs::tc::{SchedClassifierLink, TcAttachOptions};
use aya::programs::{LinkOrder, ProgramError, SchedClassifier, TcAttachType};

use crate::XskError;
use crate::claim_program::ClaimProgram;
use crate::program::{chain, load, os_code, program_fix};

/// Name of the program's function in `bpf/arrivals.h`.
const PROGRAM: &str = "srv6d_arrived";

/// Name of the map with the kernel's end of the own veth.
const OWN_VETH: &str = "own_veth";

/// Returns the VLAN ID that names a port between the tc program and the workers, by the port's number. `None`: the number is
/// too high.
pub fn tag_of(number: usize) -> Option<u16> {
    u16::try_from(number + 1).ok().filter(|tag| (1..=4094).contains(tag))
}

/// Returns the number of the port that a VLAN ID names.
pub fn port_of(tag: u16) -> Option<usize> {
    usize::from(tag).checked_sub(1)
}

/// Holds the tc program at the ingress of a port.
pub struct Arrivals(#[expect(dead_code, reason = "its end takes the program off")] SchedClassifierLink);

impl std::fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Arrivals")
    }
}

impl ClaimProgram {
    /// Claims packets of this port by the tc program from now on. The port must have a row, and its claims.
    ///
    /// # Errors
    /// The kernel refuses, for example because it has no tcx.
    pub fn attach_arrivals(&self, ifname: &str) -> Result<Arrivals, XskError> {
        let attached = self.with_ebpf(|ebpf| {
            let program = ebpf.program_mut(PROGRAM).ok_or(ProgramError::NotLoaded)?;
            let program: &mut SchedClassifier = program.try_into()?;
            if program.fd().is_err() {
                load(|| program.load())?;
            }
            let options = TcAttachOptions::TcxOrder(LinkOrder::first());
            let link = program.attach_with_options(ifname, TcAttachType::Ingress, options)?;
            program.take_link(link)
        });
        attached.map(Arrivals).map_err(|why| XskError::Program {
            ifname: ifname.to_owned(),
            what: "attach",
            why: chain(&why),
            fix: program_fix(os_code(&why)),
        })
    }

    /// Names the kernel's end of the own veth, which claimed packets are sent through.
    ///
    /// # Errors
    /// There is no such interface, or the kernel refuses.
    pub fn set_own_veth(&self, ifname: &str) -> Result<(), XskError> {
        let ifindex = crate::ifindex(ifname)?;
        let error =
            |why: String| XskError::Map { ifname: ifname.to_owned(), what: "name the own veth".to_owned(), why };
        self.with_ebpf(|ebpf| {
            let map = ebpf.map_mut(OWN_VETH).ok_or_else(|| error("the object has no such map".to_owned()))?;
            let mut map: Array<&mut MapData, u32> = map.try_into().map_err(|why| error(chain(&why)))?;
            map.set(0, ifindex, 0).map_err(|why| error(chain(&why)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_has_a_tag_of_its_own_until_there_are_none_left() {
        assert_eq!((tag_of(0), tag_of(4093), tag_of(4094)), (Some(1), Some(4094), None));
        assert_eq!((port_of(1), port_of(0)), (Some(0), None));
    }
}
