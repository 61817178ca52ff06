//! Forwards plain packets in the XDP program itself (`bpf/offload.c`), for ports whose sockets copy every packet.
//!
//! ```text
//!   port ─► offload.c ─┬─ plain, for another port: written, counted ──► that port, by devmap
//!                      ├─ for this node: decapsulated, counted, marked ──► GRO ─► tc.h: the kernel's end of the own veth
//!                      └─ anything else: tail call ─► claim.c ─► socket or kernel, as ever
//! ```
//!
//! One program, with one set of maps, serves all ports. It takes the place of a port's own program on the port's
//! bpf_link, so there is no moment without a program. It passes packets that it does not handle to the port's own
//! program.
//!
//! # Rows
//!
//! The maps hold the rows of the workers' tables byte for byte, as the crate `srv6d-fib` declares them for both languages.
//! Two things differ between engines, and are in no row: the numbers of the devices that ports stand for, and what a
//! device takes from an XDP program. They are the [`ProgramWiring`].
//!
//! # Sizes
//!
//! The maps are as large as the tables need ([`Sizes`]). When the tables outgrow them, the program is taken off all ports,
//! loaded with larger maps, and put on again. In between the workers have all packets.
//!
//! # Generations
//!
//! There are two sets of the tables. [`XdpOffload::publish`] writes the set that is not in force, and then one number
//! that says which set is: a packet sees either the old tables or the new ones as a whole. Before a set is written
//! again, every program run that may have begun with it has ended; the kernel says when.

mod blocks;
mod counted;
mod delivery;
mod grace;
mod index;
mod local;
mod maps;
mod sizes;
mod sources;
mod tap;
mod vlans;
mod wiring;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;

use aya::maps::{LpmTrie, MapError};
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader};
use srv6d_fib::{
    BlockRow, COUNTED_HOPS, COUNTED_PATHS, DeviceRow, Forwarding, GroupRow, HOP_IS_NEW, HopRow, KernelEndRow, KeyRow,
    MAIN_TABLE, NO_TARGET, NodeRow, PREFIX_HAS_TARGET, PREFIX_IS_NEW, PREFIXES, PathRow, PatternRow, PortRow, Prefix,
    PrefixRow, SENDS_TAGS, SIDS, SOURCES, SidKind, SidRow, SrhRow, TABLES, TARGET_INDEX_BITS, TARGET_SID, VlanRow,
    key_owner,
};

use crate::program::{Program, chain, load, missing_program, os_code, program_fix};
use crate::{ClaimProgram, XskError};
use counted::Counted;
use delivery::Ingress;
use grace::Grace;
use index::Index;
use local::Local;
use maps::{Maps, Row, Table};

pub use counted::PacketCount;
pub use delivery::Delivery;
pub use local::Hook;
pub use sizes::Sizes;
pub use tap::{Tap, Tapped};
pub use wiring::{KernelEnd, ProgramWiring, TakenOver};

/// The object file that `bpf/offload.c` was compiled to.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/offload.o"));

/// Name of the program's function in `bpf/offload.c`.
const PROGRAM: &str = "srv6d_offload";

/// Stands in errors where the name of a port would be, because the error concerns all ports.
const ALL_PORTS: &str = "offload";

/// The row of prefixes whose packets only the worker handles.
const TO_WORKER: PrefixRow = PrefixRow { target: NO_TARGET, flags: PREFIX_HAS_TARGET };

/// The program and its tables.
pub struct XdpOffload {
    maps: Maps,
    sizes: Sizes,
    /// Counts of earlier programs, whose maps were smaller.
    counted: Counted,
    sets: [Written; 2],
    in_force: usize,
    /// Number of the last publication.
    epoch: u32,
    grace: Grace,
    ifindexes: BTreeMap<u16, u32>,
    hook: Hook,
    local: Option<Local>,
    ingress: BTreeMap<u16, Ingress>,
    /// The row of the kernel's end, as it is in the map.
    kernel_end: KernelEndRow,
    /// What stands in front of a packet that is delivered to this node.
    mark: u32,
    /// Queues of each port that the claim program has rows for.
    queues: u32,
    // Keeps the program itself loaded.
    ebpf: Ebpf,
}

/// Rows by network and prefix length.
type Rows = BTreeMap<Prefix, PrefixRow>;

/// The present contents of one set of the maps.
#[derive(Debug, Default)]
struct Written {
    node: BTreeMap<u32, NodeRow>,
    /// Rows of ports, by the number of the device.
    ports: BTreeMap<u32, PortRow>,
    /// Rows of VLANs, by the number of the device and VLAN ID.
    vlans: BTreeMap<(u16, u16), VlanRow>,
    /// Source prefixes by their owner.
    sources: BTreeMap<u32, BTreeSet<Prefix>>,
    /// IPv6 and IPv4 prefixes by table.
    prefixes: BTreeMap<u16, [Rows; 2]>,
    sids: BTreeMap<u32, SidRow>,
    steers: BTreeMap<u32, GroupRow>,
    steer_members: BTreeMap<u32, u32>,
    steer_patterns: BTreeMap<u32, PatternRow>,
    paths: BTreeMap<u32, PathRow>,
    srhs: BTreeMap<u32, SrhRow>,
    groups: BTreeMap<u32, GroupRow>,
    group_members: BTreeMap<u32, u32>,
    group_patterns: BTreeMap<u32, PatternRow>,
    hops: BTreeMap<u32, HopRow>,
    /// Rows of devices, by the index of the port.
    devices: BTreeMap<u32, DeviceRow>,
    blocks: BTreeMap<u32, BlockRow>,
    usid_pages: BTreeMap<u32, u32>,
    usids: BTreeMap<u32, PrefixRow>,
}

impl std::fmt::Debug for XdpOffload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "XdpOffload {{ ports: {:?} }}", self.ifindexes)
    }
}

impl XdpOffload {
    /// Loads the program with empty tables of these sizes. It is on no port yet.
    ///
    /// # Errors
    /// The kernel's verifier refuses the program, or memory or privileges are missing.
    pub fn load(sizes: &Sizes) -> Result<Self, XskError> {
        crate::sys::quiet_libraries();
        let (ebpf, maps) = load_object(sizes)?;
        let grace = Grace::new().map_err(|why| refused(why.to_string(), why.raw_os_error()))?;
        let mut offload = Self {
            maps,
            sizes: sizes.clone(),
            counted: Counted::default(),
            sets: [Written::default(), Written::default()],
            in_force: 0,
            epoch: 0,
            grace,
            ifindexes: BTreeMap::new(),
            hook: Hook::default(),
            local: None,
            ingress: BTreeMap::new(),
            kernel_end: KernelEndRow::default(),
            mark: delivery::random_mark(),
            queues: 0,
            ebpf,
        };
        offload.write_roots().map_err(|why| map_error("make the tables", &why))?;
        Ok(offload)
    }

    /// Returns whether the maps have room for so much.
    pub fn has_room_for(&self, sizes: &Sizes) -> bool {
        self.sizes.contain(sizes)
    }

    /// Loads the program anew, with maps that have room for this too. Counters and the numbers of interfaces stay, and the
    /// tables are empty. The program must have been taken off all ports.
    ///
    /// # Errors
    /// The kernel refuses. Then the old maps stay.
    pub fn grow(&mut self, sizes: &Sizes) -> Result<(), XskError> {
        self.wait_for_packets()?;
        self.settle()?;
        let mut larger = Self::load(&self.sizes.joined(sizes))?;
        for (&port, &ifindex) in &self.ifindexes {
            // An interface that has vanished is refused, and has no number any more.
            let _ = larger.enter(port, ifindex);
        }
        larger.counted = self.counted();
        (larger.hook, larger.mark) = (self.hook, self.mark);
        *self = larger;
        Ok(())
    }

    /// Returns the program, for [`test_run`](crate::test_run).
    pub fn program(&self) -> Option<&Xdp> {
        self.ebpf.program(PROGRAM).and_then(|program| program.try_into().ok())
    }

    /// Assigns a number to an interface, so that packets can be sent there. An interface that had the number before
    /// loses it.
    ///
    /// # Errors
    /// There is no such interface, or the number is too high.
    pub fn add_port(&mut self, port: u16, ifname: &str) -> Result<(), XskError> {
        let ifindex = crate::ifindex(ifname)?;
        self.remove_port(port);
        self.enter(port, ifindex).map_err(|why| self.port_error(ifname, why.as_ref()))
    }

    fn enter(&mut self, port: u16, ifindex: u32) -> Result<(), Box<dyn std::error::Error>> {
        self.maps.targets.set(port.into(), ifindex, None, 0)?;
        self.maps.interfaces.set(port.into(), ifindex, 0)?;
        self.maps.port_of.insert(ifindex, u32::from(port), 0)?;
        self.ifindexes.insert(port, ifindex);
        Ok(())
    }

    /// Removes a port: packets that come in there are no longer forwarded by the program. The tables in force must not
    /// lead there, and the program must not be on the port.
    pub fn remove_port(&mut self, port: u16) {
        self.ingress.remove(&port);
        let Some(ifindex) = self.ifindexes.remove(&port) else { return };
        // An entry that has vanished with its interface need not be removed.
        let _ = self.maps.port_of.remove(&ifindex);
        let _ = self.maps.claim.clear_index(&port.into());
        let _ = self.maps.interfaces.set(port.into(), 0, 0);
    }

    /// Puts the program on a port, in front of the port's own.
    ///
    /// # Errors
    /// The kernel refuses; then the port's own program is alone there, as before.
    pub fn put_on(&mut self, port: u16, program: &mut Program) -> Result<(), XskError> {
        let set = program.loaded().with_fd(|own| self.maps.claim.set(port.into(), own, 0));
        let set = set.ok_or_else(|| missing_program(ALL_PORTS))?;
        set.map_err(|why| map_error("give the program the port's own", &why))?;
        let front = self.program().and_then(|front| front.fd().ok());
        program.set_front(front.map(AsFd::as_fd))
    }

    /// Lets the program see what this one gives to workers. It is to be called before [`publish`](Self::publish).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take_over_from(&mut self, claims: &ClaimProgram) -> Result<(), XskError> {
        self.queues = claims.queues();
        let shared = claims.share_hand_overs(&mut self.maps.hand_overs);
        shared.map_err(|why| map_error("share the counts of workers", &why))
    }

    /// Takes the program off a port. The port's own program remains.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take_off(&mut self, program: &mut Program) -> Result<(), XskError> {
        program.set_front(None)
    }

    /// Puts these tables in force as a whole. Only differences are written.
    ///
    /// # Errors
    /// The tables do not fit, or the kernel refuses. Then the old ones are still in force: take the program off all
    /// ports.
    pub fn publish(&mut self, forwarding: &Forwarding, wiring: &ProgramWiring) -> Result<(), XskError> {
        if forwarding.prefixes() > PREFIXES as usize {
            let why = format!("{} prefixes, and {PREFIXES} fit", forwarding.prefixes());
            return Err(XskError::Map { ifname: ALL_PORTS.to_owned(), what: "write the tables".to_owned(), why });
        }
        if forwarding.source_prefixes() > SOURCES as usize {
            let why = format!(
                "{} prefixes of allowed_sources, domain_sources and sources of this node, and {SOURCES} fit",
                forwarding.source_prefixes()
            );
            return Err(XskError::Map { ifname: ALL_PORTS.to_owned(), what: "write the tables".to_owned(), why });
        }
        self.settle()?;
        self.write_kernel_end(forwarding, wiring)?;
        let next = 1 - self.in_force;
        self.epoch = self.epoch.wrapping_add(1).max(1);
        self.write(next, forwarding, wiring).map_err(|why| map_error("write the tables", &why))?;
        let switched = self.maps.current.set(0, u32::from(next == 1), 0);
        switched.map_err(|why| map_error("switch to the tables", &why))?;
        self.in_force = next;
        self.grace.begin().map_err(|why| grace_error(&why))
    }

    /// Begins to wait for the program runs that are in progress now. [`settle`](Self::settle) waits for their end.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait_for_packets(&mut self) -> Result<(), XskError> {
        self.grace.end().and_then(|()| self.grace.begin()).map_err(|why| grace_error(&why))
    }

    /// Blocks until no program run is still using tables older than those in force; that takes some ten milliseconds at
    /// most.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn settle(&mut self) -> Result<(), XskError> {
        self.grace.end().map_err(|why| grace_error(&why))
    }

    /// Writes a prefix of length 0 into each set. It stays for ever, so the upper part of the trie, which the two sets
    /// share, never changes.
    fn write_roots(&mut self) -> Result<(), MapError> {
        let tables = (0..=u16::MAX).take(TABLES as usize);
        let sets = tables.flat_map(|table| [(0, table), (1, table)]);
        let roots = sets.flat_map(|(set, table)| [false, true].map(|is_v4| key_owner(set, table, is_v4)));
        for root in roots {
            self.maps.prefixes.insert(&maps::key(KeyRow::new(root, (0, 0))), TO_WORKER.bytes(), 0)?;
        }
        Ok(())
    }

    fn write(&mut self, set: usize, wanted: &Forwarding, wiring: &ProgramWiring) -> Result<(), MapError> {
        self.write_sources(set, wanted, wiring)?;
        self.write_ways(set, wanted, &wiring.taken_over)?;
        self.write_vlans(set, wiring.vlans(wanted))?;
        let (queues, epoch, taken_over) = (self.queues, self.epoch, &wiring.taken_over);
        let (Maps { node, ports, sids, steers, steer_members, steer_patterns, .. }, Some(now)) =
            (&mut self.maps, self.sets.get_mut(set))
        else {
            return Ok(());
        };
        let leaves_by = wiring.devices(wanted);
        let sends_tags = wiring.devices(wanted).any(|(_, device)| device.vid != 0);
        let flags = wanted.node.flags | if sends_tags { SENDS_TAGS } else { 0 };
        let of_all = NodeRow { flags, hand_over: taken_over.number, queues, epoch, ..wanted.node };
        write_rows(node, set, &mut now.node, [(0, of_all)])?;
        write_rows(ports, set, &mut now.ports, wiring.untagged(wanted))?;
        write_rows(sids, set, &mut now.sids, some(&wanted.sids, |sid| sid.slot < SIDS))?;
        write_rows(steers, set, &mut now.steers, some(&wanted.steers, |_| true))?;
        write_rows(steer_members, set, &mut now.steer_members, some(&wanted.steer_members, |_| true))?;
        write_rows(steer_patterns, set, &mut now.steer_patterns, some(&wanted.steer_patterns, |_| true))?;
        let Maps { paths, srhs, groups, group_members, group_patterns, hops, devices, .. } = &mut self.maps;
        write_rows(paths, set, &mut now.paths, some(&wanted.paths, |path| path.slot < COUNTED_PATHS))?;
        write_rows(srhs, set, &mut now.srhs, some(&wanted.srhs, |_| true))?;
        write_rows(groups, set, &mut now.groups, some(&wanted.groups, |_| true))?;
        write_rows(group_members, set, &mut now.group_members, some(&wanted.group_members, |_| true))?;
        write_rows(group_patterns, set, &mut now.group_patterns, some(&wanted.group_patterns, |_| true))?;
        let marked = |(number, row): (u32, HopRow)| {
            let mark = if taken_over.hops.contains(&number) { HOP_IS_NEW } else { 0 };
            (number, HopRow { flags: row.flags | mark, ..row })
        };
        write_rows(hops, set, &mut now.hops, some(&wanted.hops, |hop| hop.slot < COUNTED_HOPS).map(marked))?;
        write_rows(devices, set, &mut now.devices, leaves_by)
    }

    fn write_ways(&mut self, set: usize, wanted: &Forwarding, taken_over: &TakenOver) -> Result<(), MapError> {
        let mut tables = BTreeMap::new();
        for (&table, [v6, v4]) in wanted.tables.iter().filter(|&(&table, _)| u32::from(table) < TABLES) {
            let is_new = |is_v4| move |prefix| taken_over.prefixes.contains(&(table, is_v4, prefix));
            let mut v6 = rows_of(v6, is_new(false));
            blocks::mark(&mut v6, &wanted.sid_space);
            tables.insert(table, [v6, rows_of(v4, is_new(true))]);
        }
        let Some(now) = self.sets.get_mut(set) else { return Ok(()) };
        let index = tables.get(&MAIN_TABLE).map(|[v6, _]| Index::of(v6, |way| is_shift(wanted, way.target)));
        let Index { blocks, pages, usids } = index.unwrap_or_default();
        write_rows(&mut self.maps.usid_pages, set, &mut now.usid_pages, pages)?;
        write_rows(&mut self.maps.usids, set, &mut now.usids, usids)?;
        write_rows(&mut self.maps.blocks, set, &mut now.blocks, blocks)?;
        for table in now.prefixes.keys().chain(tables.keys()).copied().collect::<BTreeSet<u16>>() {
            let [now_v6, now_v4] = now.prefixes.entry(table).or_default();
            let [v6, v4] = tables.remove(&table).unwrap_or_default();
            let key = |is_v4| move |prefix| maps::key(KeyRow::new(key_owner(set, table, is_v4), prefix));
            write_prefixes(&mut self.maps.prefixes, key(false), now_v6, v6)?;
            write_prefixes(&mut self.maps.prefixes, key(true), now_v4, v4)?;
        }
        Ok(())
    }

    fn port_error(&self, ifname: &str, why: &(dyn std::error::Error + 'static)) -> XskError {
        let what = format!("make it one of the {} ports of the offload", self.ifindexes.len() + 1);
        XskError::Map { ifname: ifname.to_owned(), what, why: chain(why) }
    }
}

/// Shortens the verifier's output to its verdict: the last line that is no statistics.
fn in_short(why: &str) -> String {
    let Some((error, log)) = why.split_once(" Verifier output: ") else { return why.to_owned() };
    let is_figure =
        |line: &&str| ["verification time", "stack depth", "processed"].iter().any(|of| line.starts_with(of));
    let verdict =
        log.lines().rev().filter(|line| line.len() > 2).find(|line| !is_figure(line) && !line.starts_with(':'));
    format!("{error} {}", verdict.unwrap_or_default())
}

fn rows_of(targets: &BTreeMap<Prefix, u32>, is_new: impl Fn(Prefix) -> bool) -> Rows {
    let flags = |prefix| PREFIX_HAS_TARGET | if is_new(prefix) { PREFIX_IS_NEW } else { 0 };
    targets.iter().map(|(&prefix, &target)| (prefix, PrefixRow { target, flags: flags(prefix) })).collect()
}

fn is_shift(wanted: &Forwarding, target: u32) -> bool {
    let number = target & ((1 << TARGET_INDEX_BITS) - 1);
    let sid = wanted.sids.get(&number).filter(|_| target >> TARGET_INDEX_BITS == TARGET_SID);
    sid.is_some_and(|sid| matches!(sid.kind, SidKind::Shift | SidKind::ShiftVia))
}

/// Returns the rows that there are counters for.
fn some<R: Row>(rows: &BTreeMap<u32, R>, is_counted: impl Fn(&R) -> bool) -> impl Iterator<Item = (u32, R)> {
    rows.iter().filter(move |(_, row)| is_counted(row)).map(|(&number, &row)| (number, row))
}

/// Changes the rows of a table from `now` to `wanted`. A row that is gone is overwritten with zeros. Rows that do not
/// fit are left out, and workers handle their packets.
fn write_rows<R: Row>(
    table: &mut Table<R>,
    set: usize,
    now: &mut BTreeMap<u32, R>,
    wanted: impl IntoIterator<Item = (u32, R)>,
) -> Result<(), MapError> {
    let fits = |number: u32| number < table.rows();
    let wanted: BTreeMap<u32, R> = wanted.into_iter().filter(|&(number, _)| fits(number)).collect();
    let gone: Vec<u32> = now.keys().filter(|number| !wanted.contains_key(number)).copied().collect();
    for number in gone {
        table.set(set, number, R::default())?;
        now.remove(&number);
    }
    for (number, row) in wanted {
        if now.get(&number) != Some(&row) {
            table.set(set, number, row)?;
            now.insert(number, row);
        }
    }
    Ok(())
}

/// Like [`write_rows`], but for prefixes. The prefix of length 0 stays.
fn write_prefixes<K: aya::Pod>(
    map: &mut LpmTrie<aya::maps::MapData, K, <PrefixRow as Row>::Bytes>,
    key: impl Fn(Prefix) -> aya::maps::lpm_trie::Key<K>,
    now: &mut Rows,
    wanted: Rows,
) -> Result<(), MapError> {
    let gone: Vec<Prefix> = now.keys().filter(|prefix| !wanted.contains_key(prefix)).copied().collect();
    for prefix in gone {
        let (_, len) = prefix;
        if len == 0 {
            map.insert(&key(prefix), TO_WORKER.bytes(), 0)?;
        } else {
            map.remove(&key(prefix))?;
        }
        now.remove(&prefix);
    }
    for (prefix, row) in wanted {
        if now.get(&prefix) != Some(&row) {
            map.insert(&key(prefix), row.bytes(), 0)?;
            now.insert(prefix, row);
        }
    }
    Ok(())
}

/// Loads the object file. The program is ready to be put on ports.
fn load_object(sizes: &Sizes) -> Result<(Ebpf, Maps), XskError> {
    let mut loader = EbpfLoader::new();
    for (name, entries) in sizes.entries() {
        loader.map_max_entries(name, entries);
    }
    // Each set of each table has a root entry.
    loader.map_max_entries("prefixes", 2 * (PREFIXES + 2 * TABLES)).map_max_entries("sources", 2 * SOURCES);
    let mut ebpf = loader.load(OBJECT).map_err(|why| refused(in_short(&chain(&why)), os_code(&why)))?;
    let missing = || refused("the object is not as expected".to_owned(), None);
    let maps = Maps::take(&mut ebpf).ok_or_else(missing)?;
    let program: Option<&mut Xdp> = ebpf.program_mut(PROGRAM).and_then(|program| program.try_into().ok());
    let program = program.ok_or_else(missing)?;
    load(|| program.load()).map_err(|why| refused(in_short(&chain(&why)), os_code(&why)))?;
    Ok((ebpf, maps))
}

fn refused(why: String, code: Option<i32>) -> XskError {
    XskError::Program { ifname: ALL_PORTS.to_owned(), what: "load", why, fix: program_fix(code) }
}

fn grace_error(why: &std::io::Error) -> XskError {
    XskError::Map { ifname: ALL_PORTS.to_owned(), what: "wait for programs to end".to_owned(), why: why.to_string() }
}

fn map_error(what: &str, why: &MapError) -> XskError {
    XskError::Map { ifname: ALL_PORTS.to_owned(), what: what.to_owned(), why: chain(why) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use srv6d_fib::{
        CHECKS_DOMAIN, CHECKS_SOURCES, FORWARDS, GUARDS_SIDS, MEMBERS, PathKind, Prefixes, TARGET_ROUTE, TARGET_STEER,
    };

    use super::*;
    use crate::test_run::{Arrival, once, once_behind};

    pub(super) const PASS: u32 = 2;
    pub(super) const REDIRECT: u32 = 4;

    /// Device 3 stands for port 1 of the tables, which takes every frame.
    pub(super) fn wiring() -> ProgramWiring {
        let to = [(1, DeviceRow { number: 3, mtu: u32::MAX, ..DeviceRow::default() })].into();
        ProgramWiring { from: [(1, 3)].into(), to, ..ProgramWiring::default() }
    }

    fn publish(offload: &mut XdpOffload, forwarding: &Forwarding) {
        offload.publish(forwarding, &wiring()).unwrap();
    }

    fn target(of: u32, index: u32) -> u32 {
        of << TARGET_INDEX_BITS | index
    }

    /// Returns tables with `fcbb::/32`, the node's uN 1, and a route to node 2.
    pub(super) fn forwarding(mac: u8) -> Forwarding {
        let prefix = |usid: u128| (0xfcbb << 112 | usid << 80, 48);
        let v6 = [(prefix(1), target(TARGET_SID, 2)), (prefix(2), target(TARGET_ROUTE, 9))].into();
        Forwarding {
            ports: [(1, PortRow { mac: [2, 0, 0, 0, 0, 1], longest: 1514, flags: FORWARDS, ..PortRow::default() })]
                .into(),
            tables: [(0, [v6, BTreeMap::new()])].into(),
            sids: [(2, SidRow { kind: SidKind::Shift, by: 16, slot: 5, ..SidRow::default() })].into(),
            groups: [(9, GroupRow { count: 1, at: 8, ..GroupRow::default() })].into(),
            hops: [(8, HopRow { ethernet: [mac; 12], mtu: 1500, slot: 7, port: 1, flags: 0 })].into(),
            ..Forwarding::default()
        }
    }

    /// Returns tables that steer the destination of [`frame`] into path 4.
    pub(super) fn steering() -> Forwarding {
        let path = PathRow {
            addresses: [0x30; 32],
            first: 6 << 60 | 64,
            slot: 4,
            group: 9,
            mtu: 1500,
            kind: PathKind::WithoutSrh,
            class_kept: 0xff << 52,
            ..PathRow::default()
        };
        Forwarding {
            tables: [(0, [[((0xfcbb << 112, 16), target(TARGET_STEER, 6))].into(), BTreeMap::new()])].into(),
            steers: [(6, GroupRow { count: 1, at: 11, ..GroupRow::default() })].into(),
            paths: [(11, path)].into(),
            ..forwarding(9)
        }
    }

    fn guard(forwarding: &mut Forwarding, guards_sids: bool) {
        forwarding
            .ports
            .values_mut()
            .for_each(|port| port.flags = FORWARDS | if guards_sids { GUARDS_SIDS } else { 0 });
    }

    /// Returns a frame to `fcbb:0:1:2::`.
    pub(super) fn frame() -> Vec<u8> {
        let ethernet = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]].concat();
        let ip = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 59, 64];
        let destination = [0xfc, 0xbb, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0];
        [ethernet, ip.to_vec(), [0x20; 16].to_vec(), destination.to_vec(), vec![0; 20]].concat()
    }

    #[test]
    fn of_the_verifier_its_verdict_is_told() {
        let said = "BPF_PROG_LOAD failed: Permission denied. Verifier output: 0: R1=ctx()\n427: (79) r2 = r10\n\
                    R2 pointer -= pointer prohibited\nverification time 8021 usec\nstack depth 120\nprocessed 356 insns\n\
                    : Permission denied (os error 13)";
        let told = "BPF_PROG_LOAD failed: Permission denied. R2 pointer -= pointer prohibited";
        assert_eq!(in_short(said), told);
        assert_eq!(in_short("no memory"), "no memory");
    }

    /// Loads the program in a namespace of its own, with loopback as port 3, where frames then arrive.
    pub(super) fn on_loopback() -> (XdpOffload, Arrival) {
        srv6d_netns::move_thread_to_new().unwrap();
        let mut offload = XdpOffload::load(&Sizes::largest()).unwrap();
        offload.add_port(3, "lo").unwrap();
        (offload, Arrival { ifindex: crate::ifindex("lo").unwrap(), queue: 0 })
    }

    #[test]
    #[ignore = "needs root"]
    fn where_no_header_fits_in_front_the_frame_is_the_workers_and_as_it_was() {
        const METADATA: usize = 200;
        let (mut offload, arrival) = on_loopback();
        publish(&mut offload, &steering());
        let behind = [vec![0xee; METADATA], frame()].concat();
        match once_behind(offload.program().unwrap(), METADATA, &behind, arrival) {
            Ok(done) => assert!(done == (PASS, behind), "{done:x?}"),
            Err(why) => eprintln!("SKIPPED: this kernel takes no {METADATA} bytes of metadata: {why}"),
        }
        let counts = |offload: &XdpOffload| [offload.path(4), offload.hop(7), offload.received(3), offload.sent(3)];
        assert_eq!(counts(&offload), [PacketCount::default(); 4], "nothing was sent");

        let (verdict, out) = once(offload.program().unwrap(), &frame(), arrival).unwrap();
        assert_eq!((verdict, out.len()), (REDIRECT, 40 + frame().len()));
        assert_eq!(counts(&offload).map(|count| count.bytes), [100, 100, 74, 114]);
    }

    #[test]
    #[ignore = "needs root"]
    fn a_group_has_as_many_members_as_the_list_holds() {
        let (mut offload, arrival) = on_loopback();
        let pattern = |count: u32| {
            let mut pattern = PatternRow::default();
            let places = (0..u16::try_from(count.max(1)).unwrap()).rev().cycle();
            pattern.members.as_flattened_mut().iter_mut().zip(places).for_each(|(slot, place)| *slot = place);
            pattern
        };
        let spread = |count: u32, at: u32| Forwarding {
            groups: [(9, GroupRow { count, pattern: 3, at })].into(),
            group_members: (at..at + count).map(|place| (place, 8)).collect(),
            group_patterns: [(3, pattern(count))].into(),
            ..steering()
        };
        for (name, forwarding, verdict) in [
            ("a thousand", spread(1000, 5), REDIRECT),
            ("up to the end of the list", spread(64, MEMBERS - 64), REDIRECT),
            ("behind its end", spread(2, MEMBERS), PASS),
            ("none", spread(0, 5), PASS),
            ("one that is not in the list", Forwarding { group_members: BTreeMap::new(), ..spread(2, 5) }, PASS),
            (
                "a pattern that does not fit",
                Forwarding {
                    group_patterns: [(3, PatternRow { members: [[7; 32]; 32] })].into(),
                    ..spread(2, MEMBERS - 2)
                },
                PASS,
            ),
        ] {
            publish(&mut offload, &forwarding);
            let (done, out) = once(offload.program().unwrap(), &frame(), arrival).unwrap();
            assert_eq!((done, out == frame()), (verdict, verdict == PASS), "{name}");
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn what_is_sent_to_a_block_through_a_port_that_guards_them_is_the_workers() {
        let (mut offload, arrival) = on_loopback();
        let block = (0xfcbb << 112, 32);
        // The frame is addressed to this block and to nothing in the blocks around it.
        let other = (0xfcbb << 112 | 2 << 80, 48);
        // A shift belongs to a SID and is therefore refused wherever it lies.
        for (forwarding, of_another) in [(forwarding(9), PASS), (steering(), REDIRECT)] {
            for (guards_sids, blocks, verdict) in
                [(false, [block], REDIRECT), (true, [block], PASS), (true, [other], of_another)]
            {
                let mut forwarding = Forwarding { sid_space: blocks.into(), ..forwarding.clone() };
                guard(&mut forwarding, guards_sids);
                publish(&mut offload, &forwarding);
                let (done, out) = once(offload.program().unwrap(), &frame(), arrival).unwrap();
                assert_eq!(done, verdict, "{guards_sids} {blocks:x?}");
                assert_eq!(out == frame(), verdict == PASS);
                // Carriers that are allowed enter, by the very port.
                let carrier = (0xfcbb << 112 | 1 << 80, 48);
                for (port, carrier, verdict) in [(1, carrier, REDIRECT), (1, (0, 8), verdict), (2, carrier, verdict)] {
                    forwarding.carriers = [(port, [carrier].into())].into();
                    publish(&mut offload, &forwarding);
                    let (done, _) = once(offload.program().unwrap(), &frame(), arrival).unwrap();
                    assert_eq!(done, verdict, "{guards_sids} {blocks:x?}, {carrier:x?} by port {port}");
                }
            }
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn what_a_source_that_is_not_admitted_sends_is_the_workers() {
        let (mut offload, arrival) = on_loopback();
        // The source of the frame is 2020:2020:...
        let prefixes = |text: &str, len| BTreeSet::from([(text.parse::<std::net::Ipv6Addr>().unwrap().to_bits(), len)]);
        let (own, other) = (prefixes("2020:2000::", 20), prefixes("2020:3000::", 20));
        let of_port = |v6: &BTreeSet<_>| [(1, [v6.clone(), BTreeSet::new()])].into();
        let open = BTreeMap::new();
        let nobody: BTreeMap<u16, Prefixes> = [(1, Prefixes::default())].into();
        let (shift, steer) = (forwarding(9), steering());
        let cases = [
            ("a shift for all", &shift, None, open.clone(), REDIRECT),
            ("a shift for the domain", &shift, Some(&own), open.clone(), REDIRECT),
            ("a shift for others", &shift, Some(&other), open.clone(), PASS),
            ("steered, SIDs for others", &steer, Some(&other), open.clone(), REDIRECT),
            ("a shift, the port for the source", &shift, Some(&own), of_port(&own), REDIRECT),
            ("a shift, the port for others", &shift, Some(&own), of_port(&other), PASS),
            ("steered, the port for others", &steer, None, of_port(&other), PASS),
            ("steered, the port for nobody of this family", &steer, None, nobody, PASS),
            ("steered, another port for others", &steer, None, [(2, Prefixes::default())].into(), REDIRECT),
            ("a shift for all again", &shift, None, open, REDIRECT),
        ];
        for (name, forwarding, domain, sources, verdict) in cases {
            let mut forwarding = Forwarding { sources, ..forwarding.clone() };
            if let Some(domain) = domain {
                (forwarding.domain, forwarding.node.flags) = (domain.clone(), CHECKS_DOMAIN);
            }
            let sources = &forwarding.sources;
            let checked = forwarding.ports.iter_mut().filter(|(port, _)| sources.contains_key(port));
            checked.for_each(|(_, port)| port.flags = FORWARDS | CHECKS_SOURCES);
            publish(&mut offload, &forwarding);
            let (done, out) = once(offload.program().unwrap(), &frame(), arrival).unwrap();
            assert_eq!((done, out == frame()), (verdict, verdict == PASS), "{name}");
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn what_comes_from_outside_with_a_source_of_this_node_is_the_workers() {
        let (mut offload, arrival) = on_loopback();
        // The source is 2020:2020:..., and the table of the port 0.
        let own = |text: &str, table: u16| {
            let v6 = BTreeSet::from([(text.parse::<std::net::Ipv6Addr>().unwrap().to_bits(), 20)]);
            BTreeMap::from([(table, [v6, BTreeSet::new()])])
        };
        for (guards_sids, own_sources, verdict) in [
            (true, BTreeMap::new(), REDIRECT),
            (true, own("2020:2000::", 0), PASS),
            (false, own("2020:2000::", 0), REDIRECT),
            (true, own("2020:3000::", 0), REDIRECT),
            (true, own("2020:2000::", 1), REDIRECT),
        ] {
            let mut forwarding = Forwarding { own_sources, sid_space: BTreeSet::new(), ..steering() };
            guard(&mut forwarding, guards_sids);
            publish(&mut offload, &forwarding);
            let (done, out) = once(offload.program().unwrap(), &frame(), arrival).unwrap();
            assert_eq!(
                (done, out == frame()),
                (verdict, verdict == PASS),
                "{guards_sids}, {:?}",
                forwarding.own_sources
            );
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn each_generation_is_in_force_as_a_whole_and_a_removed_one_forwards_nothing() {
        let (mut offload, arrival) = on_loopback();
        let run = |offload: &XdpOffload| once(offload.program().unwrap(), &frame(), arrival).unwrap();
        assert_eq!(run(&offload), (PASS, frame()), "nothing is published yet");
        for mac in 1..6 {
            publish(&mut offload, &forwarding(mac));
            let (verdict, out) = run(&offload);
            assert_eq!((verdict, out.get(..12).unwrap()), (REDIRECT, [mac; 12].as_slice()));
            let destination = [0xfc, 0xbb, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            assert_eq!((out.get(21), out.get(38..54)), (Some(&63), Some(destination.as_slice())));
        }
        let count = |bytes: u64| PacketCount { packets: 5, bytes: 5 * bytes };
        assert_eq!([offload.sid(5), offload.hop(7)], [count(60); 2]);
        assert_eq!([offload.received(3), offload.sent(3)], [count(74); 2]);
        let mut gone = forwarding(9);
        gone.tables.get_mut(&0).unwrap()[0].remove(&(0xfcbb << 112 | 1 << 80, 48));
        publish(&mut offload, &gone);
        assert_eq!(run(&offload), (PASS, frame()), "the SID is gone");
        publish(&mut offload, &forwarding(9));
        assert_eq!(run(&offload).0, REDIRECT);
        publish(&mut offload, &Forwarding::default());
        assert_eq!(run(&offload), (PASS, frame()));
    }
}
