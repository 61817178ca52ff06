//! Reads `encap` of routes and next hops: seg6 and seg6local. Other types are only named in the error.

use std::net::{IpAddr, Ipv6Addr};

use srv6d_addresses::TableId;

use crate::attribute::{Attributes, address, byte_at, u32_at};
use crate::entry::{KernelEncap, KernelSid, KernelSidAction};
use crate::seg6::flavors::{self, NEXT_CSID, PSP, USD, USP};
use crate::seg6::local::{ACTION, COUNTERS, FLAVORS, NH4, NH6, OIF, TABLE, VRFTABLE};
use crate::seg6::tunnel::{MODE_ENCAP, MODE_ENCAP_RED, MODE_INLINE, SOURCE, SRH};
use crate::seg6::{SEG6, SEG6_LOCAL};

/// Names of encapsulation types (`LWTUNNEL_ENCAP_*` in `linux/lwtunnel.h`), indexed by number.
const TYPES: [&str; 11] = ["none", "mpls", "ip", "ila", "ip6", "seg6", "bpf", "seg6local", "rpl", "ioam6", "xfrm"];
/// Flag of an SRH with an HMAC: `SR6_FLAG1_HMAC` (`linux/seg6.h`).
const HMAC: u8 = 1 << 3;

/// Attributes of seg6local that srv6d does not support, with the names that `ip route` gives them.
const UNFOLLOWED: [(u16, &str); 3] = [(2, "srh"), (6, "iif"), (8, "endpoint (bpf)")];
/// Encapsulation or SID behaviour that a route or next hop applies to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Encap {
    Seg6(KernelEncap),
    Seg6Local(KernelSid),
}

/// Reads an encapsulation. Returns `None` if there is none; an error names what srv6d does not support.
pub(crate) fn encap(kind: u16, value: &[u8]) -> Result<Option<Encap>, String> {
    match kind {
        0 => Ok(None),
        SEG6 => seg6(value).map(|encap| Some(Encap::Seg6(encap))),
        SEG6_LOCAL => seg6_local(value).map(|sid| Some(Encap::Seg6Local(sid))),
        other => match TYPES.get(usize::from(other)) {
            Some(name) => Err(format!("its encapsulation is {name}")),
            None => Err(format!("its encapsulation is of type {other}")),
        },
    }
}

fn seg6(value: &[u8]) -> Result<KernelEncap, String> {
    let mut source = None;
    let mut found = None;
    for (kind, value) in Attributes(value) {
        match (kind, address(value)) {
            (SRH, _) => found = Some(srh(value)?),
            (SOURCE, Some(IpAddr::V6(address))) => source = Some(address),
            _ => {}
        }
    }
    let (reduced, segments) = found.ok_or("it has no segments")?;
    Ok(KernelEncap { reduced, segments, source })
}

/// Reads the SRH of `encap seg6`. Returns whether the mode is `encap.red`, and the segments in the order they are
/// visited.
///
/// ```text
///  0      4                                                    12
/// ┌──────┬─────┬─────┬──────┬──────┬────────────┬───────┬─────┬───────────────────────────
/// │ mode │ next│ len │ type │ left │ last entry │ flags │ tag │ segments, the last one first
/// └──────┴─────┴─────┴──────┴──────┴────────────┴───────┴─────┴───────────────────────────
/// ```
fn srh(value: &[u8]) -> Result<(bool, Vec<Ipv6Addr>), String> {
    let unreadable = || "its SRH cannot be read".to_owned();
    let reduced = match u32_at(value, 0).ok_or_else(unreadable)? {
        MODE_ENCAP => false,
        MODE_ENCAP_RED => true,
        MODE_INLINE => return Err("seg6 mode inline".to_owned()),
        other => return Err(format!("seg6 mode {other}, a layer-2 or unknown one")),
    };
    let (last, flags) = byte_at(value, 8).zip(byte_at(value, 9)).ok_or_else(unreadable)?;
    if flags & HMAC != 0 {
        return Err("its SRH has an HMAC".to_owned());
    }
    let listed = value.get(12..12 + 16 * (usize::from(last) + 1)).ok_or_else(unreadable)?;
    let (segments, _) = listed.as_chunks::<16>();
    Ok((reduced, segments.iter().rev().map(|bytes| Ipv6Addr::from(*bytes)).collect()))
}

fn seg6_local(value: &[u8]) -> Result<KernelSid, String> {
    let mut read = ReadSid::default();
    Attributes(value).try_for_each(|(kind, value)| read.take(kind, value))?;
    read.finish()
}

#[derive(Default)]
struct ReadSid {
    action: Option<u32>,
    table: Option<u32>,
    via: Option<IpAddr>,
    device: Option<u32>,
    operation: u32,
    block_bits: Option<u8>,
    node_function_bits: Option<u8>,
}

impl ReadSid {
    fn take(&mut self, kind: u16, value: &[u8]) -> Result<(), String> {
        match kind {
            ACTION => self.action = u32_at(value, 0),
            TABLE | VRFTABLE => self.table = u32_at(value, 0),
            NH4 | NH6 => self.via = address(value),
            OIF => self.device = u32_at(value, 0),
            COUNTERS => {}
            FLAVORS => return Attributes(value).try_for_each(|(kind, value)| self.flavor(kind, value)),
            other => {
                let name = UNFOLLOWED.iter().find(|(kind, _)| *kind == other);
                let unknown = || format!("attribute {other}");
                return Err(format!("seg6local with {}", name.map_or_else(unknown, |(_, name)| (*name).to_owned())));
            }
        }
        Ok(())
    }

    fn flavor(&mut self, kind: u16, value: &[u8]) -> Result<(), String> {
        match kind {
            flavors::OPERATION => self.operation = u32_at(value, 0).unwrap_or_default(),
            flavors::BLOCK_BITS => self.block_bits = byte_at(value, 0),
            flavors::NODE_FUNCTION_BITS => self.node_function_bits = byte_at(value, 0),
            other => return Err(format!("an unknown flavor attribute {other}")),
        }
        Ok(())
    }

    fn finish(self) -> Result<KernelSid, String> {
        let table = TableId(self.table.unwrap_or(TableId::MAIN.0));
        let number = self.action.ok_or("seg6local without an action")?;
        let action = KernelSidAction::numbered(number, table)?;
        let known = PSP | USP | USD | NEXT_CSID;
        if self.operation & !known != 0 {
            return Err(format!("flavors {:#x}", self.operation & !known));
        }
        let csid = (self.operation & NEXT_CSID != 0).then(|| {
            let block = self.block_bits.unwrap_or(flavors::DEFAULT_BLOCK_BITS);
            (block, self.node_function_bits.unwrap_or(flavors::DEFAULT_NODE_FUNCTION_BITS))
        });
        let has = |bit| self.operation & bit != 0;
        Ok(KernelSid { action, via: self.via, device: self.device, csid, psp: has(PSP), usp: has(USP), usd: has(USD) })
    }
}
