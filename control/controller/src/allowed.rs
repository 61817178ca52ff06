//! Limits on what a controller may decide: which prefixes it steers, and over which carriers.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

/// Shortest prefixes that a controller may steer without a list. A larger part of the address space cannot be a host
/// subnet.
const SHORTEST_V6: u8 = 32;
const SHORTEST_V4: u8 = 16;

/// Limits for the answers of one controller. The default lets it steer ordinary subnets, over carriers of any block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Prefixes that contain everything the controller may steer. If empty, it may steer every prefix that is not
    /// shorter than /32 (IPv6) or /16 (IPv4).
    pub prefixes: Vec<IpNet>,
    /// Blocks that contain all carriers. If empty, the blocks are not known and any carrier is allowed.
    pub blocks: Vec<Ipv6Net>,
}

impl Allowed {
    /// Checks that a prefix may be steered; `controller` is the address of the controller itself.
    ///
    /// # Errors
    /// The reason why it may not be steered, and which setting would allow it.
    pub fn prefix(&self, prefix: IpNet, controller: Option<IpAddr>) -> Result<(), String> {
        self.size(prefix)?;
        match controller.filter(|address| prefix.contains(address)) {
            None => Ok(()),
            Some(address) => Err(format!("{prefix} is not steered: the controller itself, {address}, lies in it")),
        }
    }

    /// Checks that a prefix lies in the list or, without a list, that it is not too short.
    fn size(&self, prefix: IpNet) -> Result<(), String> {
        if !self.prefixes.is_empty() {
            let is_listed = self.prefixes.iter().any(|allowed| allowed.contains(&prefix));
            let refused = || format!("{prefix} is not steered: it lies in none of `allowed_prefixes`");
            return is_listed.then_some(()).ok_or_else(refused);
        }
        let shortest = if matches!(prefix, IpNet::V6(_)) { SHORTEST_V6 } else { SHORTEST_V4 };
        if prefix.prefix_len() < shortest {
            let what = format!("{prefix} is not steered: it is shorter than /{shortest}");
            return Err(format!("{what}; list it in `allowed_prefixes` if the controller may decide on all of it"));
        }
        Ok(())
    }

    /// Checks that packets may be sent to these segments.
    ///
    /// # Errors
    /// A text that names the first segment outside of all blocks.
    pub fn segments(&self, segments: &[Ipv6Addr]) -> Result<(), String> {
        let is_outside = |segment: &&Ipv6Addr| !self.blocks.iter().any(|block| block.contains(*segment));
        match segments.iter().find(is_outside).filter(|_| !self.blocks.is_empty()) {
            None => Ok(()),
            Some(segment) => Err(format!("carrier {segment} lies in no [[block]] of this node")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn without_a_list_no_large_part_of_the_address_space_is_steered() {
        let allowed = Allowed::default();
        let is_allowed = |text: &str| allowed.prefix(text.parse().unwrap(), None).is_ok();
        for text in ["::/0", "0.0.0.0/0", "::/1", "2000::/3", "fc00::/7", "fcbb::/31", "10.0.0.0/8", "128.0.0.0/1"] {
            assert!(!is_allowed(text), "{text}");
        }
        for text in ["2001:db8::/32", "fcbb:0:800:2::/64", "2001:db8::1/128", "10.200.0.0/16", "192.0.2.7/32"] {
            assert!(is_allowed(text), "{text}");
        }
    }

    #[test]
    fn a_list_is_all_that_is_steered() {
        let allowed = Allowed { prefixes: nets(&["2001:db8::/40", "0.0.0.0/0"]), ..Allowed::default() };
        let is_allowed = |text: &str| allowed.prefix(text.parse().unwrap(), None).is_ok();
        assert!(is_allowed("2001:db8:1::/48") && is_allowed("2001:db8::/40") && is_allowed("0.0.0.0/0"));
        assert!(!is_allowed("2001:db8::/32") && !is_allowed("2001:db9::/48"));
    }

    #[test]
    fn the_controllers_own_address_is_never_steered() {
        let allowed = Allowed { prefixes: nets(&["::/0"]), ..Allowed::default() };
        let controller = Some("2001:db8:5::1".parse().unwrap());
        let why = allowed.prefix("2001:db8:5::/64".parse().unwrap(), controller).unwrap_err();
        assert_eq!(why, "2001:db8:5::/64 is not steered: the controller itself, 2001:db8:5::1, lies in it");
        assert!(allowed.prefix("2001:db8:6::/64".parse().unwrap(), controller).is_ok());
    }

    #[test]
    fn every_segment_lies_in_a_block() {
        let blocks = vec!["fcbb::/32".parse().unwrap(), "fc00:1::/32".parse().unwrap()];
        let allowed = Allowed { blocks, ..Allowed::default() };
        let check = |texts: &[&str]| {
            let segments: Vec<Ipv6Addr> = texts.iter().map(|text| text.parse().unwrap()).collect();
            allowed.segments(&segments)
        };
        assert_eq!(check(&["fcbb:0:1:fe06::", "fc00:1:2::"]), Ok(()));
        assert_eq!(
            check(&["fcbb:0:1::", "2001:db8::1"]).unwrap_err(),
            "carrier 2001:db8::1 lies in no [[block]] of this node"
        );
    }
}
