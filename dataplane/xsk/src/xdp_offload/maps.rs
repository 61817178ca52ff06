//! The maps of `bpf/offload_tables.h`. They hold the bytes of the rows, which the crate `srv6d-fib` declares for both
//! languages.

use aya::Ebpf;
use aya::maps::{
    Array, DevMap, HashMap, LpmTrie, MapData, MapError, PerCpuArray, PerCpuValues, ProgramArray, lpm_trie,
};
use srv6d_fib::{
    BlockRow, CountRow, DeviceRow, GroupRow, HopRow, KernelEndRow, KeyRow, NodeRow, PathRow, PatternRow, PortRow,
    PrefixRow, SidRow, SrhRow, VlanRow,
};
use zerocopy::transmute;

use super::tap::Taps;
use crate::claim_program::HandOversOfClaim;

/// Bytes of a key behind its length.
type KeyBytes = [u8; size_of::<KeyRow>() - size_of::<u32>()];

pub(super) type CountBytes = [u8; size_of::<CountRow>()];

/// A row that maps hold.
pub(super) trait Row: Copy + Default + PartialEq {
    /// As bytes.
    type Bytes: aya::Pod;

    fn bytes(self) -> Self::Bytes;
}

macro_rules! rows {
    ($($row:ty),*) => {
        $(impl Row for $row {
            type Bytes = [u8; size_of::<$row>()];

            fn bytes(self) -> Self::Bytes {
                transmute!(self)
            }
        })*
    };
}

rows!(
    NodeRow, PortRow, BlockRow, PrefixRow, SidRow, GroupRow, PatternRow, PathRow, SrhRow, HopRow, DeviceRow, VlanRow,
    u32
);

/// A table of two generations in one map, whose rows alternate.
pub(super) struct Table<R: Row> {
    map: Array<MapData, R::Bytes>,
    /// Rows of one generation.
    rows: u32,
}

impl<R: Row> Table<R> {
    fn take(ebpf: &mut Ebpf, name: &str) -> Option<Self> {
        let map: Array<MapData, R::Bytes> = ebpf.take_map(name)?.try_into().ok()?;
        let rows = map.len() / 2;
        Some(Self { map, rows })
    }

    /// Number of rows of one generation.
    pub(super) fn rows(&self) -> u32 {
        self.rows
    }

    pub(super) fn set(&mut self, set: usize, number: u32, row: R) -> Result<(), MapError> {
        self.map.set(2 * number + u32::from(set == 1), row.bytes(), 0)
    }
}

pub(super) type KernelEndBytes = [u8; size_of::<KernelEndRow>()];

/// Returns the bytes of a row that has one generation only.
pub(super) fn kernel_end(row: KernelEndRow) -> KernelEndBytes {
    transmute!(row)
}

/// Returns the key of a prefix.
pub(super) fn key(key: KeyRow) -> lpm_trie::Key<KeyBytes> {
    let bytes: [u8; size_of::<KeyRow>()] = transmute!(key);
    let [_, _, _, _, behind @ ..] = bytes;
    lpm_trie::Key::new(key.prefix_len, behind)
}

/// Resets a counter to zero on all CPUs.
pub(super) fn clear(counts: &mut PerCpuArray<MapData, CountBytes>, number: u32) -> Result<(), MapError> {
    let cpus = counts.get(&number, 0)?.len();
    let zeros = PerCpuValues::try_from(vec![transmute!(CountRow::default()); cpus]).map_err(MapError::IoError)?;
    counts.set(number, zeros, 0)
}

/// Returns the values of a counter on all CPUs.
pub(super) fn read(counts: &PerCpuArray<MapData, CountBytes>, number: u32) -> Vec<CountRow> {
    let Ok(cells) = counts.get(&number, 0) else { return Vec::new() };
    let count = |&cell: &CountBytes| {
        let [packets, bytes]: [u64; 2] = transmute!(cell);
        CountRow { packets, bytes }
    };
    cells.iter().map(count).collect()
}

pub(super) struct Maps {
    pub(super) current: Array<MapData, u32>,
    pub(super) port_of: HashMap<MapData, u32, u32>,
    pub(super) claim: ProgramArray<MapData>,
    pub(super) hand_overs: HandOversOfClaim,
    pub(super) node: Table<NodeRow>,
    pub(super) ports: Table<PortRow>,
    pub(super) vlans: HashMap<MapData, u32, <VlanRow as Row>::Bytes>,
    pub(super) blocks: Table<BlockRow>,
    pub(super) usid_pages: Table<u32>,
    pub(super) usids: Table<PrefixRow>,
    pub(super) prefixes: LpmTrie<MapData, KeyBytes, <PrefixRow as Row>::Bytes>,
    pub(super) sources: LpmTrie<MapData, KeyBytes, u32>,
    pub(super) sids: Table<SidRow>,
    pub(super) steers: Table<GroupRow>,
    pub(super) steer_members: Table<u32>,
    pub(super) steer_patterns: Table<PatternRow>,
    pub(super) paths: Table<PathRow>,
    pub(super) srhs: Table<SrhRow>,
    pub(super) groups: Table<GroupRow>,
    pub(super) group_members: Table<u32>,
    pub(super) group_patterns: Table<PatternRow>,
    pub(super) hops: Table<HopRow>,
    pub(super) devices: Table<DeviceRow>,
    pub(super) kernel_end: Array<MapData, KernelEndBytes>,
    pub(super) targets: DevMap<MapData>,
    pub(super) interfaces: Array<MapData, u32>,
    pub(super) sid_counts: PerCpuArray<MapData, CountBytes>,
    pub(super) path_counts: PerCpuArray<MapData, CountBytes>,
    pub(super) hop_counts: PerCpuArray<MapData, CountBytes>,
    pub(super) rx_counts: PerCpuArray<MapData, CountBytes>,
    pub(super) tx_counts: PerCpuArray<MapData, CountBytes>,
    pub(super) vlan_rx_counts: PerCpuArray<MapData, CountBytes>,
    pub(super) vlan_tx_counts: PerCpuArray<MapData, CountBytes>,
    pub(super) taps: Taps,
}

impl Maps {
    pub(super) fn take(ebpf: &mut Ebpf) -> Option<Self> {
        let taps = Taps::take(ebpf)?;
        Some(Self {
            taps,
            current: ebpf.take_map("current")?.try_into().ok()?,
            port_of: ebpf.take_map("port_of")?.try_into().ok()?,
            claim: ebpf.take_map("claim")?.try_into().ok()?,
            hand_overs: ebpf.take_map("hand_overs")?.try_into().ok()?,
            node: Table::take(ebpf, "node")?,
            ports: Table::take(ebpf, "ports")?,
            vlans: ebpf.take_map("vlans")?.try_into().ok()?,
            blocks: Table::take(ebpf, "blocks")?,
            usid_pages: Table::take(ebpf, "usid_pages")?,
            usids: Table::take(ebpf, "usids")?,
            prefixes: ebpf.take_map("prefixes")?.try_into().ok()?,
            sources: ebpf.take_map("sources")?.try_into().ok()?,
            sids: Table::take(ebpf, "sids")?,
            steers: Table::take(ebpf, "steers")?,
            steer_members: Table::take(ebpf, "steer_members")?,
            steer_patterns: Table::take(ebpf, "steer_patterns")?,
            paths: Table::take(ebpf, "paths")?,
            srhs: Table::take(ebpf, "srhs")?,
            groups: Table::take(ebpf, "groups")?,
            group_members: Table::take(ebpf, "group_members")?,
            group_patterns: Table::take(ebpf, "group_patterns")?,
            hops: Table::take(ebpf, "hops")?,
            devices: Table::take(ebpf, "devices")?,
            kernel_end: ebpf.take_map("kernel_end")?.try_into().ok()?,
            targets: ebpf.take_map("targets")?.try_into().ok()?,
            interfaces: ebpf.take_map("interfaces")?.try_into().ok()?,
            sid_counts: ebpf.take_map("sid_counts")?.try_into().ok()?,
            path_counts: ebpf.take_map("path_counts")?.try_into().ok()?,
            hop_counts: ebpf.take_map("hop_counts")?.try_into().ok()?,
            rx_counts: ebpf.take_map("rx_counts")?.try_into().ok()?,
            tx_counts: ebpf.take_map("tx_counts")?.try_into().ok()?,
            vlan_rx_counts: ebpf.take_map("vlan_rx_counts")?.try_into().ok()?,
            vlan_tx_counts: ebpf.take_map("vlan_tx_counts")?.try_into().ok()?,
        })
    }
}
