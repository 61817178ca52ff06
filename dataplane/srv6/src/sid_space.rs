//! The SID space: destinations that nodes of the SRv6 domain process, and that edge and host ports may not send to
//! (RFC 8754 section 5.1).

use std::collections::HashSet;

use ipnet::Ipv6Net;
use srv6d_wire::ipv6;

use crate::desired::Desired;
use crate::tables::PathEntry;

/// Length of the locator of a carrier that lies in no block: block and first uSID of an F3216 carrier.
pub const LOCATOR_BITS: u8 = 48;
const BEHIND_LOCATOR: u8 = 128 - LOCATOR_BITS;

/// The blocks without the subnets of hosts in them, and the locators of steered paths outside of every block.
///
/// The SIDs of this node are not included, because they have their own entries in the prefix tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct SidSpace {
    blocks: Vec<Ipv6Net>,
    hosts: Vec<Ipv6Net>,
    /// Upper 48 bits of the locators. A locator stays until the tables are built anew.
    locators: HashSet<u64>,
}

impl SidSpace {
    pub(crate) fn of(desired: &Desired) -> Self {
        let blocks = desired.blocks.iter().map(|block| block.prefix).collect();
        Self { blocks, hosts: desired.host_prefixes.clone(), locators: HashSet::new() }
    }

    /// Adds the segments of a path.
    pub(crate) fn add(&mut self, path: &PathEntry) {
        let listed = (ipv6::LEN + 8..path.header_len).step_by(16);
        for offset in listed.chain([ipv6::DESTINATION]) {
            let segment =
                path.header.get(offset..).and_then(<[u8]>::first_chunk).map(|bytes| u128::from_be_bytes(*bytes));
            if let Some(segment) = segment.filter(|&segment| segment != 0 && !self.in_block(segment)) {
                self.locators.insert(locator(segment));
            }
        }
    }

    #[inline]
    pub(crate) fn contains(&self, address: u128) -> bool {
        if self.in_block(address) {
            return !self.hosts.iter().any(|prefix| contains(prefix, address));
        }
        !self.locators.is_empty() && self.locators.contains(&locator(address))
    }

    /// Returns networks and lengths of the SID space.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = (u128, u8)> {
        let blocks = self.blocks.iter().map(|block| (block.network().to_bits(), block.prefix_len()));
        blocks.chain(self.locators.iter().map(|&locator| (u128::from(locator) << BEHIND_LOCATOR, LOCATOR_BITS)))
    }

    #[inline]
    fn in_block(&self, address: u128) -> bool {
        self.blocks.iter().any(|block| contains(block, address))
    }
}

#[inline]
fn contains(prefix: &Ipv6Net, address: u128) -> bool {
    prefix.contains(&std::net::Ipv6Addr::from_bits(address))
}

const fn locator(address: u128) -> u64 {
    (address >> BEHIND_LOCATOR) as u64
}
