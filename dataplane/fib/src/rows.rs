//! The rows, their kinds and flags.

use crate::declare::{constants, kinds, rows};

constants! {
    /// Number of bits of the index in a target. A target says what a destination leads to; the bits above the index say
    /// which table has the row.
    pub const TARGET_INDEX_BITS: u32 = 28;
    /// Target: a SID of this node, by its index among SIDs.
    pub const TARGET_SID: u32 = 0;
    /// Target: paths, by the index of the steered prefix.
    pub const TARGET_STEER: u32 = 1;
    /// Target: next hops, by the index of their group.
    pub const TARGET_ROUTE: u32 = 2;
    /// Target: a neighbour on a link, by the index of the port.
    pub const TARGET_ON_LINK: u32 = 3;
    /// Target: the kernel of this node. The index says why.
    pub const TARGET_KERNEL: u32 = 4;
    /// Index of this target: the destination is an address of this node.
    pub const IS_OWN_ADDRESS: u32 = 1;
    /// Target: nobody's SID.
    pub const TARGET_UNKNOWN: u32 = 5;
    /// Target: refused.
    pub const TARGET_BLACKHOLE: u32 = 6;
    /// Target: a resolved neighbour behind an on-link route, by the index of its group of one.
    pub const TARGET_NEIGHBOR: u32 = 7;
    /// No target: no prefix matches.
    pub const NO_TARGET: u32 = 0xffff_ffff;

    /// Number of the main table. SIDs are looked up in it, and so are addresses after a shift.
    pub const MAIN_TABLE: u16 = 0;

    /// Flag of a port: packets to SIDs are not for everyone (roles edge and host).
    pub const GUARDS_SIDS: u32 = 1;
    /// Flag of a port: only listed sources may send.
    pub const CHECKS_SOURCES: u32 = 2;
    /// Flag of a port: the XDP program may forward its packets to other ports, or the tc program those of applications.
    pub const FORWARDS: u32 = 4;
    /// Flag of a port: the XDP program may decapsulate what a SID delivers to this node.
    pub const DELIVERS: u32 = 8;
    /// Flag of a port: the XDP program takes over from the worker, which may still have frames of the port.
    pub const TAKES_OVER: u32 = 16;
    /// Flag of a port, and of a device that packets leave through: what the XDP program forwards is copied for captures.
    pub const CAPTURED: u32 = 32;
    /// Flag of a device that packets leave through: the programs may send through it. A row of zeros is that of a port that they
    /// may not send through, for example an emulated one, and names no device.
    pub const SENDS: u32 = 64;

    /// In the flags of a port in the maps of the XDP program: first bit of the index of the port, by which its sources are listed.
    pub const PORT_INDEX_BIT: u32 = 16;

    /// Flag of a SID that decapsulates: what is inside may be IPv6.
    pub const DECAPSULATES_V6: u8 = 1;
    /// Flag of a SID that decapsulates: what is inside may be IPv4.
    pub const DECAPSULATES_V4: u8 = 2;
    /// Flag of a SID that decapsulates: the DSCP is taken from the outer header.
    pub const UNIFORM: u8 = 4;

    /// Flag of a next hop: it stands for several, of which the flow takes one.
    pub const BY_FLOW: u16 = 1;
    /// Flag of a next hop: the worker alone sent to it until now, and may still have frames.
    pub const HOP_IS_NEW: u16 = 2;

    /// Length of an SRH with one segment, in units of eight bytes.
    pub const ONE_SEGMENT: u8 = 3;
    /// Length of an SRH with two segments, in units of eight bytes. Longer ones are written by the worker alone.
    pub const TWO_SEGMENTS: u8 = 5;

    /// Bits of a hash that pick a slot of a group.
    pub const SLOT_BITS: u32 = 10;

    /// Flag of the node: the RoCEv2 queue pair is part of a flow.
    pub const HASH_QP: u32 = 1;
    /// Flag of the node: only listed sources may use its SIDs.
    pub const CHECKS_DOMAIN: u32 = 2;
    /// Flag of the node: the hop limit of what its own applications send is decremented.
    pub const DECREMENTS_LOCAL: u32 = 4;
    /// Flag of the node, in the maps of the XDP program: packets may leave with a VLAN tag.
    pub const SENDS_TAGS: u32 = 8;

    /// Flag of a prefix: it leads to its target. Without it, a uSID leads where its block does.
    pub const PREFIX_HAS_TARGET: u32 = 1;
    /// Flag of a prefix: the uSID has a prefix longer than /48 inside, so the trie is asked.
    pub const PREFIX_IN_TRIE: u32 = 2;
    /// Flag of a prefix: the whole prefix is SID space. Without it, no address that leads here is.
    pub const PREFIX_IN_SID_SPACE: u32 = 4;
    /// Flag of a prefix: the worker alone had its packets until now, and may still have some.
    pub const PREFIX_IS_NEW: u32 = 8;
}

kinds! {
    /// What is done with a packet to a SID.
    pub enum SidKind {
        /// The slow path does it.
        Slow = 0 as SID_SLOW,
        /// NEXT-CSID behind a 32-bit block (uN): the new destination is looked up in the main table.
        Shift = 1 as SID_SHIFT,
        /// NEXT-CSID behind a 32-bit block (uA): the packet leaves by the SID's group of next hops.
        ShiftVia = 2 as SID_SHIFT_VIA,
        /// End.DT6, End.DT4, End.DT46: the destination inside is looked up in the SID's table.
        Decapsulate = 3 as SID_DECAPSULATE,
    }

    /// What is put in front of a packet.
    pub enum PathKind {
        /// The slow path does it.
        Slow = 0 as PATH_SLOW,
        /// An IPv6 header.
        WithoutSrh = 1 as PATH_WITHOUT_SRH,
        /// An IPv6 header and an SRH.
        WithSrh = 2 as PATH_WITH_SRH,
        /// The row stands for one of several paths or next hops: the flow takes one.
        ByFlow = 3 as PATH_BY_FLOW,
    }
}

rows! {
    /// Settings of the node that hold for every packet.
    pub struct NodeRow(node, 48 bytes) {
        /// `HASH_QP`, `CHECKS_DOMAIN`, `DECREMENTS_LOCAL`; in the maps of the XDP program `SENDS_TAGS`.
        pub flags: u32,
        /// In the maps of the XDP program: number of the hand-over from the worker that is under way.
        pub hand_over: u32,
        /// In the maps of the XDP program: queues of each port that may have a worker.
        pub queues: u32,
        /// In the maps of the XDP program: number of the publication, from 1 on.
        pub epoch: u32,
        /// Seed of the choice of a next hop: a number to XOR, and a number to multiply by.
        pub seed_of_hops: [u64; 2],
        /// Seed of the choice of a path: a number to XOR, and a number to multiply by.
        pub seed_of_paths: [u64; 2],
    }

    /// A port whose packets may take a fast path. Only their Ethernet destination, their length and their source
    /// address are checked.
    pub struct PortRow(port, 16 bytes) {
        /// MAC address of the port.
        pub mac: [u8; 6],
        /// Number of the table that its packets are looked up in.
        pub table: u16,
        /// Longest frame in bytes. 0: none takes a fast path.
        pub longest: u32,
        /// `GUARDS_SIDS`, `CHECKS_SOURCES`; in the maps of the XDP program also `FORWARDS`, `DELIVERS`, `TAKES_OVER`,
        /// `CAPTURED`, and the index of the port (`PORT_INDEX_BIT`).
        pub flags: u32,
    }

    /// A port that is a VLAN of a device, for the XDP program.
    pub struct VlanRow(vlan, 24 bytes) {
        /// What holds for its packets. The longest frame is one without its tag.
        pub port: PortRow,
        /// Slot of the counter of what comes in.
        pub slot: u32,
        /// 0.
        pub zero: u32,
    }

    /// A SID of this node.
    pub struct SidRow(sid, 32 bytes) {
        /// What is done.
        pub kind: SidKind,
        /// Number of bits that a shift consumes, 16 or 32.
        pub by: u8,
        /// Decapsulation: `DECAPSULATES_V6`, `DECAPSULATES_V4`, `UNIFORM`.
        pub flags: u8,
        /// 0.
        pub zero: u8,
        /// Slot of the counter.
        pub slot: u32,
        /// `ShiftVia`: the group of next hops.
        pub group: u32,
        /// Decapsulation: the table of the packet inside.
        pub table: u16,
        /// 0.
        pub zeros: u16,
        /// Decapsulation: bits of the destination that must be zero, of its upper and its lower half.
        pub argument: [u64; 2],
    }

    /// A group of paths or of next hops. If the group has several members, the flow's hash picks one by the group's pattern.
    pub struct GroupRow(group, 12 bytes) {
        /// Number of members. 0: the packet goes nowhere.
        pub count: u32,
        /// Index of the pattern, if the group has several members.
        pub pattern: u32,
        /// Index of the only member. If the group has several members, it is their first position in the list of members.
        pub at: u32,
    }

    /// The slots of a group, each with its member. The flow's hash picks a slot, and each member has as many slots as its share
    /// of the flows asks.
    pub struct PatternRow(pattern, 2048 bytes) {
        /// For each slot, the place of its member in the group.
        pub members: [[u16; 32]; 32],
    }

    /// A path: what its outer header is written from. The row fills one cache line.
    #[align(64)]
    pub struct PathRow(path, 64 bytes) {
        /// Source and destination address of the outer header.
        pub addresses: [u8; 32],
        /// The part of the first eight bytes of the outer header that is the same for every packet: version, hop limit,
        /// and the bits that are set in the traffic class.
        pub first: u64,
        /// Mask, at the position of the traffic class in these eight bytes, of the bits that are copied from the inner
        /// traffic class.
        pub class_kept: u64,
        /// Slot of the counter.
        pub slot: u32,
        /// The group of next hops.
        pub group: u32,
        /// Where its SRH begins in the worker's list of SRHs.
        pub srh: u32,
        /// Largest outer packet in bytes.
        pub mtu: u16,
        /// Length of the SRH in units of eight bytes, often 0.
        pub srh_units: u8,
        /// What is put in front.
        pub kind: PathKind,
    }

    /// The SRH of a path, for the programs in the kernel alone. Bytes behind a shorter SRH are zero.
    pub struct SrhRow(srh, 40 bytes) {
        /// Bytes of the SRH as they stand in the packet, except for the next header.
        pub bytes: [[u8; 8]; 5],
    }

    /// A next hop that packets can be sent to. The worker has rows of untagged ones only.
    pub struct HopRow(hop, 24 bytes) {
        /// Destination and source MAC address.
        pub ethernet: [u8; 12],
        /// Largest IP packet in bytes. 0: none can be sent there (not resolved, down, or tagged, for the worker), or the row
        /// stands for several (`BY_FLOW`).
        pub mtu: u32,
        /// Slot of the counter.
        pub slot: u32,
        /// Index of the port that packets leave through.
        pub port: u16,
        /// `BY_FLOW`; in the maps of the XDP program `HOP_IS_NEW`.
        pub flags: u16,
    }

    /// What the XDP program knows of a port that packets leave through.
    pub struct DeviceRow(device, 16 bytes) {
        /// Number of the device, which names its interface and its counters.
        pub number: u32,
        /// Largest IP packet in bytes that the device takes from an XDP program. 0: none.
        pub mtu: u32,
        /// `CAPTURED`, `SENDS`.
        pub flags: u32,
        /// VLAN ID that packets leave with. 0: they leave without a tag.
        pub vid: u16,
        /// With a VLAN ID: slot of the counter of what leaves.
        pub slot: u16,
    }

    /// The way into the kernel of this node: the two ends of srv6d's own veth.
    pub struct KernelEndRow(kernel_end, 24 bytes) {
        /// MAC address of the kernel's end, and of the packet end.
        pub ethernet: [u8; 12],
        /// Index of the interface that is the kernel's end. 0: there is none.
        pub ifindex: u32,
        /// Number of the device that is the packet end, for its counters.
        pub number: u32,
        /// What the XDP program writes in front of a packet for this node, for the tc program. Each start has another one.
        pub mark: u32,
    }

    /// What a prefix leads to.
    pub struct PrefixRow(prefix, 8 bytes) {
        /// `TARGET_...` in front of an index.
        pub target: u32,
        /// `PREFIX_...`.
        pub flags: u32,
    }

    /// A locator block whose uSIDs have an index. A look-up takes one load instead of a walk down the trie.
    pub struct BlockRow(block, 16 bytes) {
        /// Upper 32 bits of the block's prefix.
        pub prefix: u32,
        /// Whether there is a block. 0: there is none.
        pub is_used: u32,
        /// Row of the longest prefix that contains the block.
        pub covering: PrefixRow,
    }

    /// A counter.
    pub struct CountRow(count, 16 bytes) {
        /// Number of packets.
        pub packets: u64,
        /// Number of bytes.
        pub bytes: u64,
    }
}

pub(crate) fn declarations() -> String {
    let mut text = String::new();
    constant_declarations(&mut text);
    kind_declarations(&mut text);
    row_declarations(&mut text);
    text
}
