//! Maps `EthernetN` to wires and lanes if no `PORT` row says more.
//!
//! Wires of a node are numbered from 1, its ports in steps of four (one number per lane of a 40G port): `eth1` is
//! `Ethernet0`, `eth2` is `Ethernet4`, and so on.

/// First lane of each port of a Force10-S6000, which has four lanes per port. A virtual switch without another SKU has
/// this one.
const FIRST_LANES: [u32; 32] = [
    25, 29, 33, 37, 45, 41, 1, 5, 13, 9, 17, 21, 53, 49, 57, 61, 69, 65, 73, 77, 109, 105, 113, 117, 125, 121, 81, 85,
    93, 89, 101, 97,
];

/// Length of the longest interface name in bytes (`IFNAMSIZ` of the kernel, without the final zero).
const LONGEST_NAME: usize = 15;

/// Number of lanes of a port.
pub(crate) const LANES: u32 = 4;

/// Speed of a port in Mb/s.
pub(crate) const SPEED: u32 = 40_000;

/// Returns the port of a wire: `eth2` is `Ethernet4`. `None` for `eth0`, the management port, and for names that are no
/// wire.
pub fn port_of_wire(wire: &str) -> Option<String> {
    let number = number_behind("eth", wire)?.checked_sub(1)?;
    Some(format!("Ethernet{}", number.checked_mul(LANES)?)).filter(|name| name.len() <= LONGEST_NAME)
}

/// Returns the wire of a port: `Ethernet4` is `eth2`. `None` for a number between two ports.
pub fn wire_of_port(port: &str) -> Option<String> {
    wire(port, LANES)
}

/// Returns the wire of a port, if the numbers of neighbouring ports differ by `step`.
pub(crate) fn wire(port: &str, step: u32) -> Option<String> {
    let number = number_behind("Ethernet", port)?;
    number.is_multiple_of(step).then(|| format!("eth{}", u64::from(number / step) + 1))
}

/// Returns the lanes of a port of the default SKU. The list is empty for a port that the SKU does not have.
pub fn lanes_of_port(port: &str) -> Vec<u32> {
    let index = number_behind("Ethernet", port).filter(|number| number.is_multiple_of(LANES)).map(|n| n / LANES);
    let first = index.and_then(|index| FIRST_LANES.get(index as usize));
    first.map(|&first| (first..first + LANES).collect()).unwrap_or_default()
}

/// Returns the number at the end of an interface's name. It must be written without leading zeros.
pub(crate) fn number_behind(word: &str, name: &str) -> Option<u32> {
    let digits = name.strip_prefix(word).filter(|_| name.len() <= LONGEST_NAME)?;
    let canonical = digits.len() == 1 || !digits.starts_with('0');
    (canonical && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn wires_count_from_one_and_ports_in_fours() {
        for (wire, port) in [("eth1", "Ethernet0"), ("eth2", "Ethernet4"), ("eth32", "Ethernet124")] {
            assert_eq!(port_of_wire(wire).unwrap(), port);
            assert_eq!(wire_of_port(port).unwrap(), wire);
        }
        for wire in ["eth0", "eth", "eth01", "eth+1", "lo", "Ethernet0", "eth4294967295"] {
            assert_eq!(port_of_wire(wire), None, "{wire}");
        }
        for port in ["Ethernet2", "Ethernet", "Ethernet04", "PortChannel4", "Ethernet40000000"] {
            assert_eq!(wire_of_port(port), None, "{port}");
        }
    }

    #[test]
    fn lanes_are_those_of_the_default_sku_each_once() {
        assert_eq!(lanes_of_port("Ethernet0"), [25, 26, 27, 28]);
        assert_eq!(lanes_of_port("Ethernet16"), [45, 46, 47, 48]);
        assert_eq!(lanes_of_port("Ethernet124"), [97, 98, 99, 100]);
        assert!(lanes_of_port("Ethernet128").is_empty());
        let mut all: Vec<u32> = (0..32).flat_map(|n| lanes_of_port(&format!("Ethernet{}", n * 4))).collect();
        all.sort_unstable();
        assert_eq!(all, (1..=128).collect::<Vec<_>>());
    }
}
