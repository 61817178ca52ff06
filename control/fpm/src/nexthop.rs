//! Reads next-hop objects: `RTM_NEWNEXTHOP` and `RTM_DELNEXTHOP`.
//!
//! ```text
//! struct nhmsg     0        1       2          3          4       8
//!                  | family | scope | protocol | reserved | flags | attributes ...
//! struct nexthop_grp                0    4            5         8
//!                                   | id | weight - 1 | padding |
//! ```

use srv6d_kernel_routes::rtnetlink::next_hop::{BLACKHOLE, ENCAP, ENCAP_TYPE, GATEWAY, GROUP, GROUP_TYPE, ID, OIF};

use crate::attributes::{self, attributes};
use crate::event::{Decoded, Event, Hop, Malformed, NextHop};
use crate::seg6::{self, EncapBytes, some};

const HEADER: usize = 8;
const GROUP_ENTRY: usize = 8;

#[derive(Default)]
struct Read<'a> {
    id: Option<u32>,
    group: Option<&'a [u8]>,
    blackhole: bool,
    hop: Hop,
    encap: EncapBytes<'a>,
    unknown: u32,
}

fn read(body: &[u8]) -> Result<(u32, Read<'_>), Malformed> {
    let rest = body.get(HEADER..).ok_or_else(|| Malformed("no next-hop header".to_owned()))?;
    let mut read = Read { hop: Hop { weight: 1, ..Hop::default() }, ..Read::default() };
    for attribute in attributes(rest) {
        let (kind, value) = attribute?;
        match kind {
            ID => read.id = Some(attributes::u32(value)?),
            GROUP => read.group = Some(value),
            BLACKHOLE => read.blackhole = true,
            OIF => read.hop.device = Some(attributes::u32(value)?).filter(|device| *device != 0),
            GATEWAY => read.hop.via = some(attributes::address(value)?),
            ENCAP_TYPE => read.encap.kind = Some(attributes::u16(value)?),
            ENCAP => read.encap.bytes = value,
            GROUP_TYPE => {}
            _ => read.unknown += 1,
        }
    }
    let id = read.id.ok_or_else(|| Malformed("a next hop without a number".to_owned()))?;
    Ok((id, read))
}

pub fn announced(body: &[u8]) -> Result<Decoded, Malformed> {
    let (id, read) = read(body)?;
    let what = if let Some(members) = read.group {
        NextHop::Group(group(members)?)
    } else if read.blackhole {
        NextHop::Blackhole
    } else {
        match read.encap.read()? {
            seg6::Read::None => NextHop::Hop(read.hop),
            seg6::Read::Encap(encap) => NextHop::Hop(Hop { encap: Some(encap), ..read.hop }),
            seg6::Read::Local(sid) => NextHop::Sid(sid),
            seg6::Read::Other(kind) => NextHop::Unusable(format!("its encapsulation is of type {kind}")),
        }
    };
    Ok(Decoded { event: Event::NextHop(id, what), dialect: None, unknown_attributes: read.unknown })
}

pub fn withdrawn(body: &[u8]) -> Result<Decoded, Malformed> {
    let (id, read) = read(body)?;
    Ok(Decoded { event: Event::NextHopGone(id), dialect: None, unknown_attributes: read.unknown })
}

fn group(bytes: &[u8]) -> Result<Vec<(u32, u16)>, Malformed> {
    if !bytes.len().is_multiple_of(GROUP_ENTRY) {
        return Err(Malformed("a group of next hops that is cut".to_owned()));
    }
    let member = |entry: &[u8]| match *entry {
        [a, b, c, d, weight, ..] => Some((u32::from_ne_bytes([a, b, c, d]), u16::from(weight) + 1)),
        _ => None,
    };
    Ok(bytes.chunks_exact(GROUP_ENTRY).filter_map(member).collect())
}
