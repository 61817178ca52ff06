//! What is known of a route.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use srv6d_srv6::model::TableId;

/// One route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// Table.
    pub table: TableId,
    /// Destinations.
    pub prefix: IpNet,
    /// Among routes of one prefix, the smallest one counts.
    pub metric: u32,
    /// Who made it: `proto` of `ip route`.
    pub protocol: u8,
    /// What it does.
    pub action: KernelAction,
}

/// What a route of the kernel does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelAction {
    /// Sends, plainly or encapsulated, over one of these.
    Via(Vec<KernelHop>),
    /// `encap seg6local`: a SID of this node.
    Sid(KernelSid),
    /// Drops.
    Blackhole,
    /// Drops with Destination Unreachable.
    Unreachable,
    /// Something srv6d does not do.
    Other(String),
}

/// One next hop of a route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelHop {
    /// Kernel index of the device.
    pub device: u32,
    /// Neighbour; `None`: on-link.
    pub via: Option<IpAddr>,
    /// Share of the flows; 0: its link is down, or its device has no address of the family any more.
    pub weight: u16,
    /// `encap seg6`.
    pub encap: Option<KernelEncap>,
}

impl KernelHop {
    /// The same leg of a route, whatever its share.
    pub(crate) fn is_leg(&self, other: &Self) -> bool {
        self.device == other.device && self.via == other.via && self.encap == other.encap
    }
}

/// `encap seg6 mode encap|encap.red`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelEncap {
    /// `encap.red`.
    pub reduced: bool,
    /// In the order they are visited.
    pub segments: Vec<Ipv6Addr>,
    /// `tunsrc` of the route itself.
    pub source: Option<Ipv6Addr>,
}

/// `encap seg6local`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSid {
    /// Behaviour.
    pub action: KernelSidAction,
    /// `nh6`, `nh4`.
    pub via: Option<IpAddr>,
    /// `oif`.
    pub device: Option<u32>,
    /// `next-csid`: block and node function lengths in bits.
    pub csid: Option<(u8, u8)>,
    /// Flavors.
    pub psp: bool,
    /// Flavors.
    pub usp: bool,
    /// Flavors.
    pub usd: bool,
}

/// `action` of `encap seg6local`.
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
    /// End.DT6.
    EndDt6(TableId),
    /// End.DT4.
    EndDt4(TableId),
    /// End.DT46.
    EndDt46(TableId),
}

/// `SEG6_LOCAL_ACTION_*`, by number.
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
    /// The action of a number of `linux/seg6_local.h`, and the table it looks up in, where it does.
    ///
    /// # Errors
    /// It cannot be followed: its name.
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
