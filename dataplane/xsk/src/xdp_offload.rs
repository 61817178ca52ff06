//! Plain uSID shifts and encapsulations in the XDP program itself (`bpf/offload.c`), for ports whose sockets copy every
//! packet.
//!
//! ```text
//!   port ─► offload.c ─┬─ a plain shift or encapsulation: written, counted ──► another port, by devmap
//!                      └─ anything else: tail call ─► claim.c ─► socket or kernel, as ever
//! ```
//!
//! One program, with one set of maps, serves all ports. It takes the place of a port's own program on the port's
//! bpf_link, so there is no moment without a program, and what it is not made for it hands to that one.
//!
//! # Generations
//!
//! The tables are there twice. [`XdpOffload::publish`] writes the set that is not in force, and then one number that
//! says which one is: a packet sees the old tables or the new ones as a whole. Before a set is written again, every
//! program that may have begun a packet with it has ended: the kernel says when.

mod blocks;
mod forwarding;
mod grace;
mod index;
mod maps;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::sync::Arc;

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{MapData, MapError};
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader};

use crate::XskError;
use crate::program::{Program, chain, missing_program, os_code, program_fix};
use grace::Grace;
use index::Index;
use maps::{BLOCKS, BlockRow, GroupRow, HopRow, Maps, PathRow, PortRow, USIDS, WayKey, WayRow};

pub use forwarding::{Forwarding, Group, Hop, InPort, PacketCount, Path, Sources, Table, Way};
pub use maps::{GROUP_MEMBERS, GROUPS, HOPS, PATHS, PORTS, SIDS, TABLES};

/// What `bpf/offload.c` was compiled to.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/offload.o"));

/// The function in `bpf/offload.c`.
const PROGRAM: &str = "srv6d_offload";

/// Stands where other errors have the name of a port.
const ALL_PORTS: &str = "offload";

/// What the worker alone does.
const TO_WORKER: WayRow = WayRow { kind: maps::TO_WORKER, by: 0, in_sid_space: 0, zero: 0, sid: 0, group: 0 };

/// Prefixes of one generation, of both families. Memory is taken per entry in use.
pub const WAYS: usize = 1 << 17;

/// Prefixes of sources that one generation may have, of both families and all owners.
pub const SOURCES: usize = 1 << 14;

/// The program and its tables.
pub struct XdpOffload {
    maps: Maps,
    sets: [Written; 2],
    in_force: usize,
    groups: BTreeMap<Group, u32>,
    free_groups: Vec<u32>,
    grace: Grace,
    ifindexes: BTreeMap<u16, u32>,
    // Holds the program itself.
    ebpf: Ebpf,
}

/// By network and length.
type Rows = BTreeMap<(u128, u8), WayRow>;

/// What stands in one set of the maps.
#[derive(Debug, Default)]
struct Written {
    ports: BTreeMap<u16, PortRow>,
    /// By `key_set` of their owner.
    sources: BTreeMap<u32, BTreeSet<(u128, u8)>>,
    /// By table: IPv6 and IPv4.
    ways: BTreeMap<u16, [Rows; 2]>,
    paths: BTreeMap<u32, PathRow>,
    hops: BTreeMap<u32, HopRow>,
    blocks: BTreeMap<u32, BlockRow>,
    usids: BTreeMap<u32, WayRow>,
}

impl std::fmt::Debug for XdpOffload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "XdpOffload {{ ports: {:?} }}", self.ifindexes)
    }
}

impl XdpOffload {
    /// Loads the program, with empty tables, and puts it on no port.
    ///
    /// # Errors
    /// The kernel's verifier refuses it, or memory or privileges are missing.
    pub fn load() -> Result<Self, XskError> {
        let failed = |why: String, code: Option<i32>| XskError::Program {
            ifname: ALL_PORTS.to_owned(),
            what: "load",
            why,
            fix: program_fix(code),
        };
        crate::sys::quiet_libraries();
        // Each set of each table has a root.
        let entries = u32::try_from(2 * (WAYS + 2 * usize::from(TABLES))).unwrap_or(u32::MAX);
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("ways", entries)
            .map_max_entries("sources", u32::try_from(2 * SOURCES).unwrap_or(u32::MAX))
            .load(OBJECT)
            .map_err(|why| failed(in_short(&chain(&why)), os_code(&why)))?;
        let missing = || failed("the object is not as expected".to_owned(), None);
        let maps = Maps::take(&mut ebpf).ok_or_else(missing)?;
        let program: Option<&mut Xdp> = ebpf.program_mut(PROGRAM).and_then(|program| program.try_into().ok());
        program.ok_or_else(missing)?.load().map_err(|why| failed(in_short(&chain(&why)), os_code(&why)))?;
        let grace = Grace::new().map_err(|why| failed(why.to_string(), why.raw_os_error()))?;
        let mut offload = Self {
            maps,
            sets: [Written::default(), Written::default()],
            in_force: 0,
            groups: BTreeMap::new(),
            free_groups: Vec::new(),
            grace,
            ifindexes: BTreeMap::new(),
            ebpf,
        };
        offload.write_roots().map_err(|why| map_error("make the tables", &why))?;
        Ok(offload)
    }

    /// The program, for [`test_run`](crate::test_run).
    pub fn program(&self) -> Option<&Xdp> {
        self.ebpf.program(PROGRAM).and_then(|program| program.try_into().ok())
    }

    /// Gives an interface a number: packets can be sent there. One that had it before loses it.
    ///
    /// # Errors
    /// There is no such interface, or the number is too high.
    pub fn add_port(&mut self, port: u16, ifname: &str) -> Result<(), XskError> {
        let ifindex = crate::ifindex(ifname)?;
        self.remove_port(port);
        let done = self.maps.targets.set(port.into(), ifindex, None, 0);
        done.map_err(|why| self.port_error(ifname, &why))?;
        let done = self.maps.port_of.insert(ifindex, u32::from(port), 0);
        done.map_err(|why| self.port_error(ifname, &why))?;
        self.ifindexes.insert(port, ifindex);
        Ok(())
    }

    /// Nothing that comes in there is forwarded any more. The tables in force must not lead there, and the program not be on
    /// it.
    pub fn remove_port(&mut self, port: u16) {
        let Some(ifindex) = self.ifindexes.remove(&port) else { return };
        // What is not there any more, by the deletion of the interface, need not be taken away.
        let _ = self.maps.port_of.remove(&ifindex);
        let _ = self.maps.claim.clear_index(&port.into());
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

    /// Takes the program off a port; the port's own remains.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take_off(&mut self, program: &mut Program) -> Result<(), XskError> {
        program.set_front(None)
    }

    /// Puts these tables in force, as a whole. Only differences are written.
    ///
    /// # Errors
    /// They do not fit, or the kernel refuses. Then the old ones are still in force: take the program off all ports.
    pub fn publish(&mut self, forwarding: &Forwarding) -> Result<(), XskError> {
        if forwarding.prefixes() > WAYS {
            let why = format!("{} prefixes, and {WAYS} fit", forwarding.prefixes());
            return Err(XskError::Map { ifname: ALL_PORTS.to_owned(), what: "write the tables".to_owned(), why });
        }
        if forwarding.source_prefixes() > SOURCES {
            let why = format!(
                "{} prefixes of allowed_sources and domain_sources, and {SOURCES} fit",
                forwarding.source_prefixes()
            );
            return Err(XskError::Map { ifname: ALL_PORTS.to_owned(), what: "write the tables".to_owned(), why });
        }
        self.settle()?;
        let next = 1 - self.in_force;
        self.write(next, forwarding).map_err(|why| map_error("write the tables", &why))?;
        let switched = self.maps.current.set(0, u32::from(next == 1), 0);
        switched.map_err(|why| map_error("switch to the tables", &why))?;
        self.in_force = next;
        self.grace.begin().map_err(|why| grace_error(&why))
    }

    /// From here on programs that run now are waited for.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait_for_packets(&mut self) -> Result<(), XskError> {
        self.grace.end().and_then(|()| self.grace.begin()).map_err(|why| grace_error(&why))
    }

    /// Returns when no program is in the middle of a packet that it began with tables before those in force: after some ten
    /// milliseconds at most.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn settle(&mut self) -> Result<(), XskError> {
        self.grace.end().map_err(|why| grace_error(&why))
    }

    /// Makes the counters of these SIDs, paths and next hops zero. The tables in force must not lead to them, and the
    /// program be [settled](Self::settle).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn clear(&mut self, sids: &BTreeSet<u32>, paths: &BTreeSet<u32>, hops: &BTreeSet<u32>) -> Result<(), XskError> {
        let Maps { sid_counts, path_counts, hop_counts, .. } = &mut self.maps;
        let all = [(sid_counts, sids, SIDS), (path_counts, paths, PATHS), (hop_counts, hops, HOPS)];
        let cleared = all.into_iter().try_for_each(|(counts, numbers, most)| {
            numbers.range(..most).try_for_each(|&number| maps::clear(counts, number))
        });
        cleared.map_err(|why| map_error("clear counters", &why))
    }

    /// What was forwarded at a SID.
    pub fn sid(&self, number: u32) -> PacketCount {
        sum(&self.maps.sid_counts, number)
    }

    /// What was encapsulated towards a path.
    pub fn path(&self, number: u32) -> PacketCount {
        sum(&self.maps.path_counts, number)
    }

    /// What was sent to a next hop.
    pub fn hop(&self, number: u32) -> PacketCount {
        sum(&self.maps.hop_counts, number)
    }

    /// What came in through a port and was forwarded.
    pub fn received(&self, port: u16) -> PacketCount {
        sum(&self.maps.rx_counts, port.into())
    }

    /// What was sent through a port.
    pub fn sent(&self, port: u16) -> PacketCount {
        sum(&self.maps.tx_counts, port.into())
    }

    /// A prefix of each set that stays: what the two have above them then never changes.
    fn write_roots(&mut self) -> Result<(), MapError> {
        let sets = (0..TABLES).flat_map(|table| [(0, table), (1, table)]);
        let roots = sets.flat_map(|(set, table)| [false, true].map(|is_v4| maps::key_set(set, table, is_v4)));
        for root in roots {
            self.maps.ways.insert(&way_key(root, 0, 0), TO_WORKER, 0)?;
        }
        Ok(())
    }

    fn write(&mut self, set: usize, wanted: &Forwarding) -> Result<(), MapError> {
        self.free_groups();
        self.write_sources(set, wanted)?;
        self.write_ports(set, wanted)?;
        self.write_hops(set, wanted)?;
        self.write_paths(set, wanted)?;
        self.write_ways(set, wanted)
    }

    /// Groups that the set in force does not use may be another from now on.
    fn free_groups(&mut self) {
        let Some(in_force) = self.sets.get(self.in_force) else { return };
        let has_group = |row: &&WayRow| matches!(row.kind, maps::SHIFT_VIA | maps::ROUTE | maps::ENCAPSULATE);
        let rows = in_force.ways.values().flatten().flat_map(Rows::values);
        let ways = rows.filter(has_group).map(|row| row.group);
        let used: BTreeSet<u32> = ways.chain(in_force.paths.values().map(|row| row.group)).collect();
        self.groups.retain(|_, number| used.contains(number));
        self.free_groups = (0..GROUPS).rev().filter(|number| !used.contains(number)).collect();
    }

    fn write_ports(&mut self, set: usize, wanted: &Forwarding) -> Result<(), MapError> {
        let rows = wanted.ports.iter().filter(|&(&port, _)| u32::from(port) < PORTS);
        let row = |port: u16, &InPort { mac, longest, table, guards_sids }: &InPort| PortRow {
            mac,
            longest,
            table,
            guards_sids: guards_sids.into(),
            checks: sources::checks(wanted, port),
        };
        let rows = rows.map(|(&port, in_port)| (port, row(port, in_port))).collect();
        let (map, offset) = (&mut self.maps.ports, index(set) * PORTS);
        let Some(now) = self.sets.get_mut(set) else { return Ok(()) };
        write_rows(&mut now.ports, rows, |&port, row| map.set(offset + u32::from(port), row, 0))
    }

    fn write_hops(&mut self, set: usize, wanted: &Forwarding) -> Result<(), MapError> {
        let row = |hop: &Hop| HopRow { addresses: hop.addresses, mtu: hop.mtu, port: hop.port.into() };
        let rows = wanted.hops.iter().filter(|&(&number, _)| number < HOPS);
        let rows = rows.map(|(&number, hop)| (number, row(hop))).collect();
        let (map, offset) = (&mut self.maps.hops, index(set) * HOPS);
        let Some(now) = self.sets.get_mut(set) else { return Ok(()) };
        write_rows(&mut now.hops, rows, |&number, row| map.set(offset + number, row, 0))
    }

    fn write_paths(&mut self, set: usize, wanted: &Forwarding) -> Result<(), MapError> {
        let mut rows = BTreeMap::new();
        for (&number, path) in wanted.paths.iter().filter(|&(&number, _)| number < PATHS) {
            let Some(group) = self.group(&path.via)? else { continue };
            let (addresses, (class_kept, class_set)) = (path.addresses, path.class);
            let row = PathRow {
                addresses,
                group,
                mtu: path.mtu,
                hop_limit: path.hop_limit,
                class_kept,
                class_set,
                ..PathRow::default()
            };
            rows.insert(number, row);
        }
        let (map, offset) = (&mut self.maps.paths, index(set) * PATHS);
        let Some(now) = self.sets.get_mut(set) else { return Ok(()) };
        write_rows(&mut now.paths, rows, |&number, row| map.set(offset + number, row, 0))
    }

    fn write_ways(&mut self, set: usize, wanted: &Forwarding) -> Result<(), MapError> {
        let mut tables = BTreeMap::new();
        for (&table, Table { v6, v4 }) in wanted.tables.iter().filter(|&(&table, _)| table < TABLES) {
            let mut v6 = self.way_rows(v6)?;
            blocks::mark(&mut v6, &wanted.sid_space);
            tables.insert(table, [v6, self.way_rows(v4)?]);
        }
        let Some(now) = self.sets.get_mut(set) else { return Ok(()) };
        let Index { blocks, usids } = tables.get(&0).map(|[v6, _]| Index::of(v6)).unwrap_or_default();
        let (map, offset) = (&mut self.maps.usids, index(set) * BLOCKS * USIDS);
        write_rows(&mut now.usids, usids, |&at, row| map.set(offset + at, row, 0))?;
        let (map, offset) = (&mut self.maps.blocks, index(set) * BLOCKS);
        write_rows(&mut now.blocks, blocks, |&number, row| map.set(offset + number, row, 0))?;
        for table in now.ways.keys().chain(tables.keys()).copied().collect::<BTreeSet<u16>>() {
            let [now_v6, now_v4] = now.ways.entry(table).or_default();
            let [v6, v4] = tables.remove(&table).unwrap_or_default();
            write_prefixes(&mut self.maps.ways, maps::key_set(set, table, false), now_v6, v6)?;
            write_prefixes(&mut self.maps.ways, maps::key_set(set, table, true), now_v4, v4)?;
        }
        Ok(())
    }

    fn way_rows(&mut self, ways: &BTreeMap<(u128, u8), Way>) -> Result<Rows, MapError> {
        ways.iter().map(|(&prefix, way)| Ok((prefix, self.way_row(way)?))).collect()
    }

    fn way_row(&mut self, way: &Way) -> Result<WayRow, MapError> {
        let row = match way {
            Way::Worker => None,
            &Way::Shift { sid, .. } if sid >= SIDS => None,
            &Way::Shift { by, sid, via: None } => Some(WayRow { kind: maps::SHIFT, by, sid, ..WayRow::default() }),
            Way::Shift { by, sid, via: Some(via) } => {
                let group = self.group(via)?;
                group.map(|group| WayRow { kind: maps::SHIFT_VIA, by: *by, sid: *sid, group, ..WayRow::default() })
            }
            Way::Route(via) => {
                let group = self.group(via)?;
                group.map(|group| WayRow { kind: maps::ROUTE, group, ..WayRow::default() })
            }
            Way::Encapsulate { paths, with_qp } => {
                let (group, by) = (self.group(paths)?, u8::from(*with_qp));
                group.map(|group| WayRow { kind: maps::ENCAPSULATE, by, group, ..WayRow::default() })
            }
        };
        Ok(row.unwrap_or(TO_WORKER))
    }

    /// The number of these next hops or paths. `None`: they do not fit, and their packets are the worker's.
    fn group(&mut self, group: &Group) -> Result<Option<u32>, MapError> {
        if let Some(&number) = self.groups.get(group) {
            return Ok(Some(number));
        }
        let fits = (1..=GROUP_MEMBERS).contains(&group.len()) && group.iter().all(|&member| member < HOPS);
        let Some(number) = fits.then(|| self.free_groups.pop()).flatten() else { return Ok(None) };
        let mut row = GroupRow { count: u32::try_from(group.len()).unwrap_or(0), members: [0; GROUP_MEMBERS] };
        row.members.iter_mut().zip(group.iter()).for_each(|(slot, member)| *slot = *member);
        self.maps.groups.set(number, row, 0)?;
        self.groups.insert(Arc::clone(group), number);
        Ok(Some(number))
    }

    fn port_error(&self, ifname: &str, why: &(dyn std::error::Error + 'static)) -> XskError {
        let what = format!("make it one of the {} ports of the offload", self.ifindexes.len() + 1);
        XskError::Map { ifname: ifname.to_owned(), what, why: chain(why) }
    }
}

/// What the verifier says at last, of all that it says.
fn in_short(why: &str) -> String {
    let Some((error, log)) = why.split_once(" Verifier output: ") else { return why.to_owned() };
    let is_figure =
        |line: &&str| ["verification time", "stack depth", "processed"].iter().any(|of| line.starts_with(of));
    let verdict =
        log.lines().rev().filter(|line| line.len() > 2).find(|line| !is_figure(line) && !line.starts_with(':'));
    format!("{error} {}", verdict.unwrap_or_default())
}

/// Makes `now` like `wanted`. A row that is gone is overwritten with nothing.
fn write_rows<K: Copy + Ord, R: Copy + Default + PartialEq>(
    now: &mut BTreeMap<K, R>,
    wanted: BTreeMap<K, R>,
    mut set: impl FnMut(&K, R) -> Result<(), MapError>,
) -> Result<(), MapError> {
    let gone: Vec<K> = now.keys().filter(|key| !wanted.contains_key(key)).copied().collect();
    for key in gone {
        set(&key, R::default())?;
        now.remove(&key);
    }
    for (key, row) in wanted {
        if now.get(&key) != Some(&row) {
            set(&key, row)?;
            now.insert(key, row);
        }
    }
    Ok(())
}

/// The same for prefixes. The one of length 0 stays.
fn write_prefixes(
    map: &mut LpmTrie<MapData, WayKey, WayRow>,
    set: u32,
    now: &mut Rows,
    wanted: Rows,
) -> Result<(), MapError> {
    let gone: Vec<(u128, u8)> = now.keys().filter(|prefix| !wanted.contains_key(prefix)).copied().collect();
    for (address, len) in gone {
        if len == 0 {
            map.insert(&way_key(set, 0, 0), TO_WORKER, 0)?;
        } else {
            map.remove(&way_key(set, address, len))?;
        }
        now.remove(&(address, len));
    }
    for ((address, len), row) in wanted {
        if now.get(&(address, len)) != Some(&row) {
            map.insert(&way_key(set, address, len), row, 0)?;
            now.insert((address, len), row);
        }
    }
    Ok(())
}

fn index(set: usize) -> u32 {
    u32::from(set == 1)
}

fn way_key(set: u32, address: u128, len: u8) -> Key<WayKey> {
    Key::new(32 + u32::from(len), WayKey { set, address: address.to_be_bytes() })
}

fn sum(counts: &aya::maps::PerCpuArray<MapData, maps::CountRow>, number: u32) -> PacketCount {
    let Ok(cells) = counts.get(&number, 0) else { return PacketCount::default() };
    let add = |sum: PacketCount, cell: &maps::CountRow| PacketCount {
        packets: sum.packets + cell.packets,
        bytes: sum.bytes + cell.bytes,
    };
    cells.iter().fold(PacketCount::default(), add)
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
    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::test_run::{Arrival, once, once_behind};

    const PASS: u32 = 2;
    const REDIRECT: u32 = 4;

    /// `fcbb::/32`, the node's uN 1, and a route to node 2.
    fn forwarding(mac: u8) -> Forwarding {
        let prefix = |usid: u128| (0xfcbb << 112 | usid << 80, 48);
        let via: Group = Arc::from([7]);
        let v6 = [(prefix(1), Way::Shift { by: 16, sid: 5, via: None }), (prefix(2), Way::Route(via))].into();
        Forwarding {
            ports: [(3, InPort { mac: [2, 0, 0, 0, 0, 1], longest: 1514, table: 0, guards_sids: false })].into(),
            tables: [(0, Table { v6, ..Table::default() })].into(),
            hops: [(7, Hop { addresses: [mac; 12], mtu: 1500, port: 3 })].into(),
            ..Forwarding::default()
        }
    }

    /// What [`frame`] is sent to, steered by path 4.
    fn steering() -> Forwarding {
        let via: Group = Arc::from([7]);
        let path = Path { addresses: [0x30; 32], hop_limit: 64, class: (0xff, 0), mtu: 1500, via };
        let way = Way::Encapsulate { paths: Arc::from([4]), with_qp: false };
        let v6 = [((0xfcbb << 112, 16), way)].into();
        let tables = [(0, Table { v6, ..Table::default() })].into();
        Forwarding { tables, paths: [(4, path)].into(), ..forwarding(9) }
    }

    /// To `fcbb:0:1:2::`.
    fn frame() -> Vec<u8> {
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

    #[test]
    #[ignore = "needs root"]
    fn where_no_header_fits_in_front_the_frame_is_the_workers_and_as_it_was() {
        const METADATA: usize = 200;
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let mut offload = XdpOffload::load().unwrap();
        offload.add_port(3, "lo").unwrap();
        offload.publish(&steering()).unwrap();
        let arrival = Arrival { ifindex: crate::ifindex("lo").unwrap(), queue: 0 };
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
    fn what_is_sent_to_a_block_through_a_port_that_guards_them_is_the_workers() {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let mut offload = XdpOffload::load().unwrap();
        offload.add_port(3, "lo").unwrap();
        let arrival = Arrival { ifindex: crate::ifindex("lo").unwrap(), queue: 0 };
        let block = (0xfcbb << 112, 32);
        // The frame is sent to the block, and to nothing that lies around this one.
        let other = (0xfcbb << 112 | 2 << 80, 48);
        // A shift is one of a SID, and so closed wherever it lies.
        for (forwarding, of_another) in [(forwarding(9), PASS), (steering(), REDIRECT)] {
            for (guards_sids, blocks, verdict) in
                [(false, [block], REDIRECT), (true, [block], PASS), (true, [other], of_another)]
            {
                let mut forwarding = Forwarding { sid_space: blocks.into(), ..forwarding.clone() };
                forwarding.ports.values_mut().for_each(|port| port.guards_sids = guards_sids);
                offload.publish(&forwarding).unwrap();
                let (done, out) = once(offload.program().unwrap(), &frame(), arrival).unwrap();
                assert_eq!(done, verdict, "{guards_sids} {blocks:x?}");
                assert_eq!(out == frame(), verdict == PASS);
            }
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn what_a_source_that_is_not_admitted_sends_is_the_workers() {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let mut offload = XdpOffload::load().unwrap();
        offload.add_port(3, "lo").unwrap();
        let arrival = Arrival { ifindex: crate::ifindex("lo").unwrap(), queue: 0 };
        // The source is 2020:2020:...
        let prefixes = |text: &str, len| BTreeSet::from([(text.parse::<std::net::Ipv6Addr>().unwrap().to_bits(), len)]);
        let (own, other) = (prefixes("2020:2000::", 20), prefixes("2020:3000::", 20));
        let of_port = |v6: &BTreeSet<_>| [(3, Sources { v6: v6.clone(), ..Sources::default() })].into();
        let open = BTreeMap::new();
        let nobody: BTreeMap<u16, Sources> = [(3, Sources::default())].into();
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
            ("steered, another port for others", &steer, None, [(4, Sources::default())].into(), REDIRECT),
            ("a shift for all again", &shift, None, open, REDIRECT),
        ];
        for (name, forwarding, domain, sources, verdict) in cases {
            let forwarding = Forwarding { domain: domain.cloned(), sources, ..forwarding.clone() };
            offload.publish(&forwarding).unwrap();
            let (done, out) = once(offload.program().unwrap(), &frame(), arrival).unwrap();
            assert_eq!((done, out == frame()), (verdict, verdict == PASS), "{name}");
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn each_generation_is_in_force_as_a_whole_and_a_removed_one_forwards_nothing() {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let mut offload = XdpOffload::load().unwrap();
        offload.add_port(3, "lo").unwrap();
        let arrival = Arrival { ifindex: crate::ifindex("lo").unwrap(), queue: 0 };
        let run = |offload: &XdpOffload| once(offload.program().unwrap(), &frame(), arrival).unwrap();
        assert_eq!(run(&offload), (PASS, frame()), "nothing is published yet");
        for mac in 1..6 {
            offload.publish(&forwarding(mac)).unwrap();
            let (verdict, out) = run(&offload);
            assert_eq!((verdict, out.get(..12).unwrap()), (REDIRECT, [mac; 12].as_slice()));
            let destination = [0xfc, 0xbb, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            assert_eq!((out.get(21), out.get(38..54)), (Some(&63), Some(destination.as_slice())));
        }
        let count = |bytes: u64| PacketCount { packets: 5, bytes: 5 * bytes };
        assert_eq!([offload.sid(5), offload.hop(7)], [count(60); 2]);
        assert_eq!([offload.received(3), offload.sent(3)], [count(74); 2]);
        let mut gone = forwarding(9);
        gone.tables.get_mut(&0).unwrap().v6.remove(&(0xfcbb << 112 | 1 << 80, 48));
        offload.publish(&gone).unwrap();
        assert_eq!(run(&offload), (PASS, frame()), "the SID is gone");
        offload.publish(&forwarding(9)).unwrap();
        assert_eq!(run(&offload).0, REDIRECT);
        offload.publish(&Forwarding::default()).unwrap();
        assert_eq!(run(&offload), (PASS, frame()));
    }
}
