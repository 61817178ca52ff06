//! The fast path for a program that forwards plain packets in front of the workers.
//!
//! It is an extract of the tables, which has the rows that such a program can need. The program knows uN and uA with
//! 32-bit blocks, paths of up to three segments, decapsulation, and transit, and with the tc engine decapsulation for
//! this node. It hands everything else to the worker.

mod scope;

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use srv6d_fib::{
    DELIVERS, FORWARDS, Forwarding, GroupRow, Groups, PathKind, PathRow, PatternRow, PortRow, Prefix, Prefixes,
    SidKind, SidRow, SrhRow, TABLES,
};

use crate::desired::{Desired, PortId, Role};
use crate::fast::{offload_hop_row, offload_port_row};
use crate::tables::{MAIN, PortEntry, Tables, Target, VrfIndex};
pub use scope::{MOST, MOST_WHOLE};
pub(crate) use scope::{Scope, Selected, is_selected};

/// The part of the tables by which packets may be forwarded in front of the workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The rows that the program needs.
    pub forwarding: Forwarding,
    /// Ports that the program was requested for and cannot serve, with the reason.
    pub refused: BTreeMap<PortId, &'static str>,
    /// Tables of which `forwarding` has all prefixes, so that the program forwards plain transit traffic, too.
    pub whole: BTreeSet<VrfIndex>,
    /// Whether there are more than [`MOST`] prefixes, so that those inside steered prefixes are left out.
    pub too_many: bool,
}

impl Offload {
    /// Extracts the rows for the prefixes in `selected`.
    pub(crate) fn of(tables: &Tables, selected: &Selected, desired: &Desired) -> Self {
        let mut offload = Self::default();
        let asked = ports(tables, desired);
        for (&id, &flags) in &asked {
            let Some(port) = tables.port(id) else { continue };
            match why_not(port) {
                Some(reason) => drop(offload.refused.insert(id, reason)),
                None => drop(offload.forwarding.ports.insert(id.0, flagged(offload_port_row(port), flags))),
            }
        }
        let rows = &mut offload.forwarding;
        if rows.ports.is_empty() {
            return offload;
        }
        rows.to_kernel = to_kernel(tables);
        rows.node = tables.fast.node;
        rows.vlans = tables.ports.iter().filter_map(|port| Some((port.id.0, port.vlan?))).collect();
        let inside = tables.fast.sids.iter().filter_map(table_inside);
        let used: BTreeSet<u16> = rows.ports.values().map(|port| port.table).chain(inside).chain([MAIN]).collect();
        rows.tables = selected
            .tables
            .iter()
            .filter(|(table, _)| used.contains(table))
            .map(|(&of, selected)| (of, selected.clone()))
            .collect();
        let domain = &tables.policy.domain_sources;
        rows.domain = domain.iter().copied().map(IpNet::V6).map(bits).collect();
        rows.sources = rows.ports.keys().filter_map(|&id| Some((id, sources(tables.port(PortId(id))?)?))).collect();
        let carriers = |&id: &u16| Some((id, carriers(tables.port(PortId(id))?)?));
        rows.carriers = rows.ports.keys().filter_map(carriers).collect();
        let guarded = asked.keys().filter_map(|&id| tables.port(id)).filter(|port| port.role.is_outside());
        let guarded = guarded.filter(|port| rows.ports.contains_key(&port.id.0)).map(|port| port.vrf);
        let mut guarded: BTreeSet<u16> = guarded.collect();
        if !guarded.is_empty() {
            // What a SID decapsulates of a packet from outside is from outside, too.
            guarded.extend(tables.fast.sids.iter().filter_map(table_inside));
        }
        let own = |table: u16| tables.own_sources.prefixes(table).map(|prefixes| prefixes.into_iter().collect());
        rows.own_sources = guarded.into_iter().map(|table| (table, own(table))).collect();
        rows.sid_space = tables.sid_space.prefixes().collect();
        offload.too_many = selected.too_many;
        offload.whole.clone_from(&selected.whole);
        let targets: BTreeSet<u32> = rows.tables.values().flatten().flat_map(BTreeMap::values).copied().collect();
        let mut extract = Extract { tables, rows };
        for target in targets {
            extract.add(Target::decode(target));
        }
        offload
    }
}

/// Returns the ports whose packets the program may handle, with flags that say what it may do with the packets.
fn ports(tables: &Tables, desired: &Desired) -> BTreeMap<PortId, u32> {
    let mut ports: BTreeMap<PortId, u32> = desired.offload.iter().map(|&id| (id, FORWARDS)).collect();
    if desired.has_tc_engine() {
        // The worker decides who may use SIDs from outside, and has the frames of VLANs.
        let delivers = |port: &&PortEntry| port.role == Role::Fabric && port.vlan.is_none();
        tables.ports.iter().filter(delivers).for_each(|port| *ports.entry(port.id).or_default() |= DELIVERS);
    }
    ports
}

fn flagged(row: PortRow, flags: u32) -> PortRow {
    PortRow { flags: row.flags | flags, ..row }
}

/// Returns the addresses of frames from the packet end of srv6d's own veth to the kernel's end.
fn to_kernel(tables: &Tables) -> [u8; 12] {
    let mut addresses = [0; 12];
    if let Some((host, port)) = tables.host.and_then(|host| Some((host, tables.port(host.port)?))) {
        let (to, from) = addresses.split_at_mut(6);
        to.copy_from_slice(&host.kernel_mac.0);
        from.copy_from_slice(&port.mac.0);
    }
    addresses
}

/// Returns why only the worker can handle the packets of a port, if so.
fn why_not(port: &PortEntry) -> Option<&'static str> {
    let reasons = [
        (u32::from(port.vrf) >= TABLES, "the XDP program has no room for so many tables"),
        (port.fill_checksum, "checksums of what comes in are for the worker to write"),
        // The tc program does not look at addresses of frames.
        (port.role != Role::Kernel && offload_port_row(port).longest == 0, "its MAC address is a group's"),
    ];
    reasons.into_iter().find_map(|(applies, reason)| applies.then_some(reason))
}

/// Returns the sources that may send through a port. `None`: all may.
fn sources(port: &PortEntry) -> Option<Prefixes> {
    let (v6, v4): (Vec<IpNet>, Vec<IpNet>) =
        port.allowed_sources.iter().partition(|prefix| matches!(prefix, IpNet::V6(_)));
    let prefixes = |of: Vec<IpNet>| of.into_iter().map(bits).collect();
    (!port.allowed_sources.is_empty()).then(|| [prefixes(v6), prefixes(v4)])
}

/// Returns the prefixes that may be sent to SIDs through a port, or `None` if the port does not restrict them.
fn carriers(port: &PortEntry) -> Option<BTreeSet<Prefix>> {
    let carriers = port.allowed_carriers.iter().filter(|_| port.role.is_outside());
    let carriers: BTreeSet<Prefix> = carriers.copied().map(IpNet::V6).map(bits).collect();
    (!carriers.is_empty()).then_some(carriers)
}

/// Returns network and length of a prefix. An IPv4 network stands in the upper 32 bits.
fn bits(prefix: IpNet) -> (u128, u8) {
    let network = match prefix {
        IpNet::V6(prefix) => prefix.network().to_bits(),
        IpNet::V4(prefix) => u128::from(prefix.network().to_bits()) << 96,
    };
    (network, prefix.prefix_len())
}

/// Returns the table in which the packets inside of those to a SID are looked up.
const fn table_inside(sid: &SidRow) -> Option<VrfIndex> {
    match sid.kind {
        SidKind::Decapsulate => Some(sid.table),
        SidKind::Slow | SidKind::Shift | SidKind::ShiftVia => None,
    }
}

/// Returns the group of next hops that packets to a SID leave by, whatever their new destination is.
const fn group_of(sid: &SidRow) -> Option<u32> {
    match sid.kind {
        SidKind::ShiftVia => Some(sid.group),
        SidKind::Slow | SidKind::Shift | SidKind::Decapsulate => None,
    }
}

/// The rows that have been extracted so far.
struct Extract<'e> {
    tables: &'e Tables,
    rows: &'e mut Forwarding,
}

impl Extract<'_> {
    /// Adds the rows that a target leads to.
    fn add(&mut self, target: Target) {
        match target {
            Target::Sid(number) => {
                let Some(&sid) = self.tables.fast.sids.get(number as usize) else { return };
                self.rows.sids.insert(number, sid);
                if let Some(group) = group_of(&sid) {
                    self.add_group(group);
                }
            }
            Target::Steer(number) => self.add_steer(number),
            Target::Route(group) | Target::Neighbor(group) => self.add_group(group),
            _ => {}
        }
    }

    fn add_steer(&mut self, number: u32) {
        let Some((row, members)) = self.tables.steers.row(number).zip(self.tables.steers.by_hash(number)) else {
            return;
        };
        self.rows.steers.insert(number, row);
        self.rows.steer_members.extend(listed(row, members));
        self.rows.steer_patterns.extend(pattern(&self.tables.steers, row));
        for &path in members {
            if let Some(&row) = self.tables.fast.paths.get(path as usize)
                && self.rows.paths.insert(path, row).is_none()
                && row.kind != PathKind::Slow
            {
                self.rows.srhs.extend(self.srh(&row).map(|srh| (path, srh)));
                self.add_group(row.group);
            }
        }
    }

    /// Returns the SRH of a path, if the program can write it.
    fn srh(&self, path: &PathRow) -> Option<SrhRow> {
        let srh = self.tables.fast.srh(path)?;
        let mut row = SrhRow::default();
        row.bytes.as_flattened_mut().get_mut(..srh.len()).filter(|_| !srh.is_empty())?.copy_from_slice(srh);
        Some(row)
    }

    /// Adds a group, and those of its next hops that packets can be sent to. The worker holds or refuses packets to
    /// other next hops.
    fn add_group(&mut self, number: u32) {
        if self.rows.groups.contains_key(&number) {
            return;
        }
        let Some((row, members)) = self.tables.groups.row(number).zip(self.tables.groups.by_hash(number)) else {
            return;
        };
        self.rows.groups.insert(number, row);
        self.rows.group_members.extend(listed(row, members));
        self.rows.group_patterns.extend(pattern(&self.tables.groups, row));
        let is_fabric = |device: u16| self.tables.port(PortId(device)).is_some_and(|port| port.role != Role::Kernel);
        let hop = |hop: u32| self.tables.adjacencies.get(hop as usize).map(offload_hop_row);
        let hops = members.iter().filter_map(|&number| Some((number, hop(number)?)));
        self.rows.hops.extend(hops.filter(|(_, hop)| hop.mtu > 0 && is_fabric(hop.port)));
    }
}

/// Returns the pattern of a group with several members.
fn pattern(groups: &Groups, row: GroupRow) -> Option<(u32, PatternRow)> {
    let pattern = groups.pattern(row.pattern).filter(|_| row.count > 1)?;
    Some((row.pattern, *pattern))
}

/// Returns the members of a group with several members, by their places in the list of members.
fn listed(row: GroupRow, members: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    let is_listed = row.count > 1;
    (row.at..).zip(members.iter().copied()).filter(move |_| is_listed)
}
