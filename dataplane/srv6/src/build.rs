//! Compiles the desired state to tables.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use srv6d_fib::{BY_HASH, Spread, Spreader};
use srv6d_wire::{eth, protocol, srh};

use crate::carrier::SegmentList;
use crate::desired::{Behavior, Desired, Hop, LocalSid, Path, Port, PortId, RouteAction, RouteChange, TableId};
use crate::fast::FastTables;
use crate::flow::Seed;
use crate::history::{Before, Histories};
use crate::lpm::{Key, Lpm, Meaning};
use crate::offload::{Offload, Scope};
use crate::own_sources::OwnSources;
use crate::sid_space::SidSpace;
use crate::tables::{
    Action, Adjacency, AdjacencyState, CrossConnect, Epoch, MAIN, MAX_OUTER, PathEntry, PortEntry, Sid, Tables, Target,
    Vrf, VrfIndex,
};
use crate::tally::Slots;

/// Routes with a prefix shorter than this, above all default routes, have a group of their own. Their value covers a
/// large part of a prefix table. When their next hops change, only the group changes, and the table stays as it is.
pub(crate) const OWN_GROUP: u8 = 8;

/// Why a desired state cannot become tables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A next hop names a port that does not exist.
    #[error("next hop names port {0}, but there are only {1} ports")]
    NoSuchPort(u16, usize),
    /// Neither the path, nor its port, nor the node has a source address.
    #[error("path {0}: no outer source address is configured")]
    NoSource(String),
    /// A list of paths or next hops is empty.
    #[error("{0} has neither a path nor a next hop")]
    Empty(String),
    /// The first segment of a path is one of this node's own SIDs.
    #[error("path {0} starts with a SID of this node: it would come back at once")]
    SelfLoop(String),
}

/// Returns an address as a number. IPv4 addresses stand in the upper 32 bits, so that one kind of table serves both
/// families.
pub(crate) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V6(address) => address.to_bits(),
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
    }
}

pub(crate) fn key(prefix: IpNet) -> Key {
    Key::new(bits(prefix.addr()), prefix.prefix_len())
}

impl Tables {
    /// Compiles `desired`. `slots` keeps the counters of entries that existed before.
    ///
    /// # Errors
    /// Returns [`BuildError`] if the desired state is not consistent.
    pub fn build(desired: &Desired, slots: &mut Slots) -> Result<Self, BuildError> {
        Self::build_with(desired, slots, None, |_| ()).map(|(tables, ())| tables)
    }

    /// Compiles `desired`. `keep` may take parts of the build that are otherwise discarded at its end. Flows stay on
    /// the next hops and paths that they have in the tables `before`, if these next hops and paths still exist.
    pub(crate) fn build_with<'d, T>(
        desired: &'d Desired,
        slots: &'d mut Slots,
        before: Option<Before<'d>>,
        keep: impl FnOnce(&mut Build<'_>) -> T,
    ) -> Result<(Self, T), BuildError> {
        let mut build = Build::new(desired, slots, before);
        build.ports()?;
        build.local_addresses();
        build.sids()?;
        build.steers();
        build.routes()?;
        build.blocks();
        build.neighbors()?;
        build.tables.own_sources = OwnSources::of(desired, &build.vrfs);
        let selected = Scope::of(desired, &build.vrfs).among(&build.entries);
        build.prefix_tables();
        build.paths()?;
        build.tables.fast = FastTables::build(&build.tables);
        build.tables.offload = Offload::of(&build.tables, &selected, desired);
        let kept = keep(&mut build);
        Ok((build.tables, kept))
    }
}

/// The kinds of entry that a prefix may have, the strongest first. If a prefix has several entries, the strongest is in
/// force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// An address of the node itself.
    LocalAddress,
    /// A SID of the node.
    Sid,
    /// A prefix steered over paths.
    Steer,
    /// A plain route.
    Route,
    /// A block of SIDs.
    Block,
    /// A resolved neighbour on a link.
    Neighbor,
}

impl Rank {
    /// All ranks, by their number.
    pub(crate) const ALL: [Self; 6] =
        [Self::LocalAddress, Self::Sid, Self::Steer, Self::Route, Self::Block, Self::Neighbor];
}

/// Returns the upper 32 bits of the blocks that the main table has an index for.
pub(crate) fn indexed_blocks(desired: &Desired) -> Vec<u32> {
    let blocks = desired.blocks.iter().filter(|block| block.prefix.prefix_len() == 32);
    blocks.map(|block| (block.prefix.network().to_bits() >> 96) as u32).collect()
}

/// Returns the tables that SIDs are looked up in: main, and those of ports if the policy says so.
pub(crate) fn sid_tables(desired: &Desired) -> BTreeSet<TableId> {
    let of_ports = desired.ports.iter().map(|port| port.table).filter(|_| desired.policy.vrf_sids);
    of_ports.chain([TableId::MAIN]).collect()
}

/// Entries of one prefix table, in the order of their rank.
pub(crate) type Entries = Vec<(Key, Meaning)>;

pub(crate) struct Build<'d> {
    desired: &'d Desired,
    slots: &'d mut Slots,
    pub(crate) tables: Tables,
    pub(crate) vrfs: BTreeMap<TableId, VrfIndex>,
    /// IPv6 and IPv4 entries, by VRF.
    pub(crate) entries: Vec<[Entries; 2]>,
    pub(crate) known: Known,
    /// Groups of the earlier tables. A whole build leaves their flows on the members that they have.
    histories: Histories<'d>,
    /// The group whose flows keep their members in the next new group.
    before: Option<u32>,
}

/// Next hops and groups that exist already, with their numbers.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) adjacencies: HashMap<(PortId, IpAddr), u32>,
    groups: HashMap<Group, u32>,
    /// Next hops of each group with their weights, including those that are not ready.
    members: Vec<Members>,
    /// Next hops that are used only as neighbours on a link. Without a MAC address they are not needed.
    on_link: HashSet<u32>,
    /// Idle next hops that a route, a SID or a path needs again.
    pub(crate) woken: Vec<u32>,
    pub(crate) spreader: Spreader,
}

/// Next hops with their weights.
type Members = Vec<(u32, u32)>;

/// The key that a group of next hops is found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Group {
    /// The group that all routes with these members and this policy share.
    Of(Members, u16),
    /// The group of one route alone, whatever its members are.
    Own(TableId, IpNet),
}

impl<'d> Build<'d> {
    /// Continues the build of existing tables, from the parts that were kept when the tables were built.
    pub(crate) fn resume(desired: &'d Desired, slots: &'d mut Slots, tables: Tables, known: Known) -> Self {
        Self {
            desired,
            slots,
            tables,
            vrfs: BTreeMap::new(),
            entries: Vec::new(),
            known,
            histories: Histories::default(),
            before: None,
        }
    }

    fn new(desired: &'d Desired, slots: &'d mut Slots, before: Option<Before<'d>>) -> Self {
        let tables = Tables {
            epoch: Epoch::next(),
            host: desired.host,
            tunnel: desired.tunnel,
            policy: desired.policy.clone(),
            seed: Seed::of(desired.policy.hash_seed),
            balancing: desired.balance.settings.clone(),
            blocks: desired.blocks.iter().map(|block| block.prefix).collect(),
            sid_space: SidSpace::of(desired),
            ..Tables::default()
        };
        let mut build = Self::resume(desired, slots, tables, Known::default());
        build.histories = before.map(Histories::of).unwrap_or_default();
        build.vrf(TableId::MAIN);
        build
    }

    fn vrf(&mut self, table: TableId) -> VrfIndex {
        let next = VrfIndex::try_from(self.vrfs.len()).unwrap_or(VrfIndex::MAX);
        let index = *self.vrfs.entry(table).or_insert(next);
        if usize::from(index) == self.entries.len() {
            self.entries.push([Vec::new(), Vec::new()]);
        }
        index
    }

    fn add(&mut self, table: TableId, prefix: IpNet, rank: Rank, target: Target) {
        self.add_at(table, prefix, rank, 0, target);
    }

    /// Adds an entry to a prefix table. `at` is the index of the entry in its list of the desired state.
    fn add_at(&mut self, table: TableId, prefix: IpNet, rank: Rank, at: u32, target: Target) {
        let vrf = self.vrf(table);
        if let Some([v6, v4]) = self.entries.get_mut(usize::from(vrf)) {
            let family = if matches!(prefix, IpNet::V6(_)) { v6 } else { v4 };
            family.push((key(prefix), Meaning { value: target.encode(), rank: rank as u8, at }));
        }
    }

    fn port(&self, port: PortId) -> Result<&'d Port, BuildError> {
        let ports = &self.desired.ports;
        ports.get(usize::from(port.0)).ok_or(BuildError::NoSuchPort(port.0, ports.len()))
    }

    fn ports(&mut self) -> Result<(), BuildError> {
        let desired = self.desired;
        for (index, port) in (0..).zip(&desired.ports) {
            self.port(PortId(port.device))?;
            let vrf = self.vrf(port.table);
            self.tables.ports.push(PortEntry {
                id: PortId(index),
                device: port.device,
                vlan: port.vlan,
                tagged: Vec::new(),
                mac: port.mac,
                up: port.up,
                mtu: port.mtu as usize,
                vrf,
                role: port.role,
                icmp_v6: port.icmp_source_v6,
                icmp_v4: port.icmp_source_v4,
                allowed_sources: port.allowed_sources.clone(),
                allowed_carriers: port.allowed_carriers.clone(),
                fill_checksum: port.fill_checksum,
            });
        }
        for (index, port) in (0..).zip(&desired.ports) {
            if let (Some(vid), Some(device)) = (port.vlan, self.tables.ports.get_mut(usize::from(port.device))) {
                device.tagged.push((vid, PortId(index)));
            }
        }
        Ok(())
    }

    /// Adds the local addresses. They come before everything else, because the first of two equal prefixes is in
    /// force.
    fn local_addresses(&mut self) {
        let desired = self.desired;
        for &(table, address) in &desired.local_addresses {
            let is_sid =
                table == TableId::MAIN && desired.sids.iter().any(|sid| IpAddr::V6(sid.prefix.network()) == address);
            if !is_sid {
                self.add(table, IpNet::from(address), Rank::LocalAddress, Target::Local);
            }
        }
    }

    fn sids(&mut self) -> Result<(), BuildError> {
        let desired = self.desired;
        let tables = sid_tables(desired);
        for sid in &desired.sids {
            let action = self.action(sid)?;
            let index = u32::try_from(self.tables.sids.len()).unwrap_or(u32::MAX);
            let local = (TableId::MAIN, IpAddr::V6(sid.prefix.network()));
            self.tables.sids.push(Sid {
                slot: self.slots.sids.slot(sid.prefix),
                action,
                flavors: sid.flavors,
                is_local_address: desired.local_addresses.contains(&local),
                len: sid.prefix.prefix_len(),
            });
            for &table in &tables {
                self.add(table, sid.prefix.into(), Rank::Sid, Target::Sid(index));
            }
        }
        Ok(())
    }

    fn action(&mut self, sid: &LocalSid) -> Result<Action, BuildError> {
        Ok(match &sid.behavior {
            Behavior::End { csid, dscp } => Action::End { csid: *csid, dscp: *dscp },
            Behavior::EndX { csid, via, backup } => {
                let group = self.group_with_backup(sid, via, backup)?;
                Action::EndX { csid: *csid, group }
            }
            Behavior::EndDt { family, table, dscp } => {
                Action::EndDt { family: *family, vrf: self.vrf(*table), dscp: *dscp }
            }
            Behavior::EndDx { family, via } => {
                let way = match via.as_slice() {
                    [Hop { port, via: None, .. }, ..] => self.cross_connect_onto(*port)?,
                    _ => CrossConnect::Group(self.group_with_backup(sid, via, &[])?),
                };
                Action::EndDx { family: *family, way }
            }
        })
    }

    /// Adds a cross-connect (End.DX) onto a link: the inner destination is the neighbour. Every known neighbour on the
    /// port gets a group.
    fn cross_connect_onto(&mut self, port: PortId) -> Result<CrossConnect, BuildError> {
        self.port(port)?;
        let desired = self.desired;
        for &(_, address) in desired.neighbors.keys().filter(|(on, _)| *on == port) {
            let group = self.neighbor_group(port, address)?;
            self.tables.cross_connected.insert((port, address), group);
        }
        Ok(CrossConnect::OnLink(port))
    }

    fn group_with_backup(&mut self, sid: &LocalSid, via: &[Hop], backup: &[Hop]) -> Result<u32, BuildError> {
        if via.is_empty() {
            return Err(BuildError::Empty(sid.prefix.to_string()));
        }
        let down = |hop: &Hop| self.port(hop.port).is_ok_and(|port| !port.up);
        let used = if !backup.is_empty() && via.iter().all(down) { backup } else { via };
        let policy = self.desired.balance.policy_of(TableId::MAIN, sid.prefix.into());
        self.group(used, IpAddr::V6(sid.prefix.network()), policy)
    }

    /// Adds the steered prefixes and the names of their paths. The next hops of a path are known only when the prefix
    /// tables are complete.
    fn steers(&mut self) {
        let desired = self.desired;
        let mut first_path = 0u32;
        for (index, steer) in (0..).zip(&desired.steers) {
            let weights: Vec<(u32, u32)> =
                (first_path..).zip(&steer.paths).map(|(path, spec)| (path, u32::from(spec.weight))).collect();
            let before = self.steered_before((first_path..).zip(&steer.paths));
            first_path += u32::try_from(steer.paths.len()).unwrap_or(0);
            let policy = desired.balance.policy_of(steer.table, steer.prefix);
            let spread = self.known.spreader.spread(&weights, before.as_ref()).chosen_by(policy);
            self.tables.steers.push(&spread);
            self.add_at(steer.table, steer.prefix, Rank::Steer, index, Target::Steer(index));
        }
    }

    /// Returns the slots that these paths had in the earlier tables. Paths are given by their present numbers.
    fn steered_before<'p>(&self, paths: impl Iterator<Item = (u32, &'p Path)>) -> Option<Spread> {
        let known = |name: &String| u32::try_from(self.slots.paths.find(name)?).ok();
        let members: Vec<(u32, u32)> = paths.filter_map(|(number, path)| Some((number, known(&path.name)?))).collect();
        self.histories.paths.before(&members)
    }

    fn routes(&mut self) -> Result<(), BuildError> {
        let desired = self.desired;
        for (at, route) in (0..).zip(&desired.routes) {
            let target = self.target((route.table, route.prefix), &route.action)?;
            self.add_at(route.table, route.prefix, Rank::Route, at, target);
        }
        Ok(())
    }

    /// Returns the target of a changed route, which led to the group `before`. Returns `None` if the route is removed.
    pub(crate) fn changed_target(
        &mut self,
        change: &RouteChange,
        before: Option<u32>,
    ) -> Result<Option<Target>, BuildError> {
        let RouteChange { table, prefix, ref action } = *change;
        let Some(action) = action else { return Ok(None) };
        self.before = before;
        let target = self.target((table, prefix), action)?;
        if let (RouteAction::Via(hops), Some(&own)) = (action, self.known.groups.get(&Group::Own(table, prefix)))
            && target == Target::Route(own)
        {
            let members = self.members(hops, prefix.addr())?;
            let before = self.tables.groups.spread(own);
            let policy = self.desired.balance.policy_of(table, prefix);
            let spread = self.spread(&members, before.as_ref()).chosen_by(policy);
            self.tables.groups.set(own, &spread);
            if let Some(known) = self.known.members.get_mut(own as usize) {
                *known = members;
            }
        }
        Ok(Some(target))
    }

    /// Returns the target of a plain route.
    fn target(&mut self, route: (TableId, IpNet), action: &RouteAction) -> Result<Target, BuildError> {
        let (table, prefix) = route;
        let policy = self.desired.balance.policy_of(table, prefix);
        Ok(match action {
            RouteAction::Via(hops) => match hops.as_slice() {
                [] => return Err(BuildError::Empty(prefix.to_string())),
                [Hop { port, via: None, .. }, ..] => {
                    self.port(*port)?;
                    Target::OnLink(*port)
                }
                hops if prefix.prefix_len() < OWN_GROUP => Target::Route(self.own_group(route, hops, policy)?),
                hops => Target::Route(self.group(hops, prefix.addr(), policy)?),
            },
            RouteAction::Blackhole => Target::Blackhole,
            RouteAction::Unreachable => Target::Unreachable,
            RouteAction::Kernel => Target::Kernel,
        })
    }

    fn blocks(&mut self) {
        let desired = self.desired;
        for block in &desired.blocks {
            if let Some(unknown) = block.unknown {
                self.add(TableId::MAIN, block.prefix.into(), Rank::Block, Target::Unknown(unknown));
            }
        }
    }

    /// Adds a host route for every known neighbour behind an on-link route, unless a longer prefix leads elsewhere.
    fn neighbors(&mut self) -> Result<(), BuildError> {
        let desired = self.desired;
        let mut on_link: HashMap<PortId, Vec<(TableId, IpNet)>> = HashMap::new();
        for route in &desired.routes {
            if let RouteAction::Via(hops) = &route.action
                && let [Hop { port, via: None, .. }, ..] = hops.as_slice()
            {
                on_link.entry(*port).or_default().push((route.table, route.prefix));
            }
        }
        let longer = self.entries_inside(&on_link.values().flatten());
        for &(port, address) in desired.neighbors.keys() {
            for &(table, prefix) in on_link.get(&port).into_iter().flatten() {
                let contains = |within: &IpNet| within.contains(&address);
                let is_longer = |within: &IpNet| within.prefix_len() > prefix.prefix_len();
                let elsewhere =
                    longer.iter().any(|(in_table, within)| *in_table == table && is_longer(within) && contains(within));
                if contains(&prefix) && !elsewhere {
                    let group = self.neighbor_group(port, address)?;
                    self.add(table, IpNet::from(address), Rank::Neighbor, Target::Neighbor(group));
                }
            }
        }
        Ok(())
    }

    /// Returns all prefixes that lie inside one of `of` and are longer than it.
    fn entries_inside<'a>(&self, of: &(impl Iterator<Item = &'a (TableId, IpNet)> + Clone)) -> Vec<(TableId, IpNet)> {
        let desired = self.desired;
        let local = desired.local_addresses.iter().map(|&(table, address)| (table, IpNet::from(address)));
        let sids = sid_tables(desired).into_iter();
        let sids = sids.flat_map(|table| desired.sids.iter().map(move |sid| (table, sid.prefix.into())));
        let steers = desired.steers.iter().map(|steer| (steer.table, steer.prefix));
        let routes = desired.routes.iter().map(|route| (route.table, route.prefix));
        let blocks = desired.blocks.iter().filter(|block| block.unknown.is_some());
        let blocks = blocks.map(|block| (TableId::MAIN, block.prefix.into()));
        let is_inside = |table: TableId, prefix: IpNet| {
            of.clone().any(|&(within, outer)| {
                within == table && outer.prefix_len() < prefix.prefix_len() && outer.contains(&prefix.addr())
            })
        };
        let all = local.chain(sids).chain(steers).chain(routes).chain(blocks);
        all.filter(|&(table, prefix)| is_inside(table, prefix)).collect()
    }

    fn prefix_tables(&mut self) {
        let mut numbered: Vec<_> = self.vrfs.iter().map(|(&table, &vrf)| (vrf, table)).collect();
        numbered.sort_unstable();
        self.tables.table_ids = numbered.into_iter().map(|(_, table)| table).collect();
        let indexed = indexed_blocks(self.desired);
        let value = |&(key, meaning): &(Key, Meaning)| (key, meaning.value);
        for (index, [v6, v4]) in self.entries.iter().enumerate() {
            let blocks = if index == usize::from(MAIN) { indexed.as_slice() } else { &[] };
            let lpm = |entries: &Entries, blocks: &[u32]| Lpm::build(entries.iter().map(value).collect(), blocks);
            self.tables.vrfs.push(Vrf { v6: lpm(v6, blocks), v4: lpm(v4, &[]) });
        }
    }

    fn paths(&mut self) -> Result<(), BuildError> {
        let desired = self.desired;
        for steer in &desired.steers {
            if steer.paths.is_empty() {
                return Err(BuildError::Empty(steer.prefix.to_string()));
            }
            for path in &steer.paths {
                let entry = self.path(path)?;
                self.tables.sid_space.add(&entry);
                self.tables.paths.push(entry);
            }
        }
        Ok(())
    }

    pub(crate) fn path(&mut self, path: &Path) -> Result<PathEntry, BuildError> {
        let group = self.path_group(path)?;
        let port_source = || self.desired.ports.iter().find_map(|port| port.source);
        let source = path.source.or(self.desired.tunnel.source).or_else(port_source);
        let source = source.ok_or_else(|| BuildError::NoSource(path.name.clone()))?;
        let (header, header_len, inner_at) =
            outer_header(source, self.desired.tunnel.hop_limit, &path.segments, path.full_srh);
        let slot = self.slots.paths.slot(path.name.clone());
        let mtu = self.desired.path_mtus.get(&path.segments).map_or(usize::MAX, |&mtu| mtu as usize);
        Ok(PathEntry { slot, header, header_len, inner_at, own_source: path.source.is_some(), group, mtu })
    }

    /// Returns the explicit next hops of a path, or those of the route to its first segment. Returns `None` if there
    /// is no route now.
    fn path_group(&mut self, path: &Path) -> Result<Option<u32>, BuildError> {
        let first = path.segments.first();
        if !path.via.is_empty() {
            let policy = self.desired.balance.policy_of_path(&path.name);
            return self.group(&path.via, IpAddr::V6(first), policy).map(Some);
        }
        self.way_to(first, &path.name)
    }

    /// Returns the next hops of the route to the first segment of a path.
    pub(crate) fn way_to(&mut self, first: Ipv6Addr, path: &str) -> Result<Option<u32>, BuildError> {
        match self.tables.look_up(MAIN, true, first.to_bits()) {
            Some(Target::Route(group) | Target::Neighbor(group)) => Ok(Some(group)),
            Some(Target::OnLink(port)) => {
                self.group(&[Hop { port, via: None, weight: 1 }], IpAddr::V6(first), BY_HASH).map(Some)
            }
            Some(Target::Sid(_)) => Err(BuildError::SelfLoop(path.to_owned())),
            _ => Ok(None),
        }
    }

    fn group(&mut self, hops: &[Hop], destination: IpAddr, policy: u16) -> Result<u32, BuildError> {
        let members = self.members(hops, destination)?;
        Ok(self.number(Group::Of(members.clone(), policy), members, policy))
    }

    fn own_group(&mut self, (table, prefix): (TableId, IpNet), hops: &[Hop], policy: u16) -> Result<u32, BuildError> {
        let members = self.members(hops, prefix.addr())?;
        Ok(self.number(Group::Own(table, prefix), members, policy))
    }

    /// Returns the group of a neighbour on a link.
    pub(crate) fn neighbor_group(&mut self, port: PortId, address: IpAddr) -> Result<u32, BuildError> {
        let known = |known: &Known| known.adjacencies.get(&(port, address)).copied();
        let is_needed = known(&self.known).is_some_and(|at| !self.known.on_link.contains(&at));
        let group = self.group(&[Hop { port, via: Some(address), weight: 1 }], address, BY_HASH)?;
        if !is_needed {
            self.known.on_link.extend(known(&self.known));
        }
        Ok(group)
    }

    /// Returns the number of a group, and creates the group if it does not exist. An existing group stays as it is,
    /// because the first of two routes to the same prefix is in force.
    fn number(&mut self, group: Group, members: Members, policy: u16) -> u32 {
        if let Some(&known) = self.known.groups.get(&group) {
            return known;
        }
        let spread = self.spread_of(&group, &members).chosen_by(policy);
        let number = self.tables.groups.push(&spread);
        self.known.groups.insert(group, number);
        self.known.members.push(members);
        number
    }

    /// Updates next hops from the neighbours, and the groups that contain these next hops. Returns the groups.
    pub(crate) fn renew(&mut self, adjacencies: &BTreeSet<u32>) -> Result<Vec<u32>, BuildError> {
        for &at in adjacencies {
            let Some(old) = self.tables.adjacencies.get(at as usize) else { continue };
            let mut renewed = self.new_adjacency(old.port, old.neighbor)?;
            renewed.is_idle = renewed.state == AdjacencyState::Unresolved && self.known.on_link.contains(&at);
            if let Some(place) = self.tables.adjacencies.get_mut(at as usize) {
                *place = renewed;
            }
        }
        let has_any = |members: &Members| members.iter().any(|(member, _)| adjacencies.contains(member));
        let groups = (0..).zip(&self.known.members).filter(|(_, members)| has_any(members));
        let groups: Vec<(u32, Members)> = groups.map(|(at, members)| (at, members.clone())).collect();
        let changed = groups.iter().map(|(at, _)| *at).collect();
        for (at, members) in groups {
            let before = self.tables.groups.spread(at);
            let policy = before.as_ref().map_or(BY_HASH, Spread::policy);
            let spread = self.spread(&members, before.as_ref()).chosen_by(policy);
            self.tables.groups.set(at, &spread);
        }
        Ok(changed)
    }

    /// Returns next hops with their weights, and marks them as needed.
    fn members(&mut self, hops: &[Hop], destination: IpAddr) -> Result<Members, BuildError> {
        let mut members = Vec::with_capacity(hops.len());
        for hop in hops {
            let adjacency = self.adjacency(hop.port, hop.via.unwrap_or(destination))?;
            members.push((adjacency, u32::from(hop.weight)));
            let was_on_link = self.known.on_link.remove(&adjacency);
            if was_on_link && let Some(adjacency) = self.tables.adjacencies.get_mut(adjacency as usize) {
                adjacency.is_idle = false;
                self.known.woken.extend(members.last().map(|(adjacency, _)| *adjacency));
            }
        }
        Ok(members)
    }

    /// Spreads the usable next hops over slots: those that are ready, or else those that may still resolve, or else those
    /// that are down. They keep the slots that they had before.
    fn spread(&mut self, members: &[(u32, u32)], before: Option<&Spread>) -> Spread {
        let best = members.iter().map(|&(member, _)| self.state(member)).min_by_key(|&state| state as u8);
        let best: Members = members.iter().filter(|(member, _)| Some(self.state(*member)) == best).copied().collect();
        self.known.spreader.spread(&best, before)
    }

    /// Spreads the next hops of a new group. They keep the slots that they had in the group that the new one takes the
    /// place of, or else in the earlier tables.
    fn spread_of(&mut self, group: &Group, members: &[(u32, u32)]) -> Spread {
        let before = match self.before {
            _ if members.len() < 2 => None,
            Some(group) => self.tables.groups.spread(group),
            None => self.histories.hops_before(&self.with_slots(members), |known| self.known_before(group, known)),
        };
        self.spread(members, before.as_ref())
    }

    /// Returns the group that had the same key in the earlier tables.
    fn known_before(&self, group: &Group, known: &Known) -> Option<u32> {
        let earlier = |&(hop, weight): &(u32, u32)| {
            let adjacency = self.tables.adjacencies.get(hop as usize)?;
            Some((*known.adjacencies.get(&(adjacency.port, adjacency.neighbor))?, weight))
        };
        let group = match group {
            Group::Of(members, policy) => Group::Of(members.iter().map(earlier).collect::<Option<Members>>()?, *policy),
            own @ Group::Own(..) => own.clone(),
        };
        known.groups.get(&group).copied()
    }

    /// Returns next hops with the slots of their counters.
    fn with_slots(&self, members: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let slot = |hop: u32| Some(self.tables.adjacencies.get(hop as usize)?.slot);
        members.iter().filter_map(|&(hop, _)| Some((hop, slot(hop)?))).collect()
    }

    fn state(&self, adjacency: u32) -> AdjacencyState {
        self.tables.adjacencies.get(adjacency as usize).map_or(AdjacencyState::Down, |adjacency| adjacency.state)
    }

    fn adjacency(&mut self, port_id: PortId, neighbor: IpAddr) -> Result<u32, BuildError> {
        if let Some(&known) = self.known.adjacencies.get(&(port_id, neighbor)) {
            return Ok(known);
        }
        let adjacency = self.new_adjacency(port_id, neighbor)?;
        let index = u32::try_from(self.tables.adjacencies.len()).unwrap_or(u32::MAX);
        self.tables.adjacencies.push(adjacency);
        self.known.adjacencies.insert((port_id, neighbor), index);
        Ok(index)
    }

    fn new_adjacency(&mut self, port_id: PortId, neighbor: IpAddr) -> Result<Adjacency, BuildError> {
        let port = self.port(port_id)?;
        let mac = self.desired.neighbors.get(&(port_id, neighbor));
        let state = match mac {
            _ if !port.up => AdjacencyState::Down,
            Some(_) => AdjacencyState::Ready,
            None => AdjacencyState::Unresolved,
        };
        let mut ethernet = [0u8; 16];
        let [destination, source] = [mac.copied().unwrap_or_default().0, port.mac.0];
        for (slot, byte) in ethernet.iter_mut().zip(destination.into_iter().chain(source)) {
            *slot = byte;
        }
        if let (Some(vid), Some(tag)) = (port.vlan, ethernet.last_chunk_mut::<4>()) {
            let [t0, t1] = eth::VLAN.to_be_bytes();
            let [v0, v1] = vid.to_be_bytes();
            *tag = [t0, t1, v0, v1];
        }
        Ok(Adjacency {
            slot: self.slots.adjacencies.slot((port.name.clone(), neighbor)),
            port: port_id,
            device: port.device,
            neighbor,
            state,
            mtu: port.mtu as usize,
            ethernet,
            ethernet_len: if port.vlan.is_some() { 16 } else { 12 },
            source: port.source,
            is_idle: false,
        })
    }
}

/// Builds the part of the outer IPv6 header and SRH of H.Encaps(.Red) that is the same for every packet (RFC 8986
/// sections 5.1 and 5.2). Also returns its length, and the offset of the byte that names the inner protocol.
fn outer_header(
    source: Ipv6Addr,
    hop_limit: u8,
    segments: &SegmentList,
    full_srh: bool,
) -> ([u8; MAX_OUTER], usize, usize) {
    let all = segments.addresses();
    let listed = if full_srh { all } else { all.get(1..).unwrap_or_default() };
    let mut bytes = vec![0x60, 0, 0, 0, 0, 0, 0, hop_limit];
    bytes.extend(source.octets());
    bytes.extend(segments.first().octets());
    let inner_at = if listed.is_empty() {
        6
    } else {
        let count = |n: usize| u8::try_from(n).unwrap_or(u8::MAX);
        let fixed = [0, count(listed.len() * 2), srh::TYPE, count(all.len() - 1), count(listed.len() - 1), 0, 0, 0];
        bytes.extend(fixed);
        bytes.extend(listed.iter().rev().flat_map(Ipv6Addr::octets));
        40
    };
    if let (40, Some(next_header)) = (inner_at, bytes.get_mut(6)) {
        *next_header = protocol::ROUTING;
    }
    let mut header = [0; MAX_OUTER];
    for (slot, byte) in header.iter_mut().zip(&bytes) {
        *slot = *byte;
    }
    (header, bytes.len(), inner_at)
}

#[cfg(test)]
#[allow(clippy::panic, clippy::indexing_slicing, clippy::cast_possible_truncation)] // a failed test may panic
mod tests {
    use super::*;

    #[test]
    fn reduced_and_full_lists() {
        let address = |n: u16| Ipv6Addr::new(0xfcbb, 0xbbbb, n, 0, 0, 0, 0, 0);
        for n in 1..=8u16 {
            let list = SegmentList::new((1..=n).map(address).collect(), &[]).ok();
            for full in [false, true] {
                let Some(list) = &list else { panic!("list of {n}") };
                let (header, len, inner_at) = outer_header(address(99), 64, list, full);
                let listed = usize::from(n) - usize::from(!full);
                let srh = if listed == 0 { 0 } else { 8 + 16 * listed };
                assert_eq!((len, inner_at), (40 + srh, if srh == 0 { 6 } else { 40 }));
                if srh > 0 {
                    assert_eq!(header[41..45], [(listed * 2) as u8, 4, n as u8 - 1, listed as u8 - 1]);
                    assert_eq!(header[48..64], address(n).octets(), "Segment[0] is the last segment");
                }
                assert!(header[len..].iter().all(|&byte| byte == 0));
            }
        }
    }
}
