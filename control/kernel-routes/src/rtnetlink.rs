//! Constants of rtnetlink for routes and next-hop objects, as the kernel writes them and as FRR writes them to a
//! forwarding plane. Constants of encapsulations are in [`seg6`](crate::seg6).

/// Message types: `RTM_*` (`linux/rtnetlink.h`).
pub mod message {
    /// `RTM_NEWROUTE`.
    pub const NEW_ROUTE: u16 = 24;
    /// `RTM_DELROUTE`.
    pub const DEL_ROUTE: u16 = 25;
    /// `RTM_GETROUTE`.
    pub const GET_ROUTE: u16 = 26;
    /// `RTM_NEWNEIGH`.
    pub const NEW_NEIGHBOUR: u16 = 28;
    /// `RTM_DELNEIGH`.
    pub const DEL_NEIGHBOUR: u16 = 29;
    /// `RTM_NEWRULE`.
    pub const NEW_RULE: u16 = 32;
    /// `RTM_DELRULE`.
    pub const DEL_RULE: u16 = 33;
    /// `RTM_GETRULE`.
    pub const GET_RULE: u16 = 34;
    /// `RTM_NEWNEXTHOP`.
    pub const NEW_NEXT_HOP: u16 = 104;
    /// `RTM_DELNEXTHOP`.
    pub const DEL_NEXT_HOP: u16 = 105;
    /// `RTM_GETNEXTHOP`.
    pub const GET_NEXT_HOP: u16 = 106;
}

/// Attributes of a route: `RTA_*` (`linux/rtnetlink.h`).
pub mod route {
    /// `RTA_DST`.
    pub const DESTINATION: u16 = 1;
    /// `RTA_SRC`.
    pub const SOURCE: u16 = 2;
    /// `RTA_OIF`.
    pub const OIF: u16 = 4;
    /// `RTA_GATEWAY`.
    pub const GATEWAY: u16 = 5;
    /// `RTA_PRIORITY`: the metric.
    pub const PRIORITY: u16 = 6;
    /// `RTA_PREFSRC`: `src`.
    pub const PREFERRED_SOURCE: u16 = 7;
    /// `RTA_METRICS`.
    pub const METRICS: u16 = 8;
    /// `RTA_MULTIPATH`: all legs of a route (`nexthop` of `ip route`).
    pub const MULTIPATH: u16 = 9;
    /// `RTA_TABLE`: table number; the only place for numbers above 255.
    pub const TABLE: u16 = 15;
    /// `RTA_VIA`: a neighbour whose address is of another family.
    pub const VIA: u16 = 18;
    /// `RTA_ENCAP_TYPE`.
    pub const ENCAP_TYPE: u16 = 21;
    /// `RTA_ENCAP`.
    pub const ENCAP: u16 = 22;
    /// `RTA_NH_ID`: number of a next-hop object.
    pub const NEXT_HOP_ID: u16 = 30;
}

/// Attributes of a next-hop object: `NHA_*` (`linux/nexthop.h`).
pub mod next_hop {
    /// `NHA_ID`.
    pub const ID: u16 = 1;
    /// `NHA_GROUP`.
    pub const GROUP: u16 = 2;
    /// `NHA_GROUP_TYPE`.
    pub const GROUP_TYPE: u16 = 3;
    /// `NHA_BLACKHOLE`.
    pub const BLACKHOLE: u16 = 4;
    /// `NHA_OIF`.
    pub const OIF: u16 = 5;
    /// `NHA_GATEWAY`.
    pub const GATEWAY: u16 = 6;
    /// `NHA_ENCAP_TYPE`.
    pub const ENCAP_TYPE: u16 = 7;
    /// `NHA_ENCAP`.
    pub const ENCAP: u16 = 8;
    /// `NHA_FDB`: the object is for a bridge, not for routes.
    pub const FDB: u16 = 11;
}
