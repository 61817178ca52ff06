//! Constants of `encap seg6` and `encap seg6local`, as the kernel writes them and as FRR writes them to a forwarding
//! plane.

/// `LWTUNNEL_ENCAP_SEG6` (`linux/lwtunnel.h`).
pub const SEG6: u16 = 5;
/// `LWTUNNEL_ENCAP_SEG6_LOCAL`.
pub const SEG6_LOCAL: u16 = 7;

/// Attributes of `encap seg6`: `SEG6_IPTUNNEL_*` (`linux/seg6_iptunnel.h`).
pub mod tunnel {
    /// `SEG6_IPTUNNEL_SRH`: the mode, then a segment routing header.
    pub const SRH: u16 = 1;
    /// `SEG6_IPTUNNEL_SRC`: source of the outer header.
    pub const SOURCE: u16 = 2;
    /// `SEG6_IPTUN_MODE_INLINE`.
    pub const MODE_INLINE: u32 = 0;
    /// `SEG6_IPTUN_MODE_ENCAP`.
    pub const MODE_ENCAP: u32 = 1;
    /// `SEG6_IPTUN_MODE_ENCAP_RED`.
    pub const MODE_ENCAP_RED: u32 = 3;
}

/// Attributes of `encap seg6local`: `SEG6_LOCAL_*` (`linux/seg6_local.h`).
pub mod local {
    /// `SEG6_LOCAL_ACTION`.
    pub const ACTION: u16 = 1;
    /// `SEG6_LOCAL_TABLE`: `table`.
    pub const TABLE: u16 = 3;
    /// `SEG6_LOCAL_NH4`: `nh4`.
    pub const NH4: u16 = 4;
    /// `SEG6_LOCAL_NH6`: `nh6`.
    pub const NH6: u16 = 5;
    /// `SEG6_LOCAL_OIF`: `oif`.
    pub const OIF: u16 = 7;
    /// `SEG6_LOCAL_VRFTABLE`: `vrftable`.
    pub const VRFTABLE: u16 = 9;
    /// `SEG6_LOCAL_COUNTERS`: `count`.
    pub const COUNTERS: u16 = 10;
    /// `SEG6_LOCAL_FLAVORS`: contains the attributes of [`flavors`](super::flavors).
    pub const FLAVORS: u16 = 11;
}

/// Attributes and bits of the flavors of `encap seg6local`.
pub mod flavors {
    /// `SEG6_LOCAL_FLV_OPERATION`: combination of the bits below.
    pub const OPERATION: u16 = 1;
    /// `SEG6_LOCAL_FLV_LCBLOCK_BITS`: `lblen`.
    pub const BLOCK_BITS: u16 = 2;
    /// `SEG6_LOCAL_FLV_LCNODE_FN_BITS`: `nflen`.
    pub const NODE_FUNCTION_BITS: u16 = 3;
    /// `1 << SEG6_LOCAL_FLV_OP_PSP`.
    pub const PSP: u32 = 1 << 1;
    /// `1 << SEG6_LOCAL_FLV_OP_USP`.
    pub const USP: u32 = 1 << 2;
    /// `1 << SEG6_LOCAL_FLV_OP_USD`.
    pub const USD: u32 = 1 << 3;
    /// `1 << SEG6_LOCAL_FLV_OP_NEXT_CSID`.
    pub const NEXT_CSID: u32 = 1 << 4;
    /// Default of `lblen`.
    pub const DEFAULT_BLOCK_BITS: u8 = 32;
    /// Default of `nflen`.
    pub const DEFAULT_NODE_FUNCTION_BITS: u8 = 16;
}
