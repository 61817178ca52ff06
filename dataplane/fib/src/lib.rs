//! The rows of the forwarding tables. Every engine forwards by the same rows: the worker reads them where they are, and
//! the maps of the XDP program hold the same bytes.
//!
//! ```text
//!   destination ─► target ─┬─ TARGET_SID ───► SidRow ───────────────────┬─► GroupRow ─► HopRow
//!                          ├─ TARGET_STEER ─► GroupRow ─► PathRow ──────┤
//!                          └─ TARGET_ROUTE, TARGET_NEIGHBOR ────────────┘
//! ```
//!
//! A row, a kind, a flag or a limit is declared once, here. [`c_header`] writes the same declarations in C, for the
//! program. A row is named by its index in its table, which is the same for all engines; the maps of the program hold
//! two generations, so an index there has the offset of its generation. Only the row of a port has another index there:
//! the number of the device, because that is all that the program knows of a frame that comes in, or for a VLAN a key of
//! that number and the VLAN ID.
//!
//! Numbers stand in rows as the processor has them, and addresses as they stand in packets.
#![forbid(unsafe_code)]

mod declare;
mod forwarding;
mod groups;
mod keys;
mod limits;
mod rows;
mod spread;

pub use forwarding::{Forwarding, Prefix, PrefixTable, Prefixes};
pub use groups::Groups;
pub use keys::{KeyRow, OF_DOMAIN, key_owner, of_carriers, of_port, of_table, vlan_key};
pub use limits::{
    BLOCKS, COUNTED_HOPS, COUNTED_PATHS, DEVICES, GROUPS, HOPS, MEMBERS, PATHS, PATTERNS, PORTS, PREFIXES, SIDS,
    SOURCES, STEERS, TABLES, USID_PAGES, USIDS, USIDS_PER_PAGE,
};
pub use rows::{
    BY_FLOW, BlockRow, CAPTURED, CHECKS_DOMAIN, CHECKS_SOURCES, CountRow, DECAPSULATES_V4, DECAPSULATES_V6,
    DECREMENTS_LOCAL, DELIVERS, DeviceRow, FORWARDS, GUARDS_SIDS, GroupRow, HASH_QP, HOP_IS_NEW, HopRow,
    IS_OWN_ADDRESS, KernelEndRow, MAIN_TABLE, NO_TARGET, NodeRow, ONE_SEGMENT, PORT_INDEX_BIT, PREFIX_HAS_TARGET,
    PREFIX_IN_SID_SPACE, PREFIX_IN_TRIE, PREFIX_IS_NEW, PathKind, PathRow, PatternRow, PortRow, PrefixRow, SENDS,
    SENDS_TAGS, SLOT_BITS, SidKind, SidRow, SrhRow, TAKES_OVER, TARGET_BLACKHOLE, TARGET_INDEX_BITS, TARGET_KERNEL,
    TARGET_NEIGHBOR, TARGET_ON_LINK, TARGET_ROUTE, TARGET_SID, TARGET_STEER, TARGET_UNKNOWN, TWO_SEGMENTS, UNIFORM,
    VlanRow,
};
pub use spread::{BY_HASH, SLOTS, Spread, Spreader};

/// Returns the declarations in C: `#define` for constants, `enum` for kinds, `struct` for rows. The compiler that reads
/// them checks size and offsets.
pub fn c_header() -> String {
    let parts = [limits::declarations(), rows::declarations(), keys::declarations()];
    format!(
        "/* SPDX-License-Identifier: Apache-2.0 OR MIT */\n\
         /* Written by the build script from the crate srv6d-fib, where each of these is declared. */\n\
         #pragma once\n\n#include <linux/types.h>\n{}",
        parts.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_every_field_with_its_offset() {
        let header = c_header();
        for part in [
            "#define PORTS 256\n",
            "#define TARGET_STEER 1\n",
            "enum { SID_SLOW = 0, SID_SHIFT = 1, SID_SHIFT_VIA = 2, SID_DECAPSULATE = 3 };\n",
            "struct hop {\n",
            "\t__u8 ethernet[12];\n",
            "_Static_assert(__builtin_offsetof(struct hop, mtu) == 12, \"struct hop, mtu\");\n",
            "_Static_assert(sizeof(struct path) == 64, \"struct path\");\n",
            "\tstruct prefix covering;\n",
            "\t__u64 argument[2];\n",
        ] {
            assert!(header.contains(part), "{part:?} is not in:\n{header}");
        }
    }
}
