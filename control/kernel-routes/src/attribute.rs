//! Reads attributes of netlink messages.
//!
//! ```text
//!  0        2        4
//! ┌────────┬────────┬──────────────┬─────┐
//! │ length │  kind  │    value     │ pad │   length counts the four bytes of its head, the next one begins at a
//! └────────┴────────┴──────────────┴─────┘   multiple of four; numbers are in the machine's order
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const HEAD: usize = 4;
/// Flags in the type field, `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`; they describe the value and are not part of the
/// type.
const FLAGS: u16 = 0xc000;

/// Iterates over consecutive attributes. It ends where the remaining bytes do not form an attribute.
#[derive(Clone)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)? & !FLAGS;
        let value = self.0.get(HEAD..length)?;
        self.0 = self.0.get(length.next_multiple_of(HEAD)..).unwrap_or_default();
        Some((kind, value))
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

pub(crate) fn byte_at(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

/// Reads an address of four or sixteen bytes.
pub(crate) fn address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => value.first_chunk::<4>().map(|bytes| IpAddr::V4(Ipv4Addr::from(*bytes))),
        16 => value.first_chunk::<16>().map(|bytes| IpAddr::V6(Ipv6Addr::from(*bytes))),
        _ => None,
    }
}

/// Reads text that ends with a zero byte.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}

/// Returns the unspecified address of a family (`AF_INET`, `AF_INET6`).
pub(crate) fn unspecified(family: u8) -> Option<IpAddr> {
    match family {
        INET => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        INET6 => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        _ => None,
    }
}

/// Address families: `AF_INET`, `AF_INET6`.
pub(crate) const INET: u8 = 2;
pub(crate) const INET6: u8 = 10;
