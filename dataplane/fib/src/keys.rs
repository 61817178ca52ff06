//! Keys of the prefixes in the maps of the XDP program. Such keys are compared byte by byte.

use crate::declare::{constants, rows};
use crate::limits::{DEVICES, TABLES};

constants! {
    /// Bit of a key's owner that names the generation.
    pub const KEY_SET_BIT: u32 = 0;
    /// Bit of a key's owner that is set for IPv4.
    pub const KEY_V4_BIT: u32 = 1;
    /// First bit of the number of the table, or of whoever has the sources, in a key's owner.
    pub const KEY_NUMBER_BIT: u32 = 2;

    /// First bit of the number of the device in the key of a VLAN. The generation is bit 0.
    pub const VLAN_DEVICE_BIT: u32 = 1;
    /// First bit of the VLAN ID in the key of a VLAN.
    pub const VLAN_ID_BIT: u32 = 16;

    /// Number that sources have which may use SIDs. The ports, and then the tables, come behind it.
    pub const OF_DOMAIN: u16 = 0;
    /// Number of the sources that may send through port 0.
    pub const OF_PORTS: u16 = 1;
    /// Number of the sources of this node that no sender outside the domain has, in table 0.
    pub const OF_TABLES: u16 = 4097;
    /// Number of the destinations in SID space that may enter through port 0, which guards SIDs.
    pub const OF_CARRIERS: u16 = 4353;
}

const _: () = assert!(OF_TABLES as u32 == OF_PORTS as u32 + DEVICES, "tables come behind ports");
const _: () = assert!(OF_CARRIERS as u32 == OF_TABLES as u32 + TABLES, "carriers come behind tables");

rows! {
    /// A key of a prefix map: the owner of the prefix, and its address.
    pub struct KeyRow(key, 24 bytes) {
        /// Number of bits that are compared, including the 32 of `owner`.
        pub prefix_len: u32,
        /// Number, family and generation: `KEY_..._BIT`.
        pub owner: u32,
        /// Upper half of the address, big-endian. An IPv4 address is in its first four bytes.
        pub high: u64,
        /// Lower half, big-endian.
        pub low: u64,
    }
}

impl KeyRow {
    /// Returns the key of a prefix: network, and length in bits.
    pub fn new(owner: u32, (network, len): (u128, u8)) -> Self {
        let halves = [(network >> 64), network & u128::from(u64::MAX)];
        let [high, low] = halves.map(|half| u64::try_from(half).unwrap_or(0).to_be());
        Self { prefix_len: 32 + u32::from(len), owner, high, low }
    }
}

/// Returns the owner that stands in front of an address in a key: the table of a prefix, or the port or table of a
/// source prefix.
pub fn key_owner(set: usize, number: u16, is_v4: bool) -> u32 {
    u32::from(number) << KEY_NUMBER_BIT | u32::from(is_v4) << KEY_V4_BIT | u32::from(set == 1) << KEY_SET_BIT
}

/// Returns the key of a VLAN of a device.
pub fn vlan_key(set: usize, device: u16, vid: u16) -> u32 {
    u32::from(vid) << VLAN_ID_BIT | u32::from(device) << VLAN_DEVICE_BIT | u32::from(set == 1) << KEY_SET_BIT
}

/// Returns the number of the sources that may send through a port.
pub fn of_port(port: u16) -> u16 {
    port.saturating_add(OF_PORTS)
}

/// Returns the number of the sources that no sender outside the domain has, in a table.
pub fn of_table(table: u16) -> u16 {
    table.saturating_add(OF_TABLES)
}

/// Returns the number of the destinations that may enter through a port that guards SIDs.
pub fn of_carriers(port: u16) -> u16 {
    port.saturating_add(OF_CARRIERS)
}

pub(crate) fn declarations() -> String {
    let mut text = String::new();
    constant_declarations(&mut text);
    row_declarations(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes as _;

    use super::*;

    #[test]
    fn an_address_stands_in_a_key_as_in_a_packet() {
        let key = KeyRow::new(key_owner(1, of_port(2), true), (0x0a01_0203 << 96, 32));
        let bytes = [&64_u32.to_ne_bytes()[..], &0b1111_u32.to_ne_bytes(), &[10, 1, 2, 3], &[0; 12]].concat();
        assert_eq!(key.as_bytes(), bytes);
        assert_eq!([of_port(4095) + 1, of_table(255) + 1], [of_table(0), of_carriers(0)]);
    }
}
