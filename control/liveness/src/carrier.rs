//! The carrier of a loop: along a path to its last node, and back over the same nodes.

use std::fmt;
use std::net::Ipv6Addr;

/// Bits of an address.
const ADDRESS_BITS: u8 = 128;
/// Bits of a uSID.
const USID_BITS: u8 = 16;
/// First uSID that is local to a node by convention (the local identifiers block, LIB, of RFC 9800). uSIDs below it mean the
/// same node everywhere.
const FIRST_LOCAL: u16 = 0xe000;

/// Where a loop ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// uSID of this node, if it has one. Without one, the first node of the path leads back to this node.
    pub own: Option<u16>,
    /// uSID with which the last node of the loop decapsulates. `None`: the one with which the path ends.
    pub decap: Option<u16>,
}

/// Why a path has no loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLoop {
    /// The block has no whole number of uSIDs behind it.
    Block,
    /// The carrier does not have a node and a function.
    TooShort,
    /// A uSID between the first and the last is local to a node, so the way back cannot be told.
    Local(u16),
    /// The loop has this many uSIDs, and a carrier has room for fewer.
    TooLong(usize),
}

impl fmt::Display for NoLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.write_str("the block has a length that is no multiple of 16"),
            Self::TooShort => f.write_str("the carrier names no node and function"),
            Self::Local(usid) => write!(f, "the way back over uSID {usid:x}, which is local to a node, cannot be told"),
            Self::TooLong(usids) => write!(f, "its loop has {usids} uSIDs, and one carrier has no room for them"),
        }
    }
}

/// Returns the carrier that goes along `carrier` to its last node, and back over the same nodes. `block` is the number of bits
/// of the block that the carrier begins with.
///
/// # Errors
/// The carrier has no loop, or one that is too long.
pub fn loop_along(carrier: Ipv6Addr, block: u8, turn: Turn) -> Result<Ipv6Addr, NoLoop> {
    if block == 0 || !block.is_multiple_of(USID_BITS) || block >= ADDRESS_BITS {
        return Err(NoLoop::Block);
    }
    let in_front = usize::from(block / USID_BITS);
    let mut groups = carrier.segments();
    let (_, room) = groups.split_at_mut(in_front);
    let usids: Vec<u16> = room.iter().copied().take_while(|usid| *usid != 0).collect();
    let Some((function, nodes)) = usids.split_last().filter(|(_, nodes)| !nodes.is_empty()) else {
        return Err(NoLoop::TooShort);
    };
    if let Some(local) = nodes.iter().find(|usid| **usid >= FIRST_LOCAL) {
        return Err(NoLoop::Local(*local));
    }
    let back = nodes.iter().rev().skip(1).copied();
    let end = turn.own.into_iter().chain([turn.decap.unwrap_or(*function)]);
    let whole: Vec<u16> = nodes.iter().copied().chain(back).chain(end).collect();
    if whole.len() > room.len() {
        return Err(NoLoop::TooLong(whole.len()));
    }
    for (place, usid) in room.iter_mut().zip(whole.into_iter().chain(std::iter::repeat(0))) {
        *place = usid;
    }
    Ok(groups.into())
}
