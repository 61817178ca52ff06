//! Configurations of the nodes of the exact mode, as an operator would write them, and what each node sees of its kernel.

use std::fmt::Write as _;
use std::net::IpAddr;

use srv6d_config as config;
use srv6d_plan::{self as plan, Device, Environment, HostVeth, KernelNeighbor};
use srv6d_srv6::desired::{Balance, Balancing, Desired, GroupPolicy, PortId};

use super::addresses::{self, BLOCK, PEER, VETH};
use super::{Exact, NodeKind};
use crate::modes::Known;
use crate::settings::ChoiceRule;
use crate::shape::Place;

/// Lowest rate that a configuration may state.
const LEAST_RATE: u64 = srv6d_emulate::LEAST_RATE;
/// Shortest MTU of a port.
const LEAST_MTU: u32 = 1500;

/// The knowledge that a node has of the fabric, besides its own ports.
pub(crate) struct Knowledge<'k> {
    /// Returns what the routing knows of the link between a leaf and a spine.
    pub link: &'k dyn Fn(u32, u32) -> Known,
    /// Returns the hosts that a host sends to, each with the spine that the planner has given it.
    pub destinations: &'k dyn Fn(u32) -> Vec<(u32, Option<u32>)>,
}

// Writing into a String cannot fail, so the result is ignored by `let _`.

impl Exact {
    /// Returns the desired state of a node.
    ///
    /// # Errors
    /// The configuration is refused. The text says what is wrong with it.
    pub(super) fn desired(&self, node: u32, knowledge: &Knowledge<'_>) -> Result<Desired, String> {
        let config = config::parse(&self.text(node, knowledge), "srv6d.toml").map_err(|errors| errors.to_string())?;
        let plan = plan::plan(&config, &self.environment(node)).map_err(|errors| errors.to_string())?;
        let mut desired = plan.desired;
        for (index, port) in (0..).zip(self.ports(node)) {
            desired.emulated.insert(PortId(index), self.links[port].emulation);
        }
        if let (NodeKind::Leaf(_), ChoiceRule::ByState { policy, sample, rate_weight, flows }) =
            (self.kind(node), self.rule)
        {
            desired.balance = Balance {
                settings: Balancing {
                    policies: vec![policy],
                    names: vec!["fabric".to_owned()],
                    flows,
                    sample: u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX),
                    rate_weight,
                    ..desired.balance.settings
                },
                default: GroupPolicy::Stateful(1),
                ..desired.balance
            };
        }
        Ok(desired)
    }

    fn text(&self, node: u32, knowledge: &Knowledge<'_>) -> String {
        let mut text = String::new();
        let seed = u32::try_from(self.seed & 0xffff).unwrap_or_default() << 16 ^ node;
        let _ = writeln!(text, "[node]\nname = \"node{node}\"\nhash_seed = {seed}\nhash_qp = true");
        let usid = self.usid(node);
        let _ = writeln!(text, "source = \"fcbb:0:{usid:x}::1\"");
        let is_weighted = self.rule == ChoiceRule::Weighted && matches!(self.kind(node), NodeKind::Leaf(_));
        let _ = writeln!(text, "balance = \"{}\"", if is_weighted { "fare" } else { "hash" });
        if is_weighted {
            text.push_str("[[balance]]\nname = \"fare\"\nmode = \"weighted\"\n");
        }
        let _ = writeln!(text, "[[block]]\nprefix = \"{BLOCK}\"");
        for port in self.ports(node) {
            let name = addresses::name(port, self.seed);
            let rate = self.links[port].emulation.rate.max(LEAST_RATE);
            let _ = writeln!(text, "[[port]]\nname = \"{name}\"\nrole = \"fabric\"\nspeed = \"{rate}bit\"");
        }
        let _ = writeln!(text, "[[sid]]\nsid = \"fcbb:0:{usid:x}::/48\"\nbehavior = \"uN\"");
        match self.kind(node) {
            NodeKind::Leaf(leaf) => self.of_leaf(&mut text, leaf, knowledge),
            NodeKind::Spine(spine) => self.of_spine(&mut text, spine),
            NodeKind::Host(host) => self.of_host(&mut text, host, knowledge),
        }
        text
    }

    /// Writes the routes of a leaf: to other leaves over all spines, and to each spine and each of its hosts.
    fn of_leaf(&self, text: &mut String, leaf: u32, knowledge: &Knowledge<'_>) {
        let shape = self.shape;
        let up = |spine| shape.port(Place::LeafUp { leaf, spine });
        for to in (0..shape.leaves).filter(|to| *to != leaf) {
            let is_up = |spine: &u32| [leaf, to].iter().all(|leaf| (knowledge.link)(*leaf, *spine).is_up);
            let mut spines: Vec<u32> = (0..shape.spines).filter(is_up).collect();
            if spines.is_empty() {
                spines = (0..shape.spines).collect();
            }
            let hop = |spine: u32| {
                let capacity = (knowledge.link)(to, spine).down.max(LEAST_RATE);
                let capacity = match self.rule {
                    ChoiceRule::Weighted => format!(", capacity = \"{capacity}bit\""),
                    _ => String::new(),
                };
                format!("{{ via = \"{PEER}\", port = \"{}\"{capacity} }}", addresses::name(up(spine), self.seed))
            };
            let hops: Vec<String> = spines.into_iter().map(hop).collect();
            let prefix = addresses::leaf(to);
            let _ = writeln!(text, "[[route]]\nprefix = \"fcbb:0:{prefix:x}::/48\"\nnexthops = [{}]", hops.join(", "));
        }
        (0..shape.spines).for_each(|spine| self.route(text, addresses::spine(spine), up(spine)));
        for host in leaf * shape.hosts..(leaf + 1) * shape.hosts {
            self.route(text, addresses::host(host), shape.port(Place::HostDown { host }));
        }
    }

    fn of_spine(&self, text: &mut String, spine: u32) {
        for leaf in 0..self.shape.leaves {
            self.route(text, addresses::leaf(leaf), self.shape.port(Place::SpineDown { spine, leaf }));
        }
    }

    /// Writes the paths of a host. A path without a spine is loose: the leaf chooses the spine.
    fn of_host(&self, text: &mut String, host: u32, knowledge: &Knowledge<'_>) {
        let (own, up) = (addresses::host(host), self.shape.port(Place::HostUp { host }));
        let _ = writeln!(text, "[[sid]]\nsid = \"fcbb:0:{own:x}:fe06::/64\"\nbehavior = \"uDT6\"");
        let port = addresses::name(up, self.seed);
        let _ = writeln!(text, "[[route]]\nprefix = \"{BLOCK}\"\nvia = \"{PEER}\"\nport = \"{port}\"");
        for (to, spine) in (knowledge.destinations)(host) {
            let spine = spine.map(|spine| format!("{:x}:", addresses::spine(spine))).unwrap_or_default();
            let [leaf, there] = [addresses::leaf(self.shape.leaf_of(to)), addresses::host(to)];
            let carrier = format!("fcbb:0:{spine}{leaf:x}:{there:x}:fe06::");
            let prefix = addresses::application(to);
            let path = format!("{{ name = \"to{to}\", segments = [\"{carrier}\"] }}");
            let _ = writeln!(text, "[[steer]]\nprefix = \"{prefix}/128\"\npaths = [{path}]");
        }
    }

    fn route(&self, text: &mut String, usid: u32, port: u32) {
        let port = addresses::name(port, self.seed);
        let _ = writeln!(text, "[[route]]\nprefix = \"fcbb:0:{usid:x}::/48\"\nvia = \"{PEER}\"\nport = \"{port}\"");
    }

    const fn usid(&self, node: u32) -> u32 {
        match self.kind(node) {
            NodeKind::Leaf(leaf) => addresses::leaf(leaf),
            NodeKind::Spine(spine) => addresses::spine(spine),
            NodeKind::Host(host) => addresses::host(host),
        }
    }

    /// Returns what a node sees of its kernel: its ports, with the neighbour at the other end of each.
    fn environment(&self, node: u32) -> Environment {
        let mtu = self.mtu();
        let mut environment = Environment::default();
        for (port, ifindex) in self.ports(node).zip(2..) {
            let name = addresses::name(port, self.seed);
            environment.neighbors.extend(PEER.parse::<IpAddr>().ok().map(|address| KernelNeighbor {
                device: name.clone(),
                address,
                mac: addresses::mac(self.shape.other_end(port)),
            }));
            let (mac, up) = (addresses::mac(port), self.links[port].is_up);
            environment.devices.push(Device { name, ifindex, mac, mtu, up, addresses: Vec::new() });
        }
        if let NodeKind::Host(host) = self.kind(node) {
            let addresses = vec![IpAddr::V6(addresses::application(host)).into()];
            let loopback = Device {
                name: "lo".to_owned(),
                ifindex: 1,
                mac: srv6d_srv6::desired::Mac::default(),
                mtu: 65_536,
                up: true,
                addresses,
            };
            environment.devices.push(loopback);
            environment.host = Some(HostVeth {
                device: VETH.to_owned(),
                packet_mac: addresses::packet_mac(host),
                kernel_mac: addresses::kernel_mac(host),
                mtu,
                up: true,
            });
        }
        environment
    }

    fn mtu(&self) -> u32 {
        self.frame.max(LEAST_MTU)
    }
}
