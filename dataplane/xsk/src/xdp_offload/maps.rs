//! The structs of `bpf/offload_tables.h`, and its maps.

use aya::maps::{Array, DevMap, HashMap, LpmTrie, MapData, MapError, PerCpuArray, PerCpuValues, ProgramArray};
use aya::{Ebpf, Pod};

/// Ports there can be.
pub const PORTS: u32 = 256;
/// Tables there can be.
pub const TABLES: u16 = 256;
/// Counters of SIDs there can be.
pub const SIDS: u32 = 4096;
/// Next hops there can be.
pub const HOPS: u32 = 4096;
/// Paths there can be: as many as next hops, for a group has either.
pub const PATHS: u32 = HOPS;
/// Groups of next hops or paths there can be.
pub const GROUPS: u32 = 4096;
/// Buckets of one group.
pub const GROUP_MEMBERS: usize = 63;

/// Locator blocks that have an index of their uSIDs.
pub(super) const BLOCKS: u32 = 2;
pub(super) const USIDS: u32 = 1 << 16;

pub(super) const TO_WORKER: u8 = 1;
pub(super) const SHIFT: u8 = 2;
pub(super) const SHIFT_VIA: u8 = 3;
pub(super) const ROUTE: u8 = 4;
pub(super) const IN_TRIE: u8 = 5;
pub(super) const ENCAPSULATE: u8 = 6;

/// `key_set` of the program.
pub(super) fn key_set(set: usize, table: u16, is_v4: bool) -> u32 {
    u32::from(table) << 2 | u32::from(is_v4) << 1 | u32::from(set == 1)
}

/// `struct port`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PortRow {
    pub(super) mac: [u8; 6],
    pub(super) longest: u16,
    pub(super) table: u16,
    pub(super) guards_sids: u16,
    pub(super) checks: u16,
}

/// `CHECK_PORT`: sources that may send through a port are looked up.
pub(super) const CHECK_PORT: u16 = 1;
/// `CHECK_DOMAIN`: sources that may use SIDs are looked up.
pub(super) const CHECK_DOMAIN: u16 = 2;
/// `OF_DOMAIN`: the owner of sources that may use SIDs.
pub(super) const OF_DOMAIN: u16 = 0;

/// `OF_PORT`: the owner of sources that may send through a port.
pub(super) fn of_port(port: u16) -> u16 {
    port.saturating_add(1)
}

/// `struct way`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WayRow {
    pub(super) kind: u8,
    pub(super) by: u8,
    pub(super) in_sid_space: u8,
    pub(super) zero: u8,
    pub(super) sid: u32,
    pub(super) group: u32,
}

/// `struct block`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BlockRow {
    pub(super) prefix: u32,
    pub(super) is_used: u32,
    pub(super) way: WayRow,
}

/// `struct way_key` behind its length.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct WayKey {
    pub(super) set: u32,
    pub(super) address: [u8; 16],
}

/// `struct group`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupRow {
    pub(super) count: u32,
    pub(super) members: [u32; GROUP_MEMBERS],
}

/// `struct path`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PathRow {
    pub(super) addresses: [u8; 32],
    pub(super) group: u32,
    pub(super) mtu: u32,
    pub(super) hop_limit: u8,
    pub(super) class_kept: u8,
    pub(super) class_set: u8,
    pub(super) zero: u8,
}

/// `struct hop`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HopRow {
    pub(super) addresses: [u8; 12],
    pub(super) mtu: u32,
    pub(super) port: u32,
}

/// `struct count`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CountRow {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

// SAFETY: integers without padding, any bit pattern is a value.
unsafe impl Pod for PortRow {}
// SAFETY: as for PortRow.
unsafe impl Pod for BlockRow {}
// SAFETY: as for PortRow.
unsafe impl Pod for WayRow {}
// SAFETY: as for PortRow.
unsafe impl Pod for WayKey {}
// SAFETY: as for PortRow.
unsafe impl Pod for GroupRow {}
// SAFETY: as for PortRow.
unsafe impl Pod for PathRow {}
// SAFETY: as for PortRow.
unsafe impl Pod for HopRow {}
// SAFETY: as for PortRow.
unsafe impl Pod for CountRow {}

/// Makes a counter zero on all CPUs.
pub(super) fn clear(counts: &mut PerCpuArray<MapData, CountRow>, number: u32) -> Result<(), MapError> {
    let cpus = counts.get(&number, 0)?.len();
    let zeros = PerCpuValues::try_from(vec![CountRow::default(); cpus]).map_err(MapError::IoError)?;
    counts.set(number, zeros, 0)
}

pub(super) struct Maps {
    pub(super) current: Array<MapData, u32>,
    pub(super) port_of: HashMap<MapData, u32, u32>,
    pub(super) claim: ProgramArray<MapData>,
    pub(super) ports: Array<MapData, PortRow>,
    pub(super) blocks: Array<MapData, BlockRow>,
    pub(super) usids: Array<MapData, WayRow>,
    pub(super) ways: LpmTrie<MapData, WayKey, WayRow>,
    pub(super) sources: LpmTrie<MapData, WayKey, u32>,
    pub(super) groups: Array<MapData, GroupRow>,
    pub(super) paths: Array<MapData, PathRow>,
    pub(super) hops: Array<MapData, HopRow>,
    pub(super) targets: DevMap<MapData>,
    pub(super) sid_counts: PerCpuArray<MapData, CountRow>,
    pub(super) path_counts: PerCpuArray<MapData, CountRow>,
    pub(super) hop_counts: PerCpuArray<MapData, CountRow>,
    pub(super) rx_counts: PerCpuArray<MapData, CountRow>,
    pub(super) tx_counts: PerCpuArray<MapData, CountRow>,
}

impl Maps {
    pub(super) fn take(ebpf: &mut Ebpf) -> Option<Self> {
        Some(Self {
            current: ebpf.take_map("current")?.try_into().ok()?,
            port_of: ebpf.take_map("port_of")?.try_into().ok()?,
            claim: ebpf.take_map("claim")?.try_into().ok()?,
            ports: ebpf.take_map("ports")?.try_into().ok()?,
            blocks: ebpf.take_map("blocks")?.try_into().ok()?,
            usids: ebpf.take_map("usids")?.try_into().ok()?,
            ways: ebpf.take_map("ways")?.try_into().ok()?,
            sources: ebpf.take_map("sources")?.try_into().ok()?,
            groups: ebpf.take_map("groups")?.try_into().ok()?,
            paths: ebpf.take_map("paths")?.try_into().ok()?,
            hops: ebpf.take_map("hops")?.try_into().ok()?,
            targets: ebpf.take_map("targets")?.try_into().ok()?,
            sid_counts: ebpf.take_map("sid_counts")?.try_into().ok()?,
            path_counts: ebpf.take_map("path_counts")?.try_into().ok()?,
            hop_counts: ebpf.take_map("hop_counts")?.try_into().ok()?,
            rx_counts: ebpf.take_map("rx_counts")?.try_into().ok()?,
            tx_counts: ebpf.take_map("tx_counts")?.try_into().ok()?,
        })
    }
}
