//! The views that the daemon shows: the desired state in force, joined with counters and with attached devices.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use srv6d_dataplane::{
    AttachedPort, BusyPolling, Counters, DeviceCounters, PortOffload, QueueCounters, VlanCounters, WhyWorker,
};
use srv6d_srv6::carrier::Carrier;
use srv6d_srv6::desired::{
    Behavior, Desired, DtFamily, Emulation, FarPorts, Flavors, Hop, LocalSid, Path, Port, PortId, Role, RouteAction,
    Steer, TableId,
};
use srv6d_srv6::reason::DropReason;
use srv6d_srv6::tables::AdjacencyState;

use srv6d_api::state::{
    BusyPollingStatus, CountersView, DeliveryStatus, EmulatedStatus, Health, NeighborStatus, NextHopStatus,
    OffloadStatus, PathStatus, PortStatus, ReasonCount, RouteStatus, SidStatus,
};
use srv6d_plan::RoleReason;

mod balance;

/// All data that rows are made of, at one moment.
pub struct View<'a> {
    /// The desired state in force.
    pub desired: &'a Desired,
    /// The reason for the role of each port.
    pub roles: &'a [RoleReason],
    /// Sums over all workers.
    pub counters: &'a Counters,
    /// States of the ports behind neighbours.
    pub far: &'a FarPorts,
    /// Attached devices, by name.
    pub attached: BTreeMap<&'a str, &'a AttachedPort>,
    /// XDP programs, by device.
    pub programs: BTreeMap<String, u32>,
    /// State of busy polling, by device and queue.
    pub busy_polling: BTreeMap<String, Vec<BusyPolling>>,
    /// Reasons why devices are not attached, by name.
    pub refused: &'a BTreeMap<String, String>,
    /// Why workers encapsulate what local applications send, by path. `None`: the tc program does.
    pub local_paths: BTreeMap<String, Option<WhyWorker>>,
    /// Why workers decapsulate what SIDs deliver to this node, by port. `None`: the tc engine does.
    pub deliveries: BTreeMap<String, Option<String>>,
    /// Next hops of the tables in force.
    pub next_hops: BTreeMap<(PortId, IpAddr), AdjacencyState>,
}

fn offload(PortOffload { on, auto, reason }: PortOffload) -> OffloadStatus {
    OffloadStatus { on, auto, reason }
}

fn delivery(why_worker: Option<&str>) -> DeliveryStatus {
    let engine = if why_worker.is_some() { "worker" } else { "tc" };
    DeliveryStatus { engine: engine.to_owned(), reason: why_worker.unwrap_or_default().to_owned() }
}

/// Returns the state of busy polling, or `None` if it was not requested.
fn busy_polling(queues: &[BusyPolling]) -> Option<BusyPollingStatus> {
    let napi = |queue: &BusyPolling| match queue {
        BusyPolling::Napi(id) => Some(*id),
        BusyPolling::Refused | BusyPolling::Unknown | BusyPolling::NoNapi => None,
    };
    let without = queues.iter().find(|queue| napi(queue).is_none());
    let reason = match without {
        Some(BusyPolling::Refused) => "the kernel refuses it: it needs Linux 5.11 or newer, and CAP_NET_ADMIN",
        Some(BusyPolling::NoNapi) => {
            "the socket has no NAPI, as on every veth: packets are received as without busy polling"
        }
        Some(BusyPolling::Unknown) => "not known before the first packet arrives",
        Some(BusyPolling::Napi(_)) | None => "",
    };
    let row = BusyPollingStatus { napi_ids: queues.iter().filter_map(napi).collect(), reason: reason.to_owned() };
    (!queues.is_empty()).then_some(row)
}

fn emulated(emulation: &Emulation, queue: Option<&QueueCounters>) -> EmulatedStatus {
    let queue = queue.cloned().unwrap_or_default();
    let dropped = [
        (DropReason::QueueFull, queue.queue_full),
        (DropReason::Wred, queue.wred_dropped),
        (DropReason::WireLoss, queue.wire_loss),
        (DropReason::PortDown, queue.port_down),
    ];
    EmulatedStatus {
        rate: emulation.rate,
        load_permille: queue.load_permille,
        packets: queue.packets,
        queue_bytes: queue.bytes,
        peak_bytes: queue.peak_bytes,
        marked: queue.ce_marked,
        dropped: dropped.map(|(reason, packets)| (reason.name().to_owned(), packets)).into(),
        late: queue.late.to_vec(),
        late_ns: queue.late_ns,
    }
}

/// Returns the name of the device below a port: that of its untagged port, or the parent part of `device.vid`.
pub fn device_of<'a>(desired: &'a Desired, port: &'a Port) -> &'a str {
    let physical = desired.ports.get(usize::from(port.device)).unwrap_or(port);
    match physical.vlan {
        Some(vid) => physical.name.strip_suffix(&format!(".{vid}")).unwrap_or(&physical.name),
        None => &physical.name,
    }
}

impl View<'_> {
    /// Returns the rows of `show ports`.
    pub fn ports(&self) -> Vec<PortStatus> {
        (0..).zip(&self.desired.ports).map(|(index, port)| self.port(index, port)).collect()
    }

    fn port(&self, index: u16, port: &Port) -> PortStatus {
        let device = device_of(self.desired, port);
        let attached = self.attached.get(device);
        let counted = self.counted(index, port, device);
        let state = match (attached, port.up) {
            (None, _) => Health::Pending,
            (Some(_), true) => Health::Up,
            (Some(_), false) => Health::Down,
        };
        let waits =
            || self.refused.get(device).cloned().unwrap_or_else(|| format!("waits for network device {device}"));
        PortStatus {
            name: port.name.clone(),
            device: device.to_owned(),
            vlan: port.vlan,
            state,
            role: role(port.role).to_owned(),
            role_reason: self.roles.get(usize::from(index)).map(ToString::to_string).unwrap_or_default(),
            table: port.table.0,
            mode: attached.map(|attached| attached.mode.clone()),
            reason: attached.map_or_else(waits, |attached| attached.reason.clone()),
            queues: attached.map_or(0, |attached| attached.queues),
            mtu: port.mtu,
            mac: attached.map(|_| port.mac.to_string()),
            xdp_program: self.programs.get(device).copied(),
            rx_packets: counted.rx_packets,
            rx_bytes: counted.rx_bytes,
            rx_lost: counted.rx_dropped,
            tx_packets: counted.tx_packets,
            tx_bytes: counted.tx_bytes,
            tx_lost: counted.tx_dropped,
            rx_refused: counted.rx_refused,
            to_kernel: counted.to_kernel,
            offload: attached
                .filter(|_| port.device == index)
                .and_then(|attached| attached.offload.clone())
                .map(offload),
            offloaded: counted.offloaded,
            delivery: self.deliveries.get(&port.name).map(|why| delivery(why.as_deref())),
            busy_polling: self
                .busy_polling
                .get(device)
                .filter(|_| port.device == index)
                .and_then(|queues| busy_polling(queues)),
            emulated: self
                .desired
                .emulated
                .get(&PortId(index))
                .map(|emulation| emulated(emulation, counted.queue.as_ref())),
        }
    }

    /// Returns the counters of one port. A tagged port has its own; an untagged port has those of the device minus
    /// those of the tagged ports. Counters that only the device has are shown at the port that stands for the device.
    fn counted(&self, index: u16, port: &Port, device: &str) -> DeviceCounters {
        let whole = self.counters.devices.iter().find(|counters| counters.name == device);
        let mut counted = whole.filter(|_| port.device == index).cloned().unwrap_or_default();
        let vlans = || self.counters.vlans.iter();
        if port.vlan.is_some() {
            let own = vlans().find(|vlan| vlan.port == port.name).cloned().unwrap_or_default();
            (counted.rx_packets, counted.rx_bytes) = (own.rx_packets, own.rx_bytes);
            (counted.tx_packets, counted.tx_bytes) = (own.tx_packets, own.tx_bytes);
        } else {
            let of_device = |vlan: &&VlanCounters| vlan.port.rsplit_once('.').is_some_and(|(name, _)| name == device);
            for vlan in vlans().filter(of_device) {
                counted.rx_packets = counted.rx_packets.saturating_sub(vlan.rx_packets);
                counted.rx_bytes = counted.rx_bytes.saturating_sub(vlan.rx_bytes);
                counted.tx_packets = counted.tx_packets.saturating_sub(vlan.tx_packets);
                counted.tx_bytes = counted.tx_bytes.saturating_sub(vlan.tx_bytes);
            }
        }
        counted
    }

    /// Returns the rows of `show sids`.
    pub fn sids(&self) -> Vec<SidStatus> {
        let counted: BTreeMap<&str, (u64, u64)> =
            self.counters.sids.iter().map(|c| (c.sid.as_str(), (c.packets, c.bytes))).collect();
        let mut rows: Vec<SidStatus> = self.desired.sids.iter().map(|sid| self.sid(sid, &counted)).collect();
        rows.sort_by(|a, b| a.sid.cmp(&b.sid));
        rows
    }

    fn sid(&self, sid: &LocalSid, counted: &BTreeMap<&str, (u64, u64)>) -> SidStatus {
        let (via, backup): (&[Hop], &[Hop]) = match &sid.behavior {
            Behavior::EndX { via, backup, .. } => (via, backup),
            Behavior::EndDx { via, .. } => (via, &[]),
            Behavior::End { .. } | Behavior::EndDt { .. } => (&[], &[]),
        };
        let (next_hops, backup) = (self.hops(via), self.hops(backup));
        let text = sid.prefix.to_string();
        let (packets, bytes) = counted.get(text.as_str()).copied().unwrap_or_default();
        SidStatus {
            behavior: behavior(self.desired, sid),
            flavors: flavors(sid.flavors),
            csid: csid(&sid.behavior),
            table: if let Behavior::EndDt { table, .. } = &sid.behavior { Some(table.0) } else { None },
            state: best(&next_hops, &backup),
            sid: text,
            next_hops,
            backup,
            packets,
            bytes,
        }
    }

    /// Returns the rows of `show paths`. `left_out` has all paths of those prefixes of which some are left out.
    pub fn paths(&self, left_out: &BTreeMap<(TableId, IpNet), Vec<Path>>) -> Vec<PathStatus> {
        let counted: BTreeMap<&str, (u64, u64)> =
            self.counters.paths.iter().map(|c| (c.path.as_str(), (c.packets, c.bytes))).collect();
        let counted = |path: &Path| counted.get(path.name.as_str()).copied().unwrap_or_default();
        let mut rows = Vec::new();
        for steer in &self.desired.steers {
            let paths = left_out.get(&(steer.table, steer.prefix)).unwrap_or(&steer.paths);
            let total: u64 = paths.iter().map(|path| counted(path).0).sum();
            let is_used = |path: &Path| steer.paths.iter().any(|used| used.name == path.name);
            let row = |path| PathStatus { left_out: !is_used(path), ..self.path(steer, path, counted(path), total) };
            rows.extend(paths.iter().map(row));
        }
        rows
    }

    fn path(&self, steer: &Steer, path: &Path, (packets, bytes): (u64, u64), total: u64) -> PathStatus {
        let why_worker = self.local_paths.get(&path.name).filter(|_| steer.table == TableId::MAIN);
        PathStatus {
            prefix: steer.prefix.to_string(),
            table: steer.table.0,
            path: path.name.clone(),
            mode: if path.full_srh { "encap" } else { "encap.red" }.to_owned(),
            segments: path.segments.addresses().iter().map(ToString::to_string).collect(),
            usids: path.segments.addresses().iter().map(|segment| self.usids(*segment)).collect(),
            weight: path.weight,
            learned_mtu: self.desired.path_mtus.get(&path.segments).copied(),
            engine: why_worker.map(|why| if why.is_some() { "worker" } else { "tc" }.to_owned()),
            engine_reason: why_worker.copied().flatten().unwrap_or_default().to_owned(),
            next_hops: self.hops(&path.via),
            probes: None,
            left_out: false,
            packets,
            bytes,
            share_percent: percent(packets, total),
        }
    }

    /// Formats a carrier as its uSIDs, `1004 1001 1006 fe06`. A segment that is no carrier of a block is formatted as
    /// an address.
    fn usids(&self, segment: std::net::Ipv6Addr) -> Vec<String> {
        let in_block =
            |block: &srv6d_srv6::desired::Block| block.prefix.prefix_len() == 32 && block.prefix.contains(&segment);
        match Carrier::new(segment) {
            Ok(carrier) if self.desired.blocks.iter().any(in_block) => {
                carrier.usids().map(|usid| format!("{usid:x}")).collect()
            }
            _ => vec![segment.to_string()],
        }
    }

    /// Returns the rows of `show neighbors`: the resolved neighbours, and those that the tables wait for.
    pub fn neighbors(&self) -> Vec<NeighborStatus> {
        let known = self.desired.neighbors.keys().copied();
        let every: BTreeSet<(PortId, IpAddr)> = known.chain(self.next_hops.keys().copied()).collect();
        let row = |(port, address): (PortId, IpAddr)| {
            let mac = self.desired.neighbors.get(&(port, address));
            NeighborStatus {
                address: address.to_string(),
                port: self.port_name(port),
                mac: mac.map(ToString::to_string),
                state: if mac.is_some() { Health::Up } else { Health::Unresolved },
                next_hop: self.next_hops.contains_key(&(port, address)),
            }
        };
        every.into_iter().map(row).collect()
    }

    /// Returns the view of `show counters`.
    pub fn counters(&self) -> CountersView {
        let total = &self.counters.total;
        CountersView {
            rx: total.rx,
            tx: total.tx,
            kernel: total.kernel,
            held: total.held,
            queued: total.queued,
            offloaded: total.offloaded,
            local_lost: None,
            ecn_unused: self.counters.ecn_unused,
            accounted: total.accounted(),
            balanced: total.balanced(),
            reply: reasons(&total.reply),
            drop: reasons(&total.drop),
            ports: self.ports(),
        }
    }

    fn hops(&self, list: &[Hop]) -> Vec<NextHopStatus> {
        hops(self.desired, list)
    }

    fn port_name(&self, port: PortId) -> String {
        port_name(self.desired, port)
    }
}

/// The input of `show routes`. There may be a million routes, so the control loop only copies them, and another thread
/// makes the rows.
#[derive(Debug)]
pub struct RouteTable(Desired);

impl RouteTable {
    /// Copies what the rows need.
    pub fn of(desired: &Desired) -> Self {
        Self(Desired {
            ports: desired.ports.clone(),
            routes: desired.routes.clone(),
            neighbors: desired.neighbors.clone(),
            ..Desired::default()
        })
    }

    /// Returns the rows of `show routes`.
    pub fn rows(&self) -> Vec<RouteStatus> {
        let row = |route: &srv6d_srv6::desired::Route| {
            let (kind, list): (&str, &[Hop]) = match &route.action {
                RouteAction::Via(list) => ("unicast", list),
                RouteAction::Blackhole => ("blackhole", &[]),
                RouteAction::Unreachable => ("unreachable", &[]),
                RouteAction::Kernel => ("kernel", &[]),
            };
            let next_hops = hops(&self.0, list);
            RouteStatus { prefix: route.prefix.to_string(), table: route.table.0, kind: kind.to_owned(), next_hops }
        };
        self.0.routes.iter().map(row).collect()
    }
}

/// Returns the name of the behaviour. RFC 9800 calls a decapsulating function inside a uSID block uDT, RFC 8986 any other
/// one End.DT.
pub fn behavior(desired: &Desired, sid: &LocalSid) -> String {
    let in_block = desired.blocks.iter().any(|block| block.prefix.contains(&sid.prefix));
    let named =
        |micro: &str, classic: &str, micro_too: bool| if micro_too { micro.to_owned() } else { classic.to_owned() };
    match &sid.behavior {
        Behavior::End { csid, .. } => named("uN", "End", csid.is_some()),
        Behavior::EndX { csid, .. } => named("uA", "End.X", csid.is_some()),
        Behavior::EndDt { family, .. } => named("uDT", "End.DT", in_block) + digits(*family),
        Behavior::EndDx { family, .. } => named("uDX", "End.DX", in_block) + digits(*family),
    }
}

/// Returns next hops on one line: `via fe80::2 eth1, on-link eth2`.
pub fn hops_text(desired: &Desired, hops: &[Hop]) -> String {
    let one = |hop: &Hop| match hop.via {
        Some(via) => format!("via {via} {}", port_name(desired, hop.port)),
        None => format!("on-link {}", port_name(desired, hop.port)),
    };
    hops.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn hops(desired: &Desired, hops: &[Hop]) -> Vec<NextHopStatus> {
    hops.iter().map(|next| hop(desired, next)).collect()
}

fn hop(desired: &Desired, hop: &Hop) -> NextHopStatus {
    let mac = hop.via.and_then(|via| desired.neighbors.get(&(hop.port, via)));
    let port_up = desired.ports.get(usize::from(hop.port.0)).is_some_and(|port| port.up);
    let state = match (port_up, hop.via, mac) {
        (false, ..) => Health::Down,
        (true, Some(_), None) => Health::Unresolved,
        (true, ..) => Health::Up,
    };
    NextHopStatus {
        via: hop.via.map(|via| via.to_string()),
        port: port_name(desired, hop.port),
        weight: hop.weight,
        mac: mac.map(ToString::to_string),
        state,
    }
}

/// Returns the name of a port.
pub fn port_name(desired: &Desired, port: PortId) -> String {
    desired.ports.get(usize::from(port.0)).map_or_else(|| port.0.to_string(), |port| port.name.clone())
}

/// Returns the name of a role, as in the configuration.
pub const fn role(role: Role) -> &'static str {
    match role {
        Role::Fabric => "fabric",
        Role::Edge => "edge",
        Role::Host => "host",
        Role::Kernel => "kernel",
    }
}

const fn digits(family: DtFamily) -> &'static str {
    match family {
        DtFamily::V6 => "6",
        DtFamily::V4 => "4",
        DtFamily::V46 => "46",
    }
}

/// Returns the names of flavors.
pub fn flavors(flavors: Flavors) -> Vec<String> {
    let all = [("psp", flavors.psp), ("usp", flavors.usp), ("usd", flavors.usd)];
    all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.to_owned()).collect()
}

const fn csid(behavior: &Behavior) -> Option<[u8; 2]> {
    match behavior {
        Behavior::End { csid: Some(csid), .. } | Behavior::EndX { csid: Some(csid), .. } => {
            Some([csid.lblen, csid.nflen])
        }
        Behavior::End { .. } | Behavior::EndX { .. } | Behavior::EndDt { .. } | Behavior::EndDx { .. } => None,
    }
}

/// Returns the best state of the next hops. One usable next hop or backup is enough, and a SID without next hops is
/// always up.
fn best(next_hops: &[NextHopStatus], backup: &[NextHopStatus]) -> Health {
    let all = || next_hops.iter().chain(backup).map(|hop| hop.state);
    if next_hops.is_empty() || all().any(|state| state == Health::Up) {
        Health::Up
    } else if all().any(|state| state == Health::Unresolved) {
        Health::Unresolved
    } else {
        Health::Down
    }
}

/// Returns a percentage with one decimal, computed so that the JSON has no rounding artefacts.
#[allow(clippy::cast_precision_loss, reason = "at most 1000, exact in an f64")]
fn percent(part: u64, total: u64) -> Option<f64> {
    let whole = u128::from(total.max(1));
    let permille = (u128::from(part) * 1000 + whole / 2) / whole;
    (total > 0).then(|| u64::try_from(permille).unwrap_or(1000) as f64 / 10.0)
}

fn reasons(counts: &BTreeMap<&'static str, u64>) -> Vec<ReasonCount> {
    let row = |(&reason, &packets): (&&'static str, &u64)| ReasonCount {
        reason: reason.to_owned(),
        packets,
        meaning: meaning(reason).to_owned(),
    };
    counts.iter().map(row).collect()
}

fn meaning(reason: &str) -> &'static str {
    if reason == "echo" {
        return "echo request to a local SID, answered";
    }
    DropReason::ALL.iter().find(|known| known.name() == reason).map_or("", |known| known.explanation())
}

#[cfg(test)]
mod tests;
