//! The most that the maps of the XDP program may hold. A packet that needs a row with a higher index is left to the workers.

use crate::declare::constants;

constants! {
    /// Ports that the program can be on.
    pub const PORTS: u32 = 256;
    /// Ports of a configuration, VLANs included.
    pub const DEVICES: u32 = 4096;
    /// Tables. The main one is table 0.
    pub const TABLES: u32 = 256;
    /// SIDs of the node, and counters of SIDs.
    pub const SIDS: u32 = 4096;
    /// Steered prefixes.
    pub const STEERS: u32 = 32_768;
    /// Paths.
    pub const PATHS: u32 = 32_768;
    /// Counters of paths. Paths of one name share a counter.
    pub const COUNTED_PATHS: u32 = 4096;
    /// Groups of next hops.
    pub const GROUPS: u32 = 8192;
    /// Members of groups with several members. Steered prefixes and groups of next hops have this many each.
    pub const MEMBERS: u32 = 65_536;
    /// Patterns of groups. Steered prefixes and groups of next hops have this many each.
    pub const PATTERNS: u32 = 256;
    /// Next hops.
    pub const HOPS: u32 = 8192;
    /// Counters of next hops.
    pub const COUNTED_HOPS: u32 = 4096;
    /// Prefixes of all tables, of both families. Memory is taken per entry in use.
    pub const PREFIXES: u32 = 131_072;
    /// Prefixes of sources, of both families and all owners. Memory is taken per entry in use.
    pub const SOURCES: u32 = 16_384;
    /// Locator blocks that have an index of their uSIDs.
    pub const BLOCKS: u32 = 2;
    /// Pages of the index of a block, by the upper 8 bits of a uSID.
    pub const USID_PAGES: u32 = 256;
    /// uSIDs of a page, by the lower 8 bits.
    pub const USIDS_PER_PAGE: u32 = 256;
    /// uSIDs of all pages. Page 0 is empty: it is that of all uSIDs without a way of their own.
    pub const USIDS: u32 = (BLOCKS * USID_PAGES + 1) * USIDS_PER_PAGE;
}

pub(crate) fn declarations() -> String {
    let mut text = String::new();
    constant_declarations(&mut text);
    text
}
