//! Reads values of netlink attributes, in host byte order.
//!
//! The netlink library splits a message into attributes, but their values are read here, for three reasons. The library
//! refuses a whole message if it cannot read one of its attributes. It knows neither next-hop objects nor SONiC's
//! messages nor the flavors of a SID. And it reads a next hop's encapsulation without its type, which FRR writes before
//! the encapsulation and the kernel after it. FRR leaves the bytes behind a u8 uninitialised, so the functions here use
//! the exact length of each attribute.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::NlasIterator;

use crate::event::Malformed;

/// Splits bytes into attributes: type (without its flag bits) and value.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<(u16, &[u8]), Malformed>> {
    let mut rest = bytes;
    NlasIterator::new(bytes).map(move |attribute| {
        let attribute = attribute.map_err(|why| Malformed(format!("an attribute that is cut: {why}")))?;
        let length = usize::from(attribute.length());
        let value = rest.get(4..length).ok_or_else(|| Malformed("an attribute that is cut".to_owned()))?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Ok((attribute.kind(), value))
    })
}

pub fn u8(value: &[u8]) -> Result<u8, Malformed> {
    match value {
        [byte] => Ok(*byte),
        _ => Err(wrong(value, "1 byte")),
    }
}

pub fn u16(value: &[u8]) -> Result<u16, Malformed> {
    value.try_into().map(u16::from_ne_bytes).map_err(|_| wrong(value, "2 bytes"))
}

pub fn u32(value: &[u8]) -> Result<u32, Malformed> {
    value.try_into().map(u32::from_ne_bytes).map_err(|_| wrong(value, "4 bytes"))
}

pub fn ipv6(value: &[u8]) -> Result<Ipv6Addr, Malformed> {
    <[u8; 16]>::try_from(value).map(Ipv6Addr::from).map_err(|_| wrong(value, "an IPv6 address"))
}

pub fn address(value: &[u8]) -> Result<IpAddr, Malformed> {
    match <[u8; 4]>::try_from(value) {
        Ok(v4) => Ok(IpAddr::V4(Ipv4Addr::from(v4))),
        Err(_) => ipv6(value).map(IpAddr::V6).map_err(|_| wrong(value, "an address")),
    }
}

/// Reads `RTA_VIA`: an address family, then an address of that family.
pub fn via(value: &[u8]) -> Result<IpAddr, Malformed> {
    address(value.get(2..).unwrap_or_default())
}

/// Longest name of a device or VRF in bytes, without the NUL behind it (`IFNAMSIZ` - 1).
const LONGEST_NAME: usize = 15;

/// Reads the name of a device or VRF, which may end with a NUL. Only printable ASCII without spaces is accepted, so
/// that the name can be shown unchanged.
pub fn name(value: &[u8]) -> Result<String, Malformed> {
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_name = text.len() <= LONGEST_NAME && text.iter().all(u8::is_ascii_graphic);
    let text = std::str::from_utf8(text).ok().filter(|_| is_name);
    text.map(str::to_owned).ok_or_else(|| wrong(value, "the name of a device"))
}

fn wrong(value: &[u8], wanted: &str) -> Malformed {
    Malformed(format!("an attribute of {} bytes where {wanted} belong", value.len()))
}
