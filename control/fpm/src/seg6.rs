//! Reads `RTA_ENCAP` and `NHA_ENCAP`: SRv6 in the form of the kernel and in the form of SONiC.

use std::net::{IpAddr, Ipv6Addr};

use srv6d_kernel_routes::seg6::flavors::{BLOCK_BITS, NODE_FUNCTION_BITS, OPERATION};
use srv6d_kernel_routes::seg6::local::{ACTION, COUNTERS, FLAVORS, NH4, NH6, OIF, TABLE, VRFTABLE};
use srv6d_kernel_routes::seg6::tunnel::SRH;
use srv6d_kernel_routes::seg6::{SEG6, SEG6_LOCAL};

use crate::attributes::{self, attributes};
use crate::event::{Encap, EncapMode, Malformed, Seg6Local};

/// `LWTUNNEL_ENCAP_NONE` (`linux/lwtunnel.h`), and SONiC's own encapsulation type.
const NO_ENCAP: u16 = 0;
const SONIC_STEER: u16 = 101;

/// Length of `struct ipv6_sr_hdr` in bytes, without its segments.
const SRH_FIXED: usize = 8;

/// Attributes of SONiC's encapsulation: the SID of the far end, and the source of the outer header.
const VPN_SID: u16 = 1;
const VPN_SOURCE: u16 = 2;

/// Encapsulation that is not read yet, because its type may come before or after its bytes.
#[derive(Default)]
pub struct EncapBytes<'a> {
    pub kind: Option<u16>,
    pub bytes: &'a [u8],
}

/// An encapsulation that has been read.
pub enum Read {
    None,
    Encap(Encap),
    Local(Seg6Local),
    Other(u16),
}

impl EncapBytes<'_> {
    /// Returns whether the encapsulation has the type that only SONiC uses.
    pub fn is_sonic(&self) -> bool {
        self.kind == Some(SONIC_STEER)
    }

    pub fn read(&self) -> Result<Read, Malformed> {
        Ok(match self.kind {
            None | Some(NO_ENCAP) => Read::None,
            Some(SEG6) => Read::Encap(seg6(self.bytes)?),
            Some(SEG6_LOCAL) => Read::Local(seg6_local(self.bytes)?),
            Some(SONIC_STEER) => Read::Encap(sonic(self.bytes)?),
            Some(other) => Read::Other(other),
        })
    }
}

fn seg6(bytes: &[u8]) -> Result<Encap, Malformed> {
    for attribute in attributes(bytes) {
        if let (SRH, value) = attribute? {
            return srh(value);
        }
    }
    Err(Malformed("seg6 without segments".to_owned()))
}

/// Reads the mode and the segments of `encap seg6`.
///
/// ```text
/// 0      4           5             6      7     8            9     10     12
/// | mode | next hdr  | length in 8 | type | SL  | last entry | flags| tag | segments, the last one first
/// ```
fn srh(value: &[u8]) -> Result<Encap, Malformed> {
    let no = || Malformed("a segment routing header that is cut".to_owned());
    let mode = attributes::u32(value.get(..4).ok_or_else(no)?)?;
    let header = value.get(4..).ok_or_else(no)?;
    let count = usize::from(*header.get(4).ok_or_else(no)?) + 1;
    let list = header.get(SRH_FIXED..SRH_FIXED + 16 * count).ok_or_else(no)?;
    let segment = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).ok().map(Ipv6Addr::from);
    let segments = list.chunks_exact(16).rev().filter_map(segment).collect();
    Ok(Encap { mode: EncapMode::Kernel(mode), segments, source: None })
}

fn seg6_local(bytes: &[u8]) -> Result<Seg6Local, Malformed> {
    let mut sid = Seg6Local::default();
    for attribute in attributes(bytes) {
        let (kind, value) = attribute?;
        match kind {
            ACTION => sid.action = attributes::u32(value)?,
            TABLE | VRFTABLE => sid.table = Some(attributes::u32(value)?),
            NH4 | NH6 => sid.via = Some(attributes::address(value)?),
            OIF => sid.device = Some(attributes::u32(value)?),
            FLAVORS => flavors(value, &mut sid)?,
            COUNTERS => {}
            other => note(&mut sid.more, other),
        }
    }
    Ok(sid)
}

/// Remembers the type of an unsupported attribute; the first one is enough to refuse the SID.
fn note(more: &mut Vec<u16>, kind: u16) {
    if more.is_empty() {
        more.push(kind);
    }
}

fn flavors(bytes: &[u8], sid: &mut Seg6Local) -> Result<(), Malformed> {
    for attribute in attributes(bytes) {
        match attribute? {
            (OPERATION, value) => sid.flavors = attributes::u32(value)?,
            (BLOCK_BITS, value) => sid.block = Some(attributes::u8(value)?),
            (NODE_FUNCTION_BITS, value) => sid.node_function = Some(attributes::u8(value)?),
            (other, _) => note(&mut sid.more, other),
        }
    }
    Ok(())
}

fn sonic(bytes: &[u8]) -> Result<Encap, Malformed> {
    let mut encap = Encap { mode: EncapMode::Sonic, segments: Vec::new(), source: None };
    for attribute in attributes(bytes) {
        match attribute? {
            (VPN_SID, value) => encap.segments.push(attributes::ipv6(value)?),
            (VPN_SOURCE, value) => encap.source = Some(attributes::ipv6(value)?).filter(|s| !s.is_unspecified()),
            // The PIC context and its next hop repeat the same information in another form.
            _ => {}
        }
    }
    if encap.segments.is_empty() { Err(Malformed("an SRv6 route without a SID".to_owned())) } else { Ok(encap) }
}

/// Returns the address unless it is `::` or `0.0.0.0`, which stand for "no address".
pub fn some(address: IpAddr) -> Option<IpAddr> {
    Some(address).filter(|address| !address.is_unspecified())
}
