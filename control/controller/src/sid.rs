//! SIDs in the form that controllers write: irregular text, several shapes, behaviours by number.

use std::fmt;
use std::net::Ipv6Addr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Behaviour of a SID, by the code points of the IANA registry "SRv6 Endpoint Behaviors" (RFC 8986, RFC 9800).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Behavior {
    /// End with NEXT-CSID: 43, and 44 to 50 with flavors.
    Un,
    /// End.X with NEXT-CSID: 52, and 53 to 59 with flavors.
    Ua,
    /// End.DT6 with NEXT-CSID: 62.
    Udt6,
    /// End.DT4 with NEXT-CSID: 63.
    Udt4,
    /// End.DT46 with NEXT-CSID: 64.
    Udt46,
    /// Any other code point.
    Other(u16),
    /// The document has no code point.
    Unknown,
}

impl Behavior {
    /// Returns the behaviour of a code point.
    pub const fn from_code(code: u16) -> Self {
        match code {
            43..=50 => Self::Un,
            52..=59 => Self::Ua,
            62 => Self::Udt6,
            63 => Self::Udt4,
            64 => Self::Udt46,
            other => Self::Other(other),
        }
    }

    /// Returns whether the SID removes the outer header of a packet with that family inside.
    pub const fn decapsulates(self, family: Family) -> bool {
        matches!((self, family), (Self::Udt46, _) | (Self::Udt6, Family::V6) | (Self::Udt4, Family::V4))
    }
}

/// Address family of the packets inside the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv6.
    V6,
    /// IPv4.
    V4,
}

impl Family {
    /// Returns the family of a prefix.
    pub const fn of(prefix: IpNet) -> Self {
        match prefix {
            IpNet::V6(_) => Self::V6,
            IpNet::V4(_) => Self::V4,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V6 => "IPv6",
            Self::V4 => "IPv4",
        })
    }
}

/// One SID of a vertex or an edge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sid {
    /// The complete address with all 128 bits.
    pub address: Ipv6Addr,
    /// Behaviour of the SID.
    pub behavior: Behavior,
    /// Flexible algorithm; 0 if the document has none.
    pub algo: u8,
    /// Whether the link of an adjacency SID may be protected, so that traffic may take another path (RFC 9352 section
    /// 8.1).
    pub backup: bool,
    /// Lengths of block and node in bits, if the document has them.
    pub structure: Option<[u8; 2]>,
}

/// Maximum number of entries of one list of SIDs that are read.
const MAX_SIDS: usize = 256;

/// Block of the F3216 format: the first 32 bits of a SID, which uSIDs of 16 bits follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub [u16; 2]);

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [high, low] = self.0;
        write!(f, "{}/32", Ipv6Addr::new(high, low, 0, 0, 0, 0, 0, 0))
    }
}

/// The uSIDs of one SID that follow its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usids {
    /// One uSID, as in `fcbb:0:1004::`.
    One(u16),
    /// A node and its function, as in `fcbb:0:1004:fe06::`.
    Two(u16, u16),
}

/// A SID that is not one of the F3216 format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SidError {
    /// There are bits set behind the second uSID.
    #[error("SID {0} has bits set behind its function")]
    BitsBehind(Ipv6Addr),
    /// The first uSID is zero, which would end a carrier.
    #[error("SID {0} has no uSID behind its block")]
    Empty(Ipv6Addr),
    /// Block and node do not have 32 and 16 bits.
    #[error("SID {sid} has {block} bits of block and {node} of node; only carriers of 32 and 16 can be composed")]
    Format {
        /// The SID.
        sid: Ipv6Addr,
        /// `locator_block_length` of the SID.
        block: u8,
        /// `locator_node_length` of the SID.
        node: u8,
    },
}

impl Sid {
    /// Splits the SID into its block and uSIDs.
    ///
    /// # Errors
    /// [`SidError`], if it is not of the F3216 format.
    pub fn split(&self) -> Result<(Block, Usids), SidError> {
        if let Some([block, node]) = self.structure.filter(|[block, node]| *block != 32 || !matches!(node, 0 | 16)) {
            return Err(SidError::Format { sid: self.address, block, node });
        }
        let [high, low, first, second, rest @ ..] = self.address.segments();
        if rest != [0; 4] {
            return Err(SidError::BitsBehind(self.address));
        }
        let usids = match (first, second) {
            (0, _) => return Err(SidError::Empty(self.address)),
            (one, 0) => Usids::One(one),
            (node, function) => Usids::Two(node, function),
        };
        Ok((Block([high, low]), usids))
    }

    /// Reads one entry of `sids` or `srv6_endx_sid`, nested or flat. Returns `None` if it is not a SID (its text does
    /// not parse).
    pub fn read(value: &Value) -> Option<Self> {
        let entry = Entry::deserialize(value).ok()?;
        let nested = entry.srv6_endpoint_behavior;
        let code = nested.as_ref().and_then(NestedOrCode::code).or(entry.endpoint_behavior);
        let algo = nested.as_ref().and_then(NestedOrCode::algo).or(entry.algo).or(entry.algorithm);
        Some(Self {
            address: entry.srv6_sid.or(entry.sid)?.parse().ok()?,
            behavior: code.map_or(Behavior::Unknown, Behavior::from_code),
            algo: algo.unwrap_or(0),
            backup: entry.flags.is_some_and(|flags| flags.get("b_flag").and_then(Value::as_bool) == Some(true)),
            structure: entry.srv6_sid_structure.iter().chain(&entry.sub_tlvs).find_map(structure),
        })
    }

    /// Reads the SIDs of a list, at most the first `MAX_SIDS` entries, and skips entries that are not SIDs.
    pub fn read_all(values: &[Value]) -> Vec<Self> {
        values.iter().take(MAX_SIDS).filter_map(Self::read).collect()
    }
}

#[derive(Deserialize)]
struct Entry {
    srv6_sid: Option<String>,
    sid: Option<String>,
    srv6_endpoint_behavior: Option<NestedOrCode>,
    endpoint_behavior: Option<u16>,
    algo: Option<u8>,
    algorithm: Option<u8>,
    flags: Option<Value>,
    srv6_sid_structure: Option<Value>,
    #[serde(default, deserialize_with = "or_none")]
    sub_tlvs: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NestedOrCode {
    Nested { endpoint_behavior: Option<u16>, algo: Option<u8> },
    Code(u16),
}

impl NestedOrCode {
    const fn code(&self) -> Option<u16> {
        match self {
            Self::Nested { endpoint_behavior, .. } => *endpoint_behavior,
            Self::Code(code) => Some(*code),
        }
    }

    const fn algo(&self) -> Option<u8> {
        match self {
            Self::Nested { algo, .. } => *algo,
            Self::Code(_) => None,
        }
    }
}

/// Reads a list, and takes `null` as an empty one.
fn or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads the lengths of block and node, from a node's SID or from sub-TLV 1252 of an adjacency.
fn structure(value: &Value) -> Option<[u8; 2]> {
    let length = |key: &str| value.get(key)?.as_u64()?.try_into().ok();
    Some([length("locator_block_length")?, length("locator_node_length")?])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use serde_json::json;

    use super::*;

    fn sid(text: &str) -> Sid {
        Sid { address: text.parse().unwrap(), behavior: Behavior::Un, algo: 0, backup: false, structure: None }
    }

    #[test]
    fn nested_flat_and_adjacency_shapes_are_read() {
        let nested = json!({"srv6_sid": "fcbb:0:1004:fe06::",
            "srv6_endpoint_behavior": {"endpoint_behavior": 62, "flag": 0, "algo": 128}});
        let read = Sid::read(&nested).unwrap();
        assert_eq!((read.behavior, read.algo), (Behavior::Udt6, 128));
        let flat = json!({"srv6_sid": "fc00:0000:0004::", "endpoint_behavior": 48, "algo": 0});
        assert_eq!(Sid::read(&flat).unwrap().behavior, Behavior::Un);
        let adjacency = json!({"algorithm": 0, "endpoint_behavior": 57, "sid": "fc00:0:32:e000::",
            "flags": {"b_flag": true, "p_flag": false, "s_flag": false}, "weight": 0});
        let read = Sid::read(&adjacency).unwrap();
        assert_eq!((read.behavior, read.backup), (Behavior::Ua, true));
        assert_eq!(Sid::read(&json!({"srv6_sid": "fc00:0:4::"})).unwrap().behavior, Behavior::Unknown);
        assert_eq!(Sid::read(&json!({"srv6_sid": "fc00:0:4:::"})), None);
        assert_eq!(Sid::read(&json!("fc00:0:4::")), None);
    }

    #[test]
    fn one_usid_or_a_node_and_its_function() {
        assert_eq!(sid("fcbb:0:1004::").split().unwrap(), (Block([0xfcbb, 0]), Usids::One(0x1004)));
        assert_eq!(sid("fcbb:0:1004:fe06::").split().unwrap().1, Usids::Two(0x1004, 0xfe06));
        assert_eq!(sid("fcbb::").split(), Err(SidError::Empty("fcbb::".parse().unwrap())));
        assert!(matches!(sid("fcbb:0:1004::1").split(), Err(SidError::BitsBehind(_))));
        let wide = json!({"srv6_sid": "fcbb:0:4::", "srv6_sid_structure": {"locator_block_length": 48,
            "locator_node_length": 16, "function_length": 0, "argument_length": 64}});
        let why = Sid::read(&wide).unwrap().split().unwrap_err().to_string();
        assert!(why.starts_with("SID fcbb:0:4:: has 48 bits of block"), "{why}");
    }
}
