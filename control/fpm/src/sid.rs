//! Reads SONiC's local SIDs: message types 1000 and 1001, with a route header and their own attributes.

use std::net::IpAddr;

use ipnet::Ipv6Net;
use netlink_packet_route::route::RouteHeader;

use crate::attributes::{self, attributes};
use crate::event::{Action, Decoded, Event, LocalSid, Malformed};
use crate::route::HEADER;
use crate::seg6::some;

const SID: u16 = 1;
const LENGTHS: u16 = 2;
const ACTION: u16 = 3;
const VRF: u16 = 4;
const NH6: u16 = 5;
const NH4: u16 = 6;
const PORT: u16 = 12;
/// Attributes within `LENGTHS`.
const BLOCK: u16 = 1;
const NODE: u16 = 2;
const FUNCTION: u16 = 3;
const ARGUMENT: u16 = 4;

/// Lengths of the parts of a SID, in bits.
#[derive(Default)]
struct Lengths {
    block: u8,
    node: u8,
    function: u8,
}

pub fn announced(body: &[u8]) -> Result<Decoded, Malformed> {
    let (prefix, sid, unknown_attributes) = read(body)?;
    Ok(Decoded { event: Event::Sid(prefix, sid), dialect: None, unknown_attributes })
}

pub fn withdrawn(body: &[u8]) -> Result<Decoded, Malformed> {
    let (prefix, _, unknown_attributes) = read(body)?;
    Ok(Decoded { event: Event::SidGone(prefix), dialect: None, unknown_attributes })
}

fn read(body: &[u8]) -> Result<(Ipv6Net, LocalSid, u32), Malformed> {
    let header = RouteHeader::parse(body).map_err(|why| Malformed(format!("no route header: {why}")))?;
    let (mut address, mut lengths, mut sid, mut unknown) = (None, Lengths::default(), LocalSid::default(), 0);
    for attribute in attributes(body.get(HEADER..).unwrap_or_default()) {
        let (kind, value) = attribute?;
        match kind {
            SID => address = Some(attributes::ipv6(value)?),
            LENGTHS => lengths = self::lengths(value)?,
            ACTION => sid.action = Some(action(attributes::u32(value)?)),
            VRF => sid.vrf = Some(attributes::name(value)?).filter(|name| !name.is_empty()),
            NH6 => sid.via = some(IpAddr::V6(attributes::ipv6(value)?)).or(sid.via),
            NH4 => sid.via = some(attributes::address(value)?).or(sid.via),
            PORT => sid.port = Some(attributes::name(value)?).filter(|name| !name.is_empty()),
            _ => unknown += 1,
        }
    }
    let address = address.ok_or_else(|| Malformed("a SID without its address".to_owned()))?;
    let length = prefix_length(header.destination_prefix_length, &lengths);
    let prefix = Ipv6Net::new(address, length).map_err(|_| Malformed(format!("the SID {address}/{length}")))?;
    sid.block = lengths.block;
    // For a SID that FRR learned from the kernel the lengths are always 32/16/16, so the prefix length is used instead.
    sid.node_function = length.saturating_sub(lengths.block);
    Ok((prefix.trunc(), sid, unknown))
}

/// Returns the prefix length of a SID. A SID given as a host address matches as many bits as its parts have together.
fn prefix_length(said: u8, lengths: &Lengths) -> u8 {
    let parts = lengths.block.saturating_add(lengths.node).saturating_add(lengths.function);
    if (said == 0 || said == 128) && parts > 0 { parts.min(128) } else { said }
}

fn lengths(bytes: &[u8]) -> Result<Lengths, Malformed> {
    let mut lengths = Lengths::default();
    for attribute in attributes(bytes) {
        let (kind, value) = attribute?;
        match kind {
            BLOCK => lengths.block = attributes::u8(value)?,
            NODE => lengths.node = attributes::u8(value)?,
            FUNCTION => lengths.function = attributes::u8(value)?,
            // The argument and unknown parts do not matter for the match.
            ARGUMENT.. | 0 => {}
        }
    }
    Ok(lengths)
}

fn action(number: u32) -> Action {
    match number {
        1 => Action::End(false),
        2 => Action::EndX(false),
        14 => Action::End(true),
        15 => Action::EndX(true),
        5 | 17 => Action::EndDx6,
        6 | 18 => Action::EndDx4,
        7 | 19 => Action::EndDt6,
        8 | 20 => Action::EndDt4,
        9 | 21 => Action::EndDt46,
        other => Action::Other(other),
    }
}
