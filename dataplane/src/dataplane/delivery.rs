//! Delivery to this node without a worker: with the tc engine, the XDP program of a port decapsulates what a SID delivers
//! to this node, and a tc program hands it to the kernel's end of the own veth.

use std::collections::BTreeMap;

use srv6d_fib::{DELIVERS, FORWARDS, Forwarding};
use srv6d_srv6::desired::{Port, PortId, Role};
use srv6d_xsk::xdp_offload::{Delivery, KernelEnd, ProgramWiring, XdpOffload};

use super::offload::why_not;
use super::{Dataplane, device_name};

impl Dataplane {
    /// Returns, for each port, why the worker decapsulates what SIDs deliver to this node. `None`: programs of the kernel
    /// do. The map is empty if the tc engine is not asked for.
    pub fn deliveries(&self) -> BTreeMap<String, Option<String>> {
        let desired = self.tables.desired();
        let ports = (0..).map(PortId).zip(&desired.ports);
        let ports = ports.filter(|(_, port)| desired.has_tc_engine() && port.role != Role::Kernel);
        let attached = ports.filter(|(_, port)| self.devices.contains_key(device_name(port)));
        attached.map(|(id, port)| (port.name.clone(), self.why_worker_delivers(id, port))).collect()
    }

    fn why_worker_delivers(&self, id: PortId, port: &Port) -> Option<String> {
        let comes_by_tc = self.comes_by_tc(device_name(port));
        if port.vlan.is_none() && self.in_front.delivers(device_name(port), comes_by_tc) {
            return None;
        }
        let snapshot = self.tables.current();
        let of_tables = || snapshot.tables.offload().refused.get(&id).map(|&why| why.to_owned());
        let of_device = || self.devices.get(device_name(port)).and_then(why_not);
        let of_kernel = || self.in_front.not_delivered.get(device_name(port)).cloned();
        Some(match port.role {
            _ if port.vlan.is_some() => "frames of a VLAN are the worker's".to_owned(),
            Role::Edge | Role::Host => "the worker decides who may use SIDs from outside".to_owned(),
            _ if self.own_veth_is_captured() => {
                "a capture of srv6d's own veth is open, and shows what workers have".to_owned()
            }
            _ => of_tables()
                .or_else(of_device)
                .or_else(of_kernel)
                .unwrap_or_else(|| "the programs are not in force: the line of srv6d's own veth says why".to_owned()),
        })
    }

    /// Puts the tc programs on the ports that packets for this node may be delivered from, and writes into `wiring`
    /// which ports these are. Ports on which the XDP program is then not needed are removed from `wiring`.
    pub(super) fn wire_delivery(
        &self,
        program: &mut XdpOffload,
        rows: &Forwarding,
        wiring: &mut ProgramWiring,
    ) -> BTreeMap<String, String> {
        let mut refused = BTreeMap::new();
        wiring.kernel = self.kernel_end();
        for (&index, &number) in &wiring.from {
            let delivers = rows.ports.get(&index).is_some_and(|port| port.flags & DELIVERS != 0);
            let name = self.tables.desired().ports.get(usize::from(index)).map(device_name);
            let (Some(kernel), Some(name), true) = (&mut wiring.kernel, name, delivers) else { continue };
            let wanted = if self.comes_by_tc(name) { Delivery::Whole } else { Delivery::Marked };
            match program.put_on_ingress(number, name, wanted) {
                Ok(()) => drop(kernel.from.insert(index)),
                Err(why) => drop(refused.insert(name.to_owned(), why.to_string())),
            }
        }
        let ProgramWiring { from, kernel, .. } = wiring;
        let delivers = |index: &u16| kernel.as_ref().is_some_and(|kernel| kernel.from.contains(index));
        let forwards = |index: &u16| rows.ports.get(index).is_some_and(|port| port.flags & FORWARDS != 0);
        from.retain(|index, _| forwards(index) || delivers(index));
        refused
    }

    /// Returns the devices that packets for this node are delivered from, by their numbers.
    pub(super) fn delivering(&self, wiring: &ProgramWiring) -> BTreeMap<u16, String> {
        let indexes = wiring.kernel.iter().flat_map(|kernel| &kernel.from);
        let device = |index: &u16| {
            let name = self.tables.desired().ports.get(usize::from(*index)).map(device_name)?;
            Some((*wiring.from.get(index)?, name.to_owned()))
        };
        indexes.filter_map(device).collect()
    }

    fn own_veth_is_captured(&self) -> bool {
        let mut own = self.devices.iter().filter(|(_, device)| device.claim_all);
        let captured = self.taps.captured();
        own.any(|(name, _)| self.numbers.get(name).is_some_and(|number| captured.contains(number)))
    }

    /// Returns the kernel's end of the own veth, if the tc engine is asked for.
    fn kernel_end(&self) -> Option<KernelEnd> {
        let desired = self.tables.desired();
        let port = desired.host.filter(|_| desired.has_tc_engine())?.port;
        let name = desired.ports.get(usize::from(port.0)).map(device_name)?;
        let number = u16::try_from(*self.numbers.get(name)?).ok().filter(|_| !self.own_veth_is_captured())?;
        KernelEnd::of(&self.kernel_end, number).ok()
    }
}
