//! What is known about a route of the kernel.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use srv6d_addresses::TableId;

/// One route of the kernel, as an entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// Table of the route.
    pub table: TableId,
    /// Prefix of the destinations.
    pub prefix: IpNet,
    /// Metric; of the routes of one prefix, the one with the smallest metric is used.
    pub metric: u32,
    /// Origin of the route: `proto` of `ip route`.
    pub protocol: u8,
    /// Action of the route.
    pub action: KernelAction,
}

/// What a route of the kernel does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelAction {
    /// Sends packets, with or without encapsulation, over one of these next hops.
    Via(Vec<KernelHop>),
    /// `encap seg6local`: processes packets as packets to a SID of this node.
    Sid(KernelSid),
    /// Drops packets silently.
    Blackhole,
    /// Drops packets and answers with ICMP Destination Unreachable.
    Unreachable,
    /// Something that srv6d does not support; the text says what.
    Other(String),
}

/// One next hop of a route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelHop {
    /// Kernel index of the device.
    pub device: u32,
    /// Address of the neighbour; `None`: on-link.
    pub via: Option<IpAddr>,
    /// Weight: share of the flows. 0 means that the link is down, or that the device has no address of the family any
    /// more.
    pub weight: u16,
    /// SRv6 encapsulation (`encap seg6`).
    pub encap: Option<KernelEncap>,
}

impl KernelHop {
    /// Returns whether both are the same leg of a route, apart from the weight.
    pub(crate) fn is_leg(&self, other: &Self) -> bool {
        self.device == other.device && self.via == other.via && self.encap == other.encap
    }
}

/// SRv6 encapsulation: `encap seg6 mode encap|encap.red`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelEncap {
    /// True if the mode is `encap.red`.
    pub reduced: bool,
    /// Segments in the order they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// Source of the outer header (`tunsrc`), if the route sets one.
    pub source: Option<Ipv6Addr>,
}

/// A SID of this node: `encap seg6local`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSid {
    /// Behaviour of the SID.
    pub action: KernelSidAction,
    /// Address of the neighbour (`nh6` or `nh4`).
    pub via: Option<IpAddr>,
    /// Kernel index of the device (`oif`).
    pub device: Option<u32>,
    /// Lengths of block and node function in bits, for the flavor `next-csid`.
    pub csid: Option<(u8, u8)>,
    /// Whether the flavor PSP is set.
    pub psp: bool,
    /// Whether the flavor USP is set.
    pub usp: bool,
    /// Whether the flavor USD is set.
    pub usd: bool,
}

/// Behaviour of a SID: `action` of `encap seg6local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelSidAction {
    /// End.
    End,
    /// End.X.
    EndX,
    /// End.DX6.
    EndDx6,
    /// End.DX4.
    EndDx4,
    /// End.DT6 with its table.
    EndDt6(TableId),
    /// End.DT4 with its table.
    EndDt4(TableId),
    /// End.DT46 with its table.
    EndDt46(TableId),
}

/// Names of behaviours (`SEG6_LOCAL_ACTION_*`), indexed by number.
const ACTIONS: [&str; 17] = [
    "unspecified",
    "End",
    "End.X",
    "End.T",
    "End.DX2",
    "End.DX6",
    "End.DX4",
    "End.DT6",
    "End.DT4",
    "End.B6",
    "End.B6.Encaps",
    "End.BM",
    "End.S",
    "End.AS",
    "End.AM",
    "End.BPF",
    "End.DT46",
];

impl KernelSidAction {
    /// Returns the behaviour of a number of `linux/seg6_local.h`. `table` is the table of a behaviour that looks up in
    /// one.
    ///
    /// # Errors
    /// Text that names the behaviour, if srv6d does not support it.
    pub fn numbered(number: u32, table: TableId) -> Result<Self, String> {
        match number {
            1 => Ok(Self::End),
            2 => Ok(Self::EndX),
            5 => Ok(Self::EndDx6),
            6 => Ok(Self::EndDx4),
            7 => Ok(Self::EndDt6(table)),
            8 => Ok(Self::EndDt4(table)),
            16 => Ok(Self::EndDt46(table)),
            other => {
                let name = usize::try_from(other).ok().and_then(|other| ACTIONS.get(other));
                let name = name.map_or_else(|| other.to_string(), |name| (*name).to_owned());
                Err(format!("seg6local action {name}"))
            }
        }
    }
}
