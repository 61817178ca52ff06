//! Topologies of any size: `srv6d lab topology --leaves N --spines M --hosts K`.
//!
//! Hosts, uSIDs and addresses continue those of the built-in fabric. Each host steers to each host behind another leaf,
//! and spreads these paths over the spines: the path from host `i` to host `j` takes spine `(i + j) mod M`.

use std::fmt::Write as _;

use clap::Args;

use super::error::LabError;

/// Largest number of nodes.
const MOST_NODES: u32 = 256;
/// uSIDs of the first spine and the first leaf.
const SPINES: u32 = 0x1000;
const LEAVES: u32 = 0x1400;

/// Size of a generated topology.
#[derive(Clone, Copy, Debug, Args)]
pub struct Size {
    /// Number of leaves
    #[arg(long, value_name = "N", requires = "spines", conflicts_with = "routing",
          value_parser = clap::value_parser!(u32).range(1..=128))]
    leaves: Option<u32>,
    /// Number of spines; every leaf has a link to every spine
    #[arg(long, value_name = "M", requires = "leaves", value_parser = clap::value_parser!(u32).range(1..=64))]
    spines: Option<u32>,
    /// Number of hosts at each leaf
    #[arg(long, value_name = "K", default_value_t = 1, requires = "leaves",
          value_parser = clap::value_parser!(u32).range(1..=32))]
    hosts: u32,
    /// Each host has a path over every spine to each other host, and probes them: dead ones are left out
    #[arg(long, requires = "leaves")]
    probes: bool,
}

/// Numbers of leaves, of spines, and of hosts at each leaf.
#[derive(Clone, Copy, Debug)]
struct Fabric {
    leaves: u32,
    spines: u32,
    hosts: u32,
    probes: bool,
}

impl Size {
    /// Returns the text of the topology file. `None`: no size is given.
    ///
    /// # Errors
    /// There are too many nodes for one machine.
    pub fn topology(self) -> Result<Option<String>, LabError> {
        let Some((leaves, spines)) = self.leaves.zip(self.spines) else { return Ok(None) };
        let count = leaves + spines + leaves * self.hosts;
        if count > MOST_NODES {
            return Err(LabError::Invalid(format!(
                "{leaves} leaves, {spines} spines and {} hosts are {count} nodes\nfix: choose at most {MOST_NODES} nodes",
                leaves * self.hosts
            )));
        }
        Ok(Some(Fabric { leaves, spines, hosts: self.hosts, probes: self.probes }.text()))
    }
}

// Writing into a String cannot fail, so the result is ignored by `let _`.

impl Fabric {
    fn text(self) -> String {
        let Self { leaves, spines, hosts, probes } = self;
        let all = leaves * hosts;
        let (option, key) = if probes { (" --probes", "probes = true\n") } else { ("", "") };
        let mut text = format!(
            "# {leaves} leaves, {spines} spines, {all} hosts: srv6d lab topology --leaves {leaves} --spines {spines} --hosts \
             {hosts}{option}\n\nname = \"fabric{leaves}x{spines}\"\nblock = \"fcbb::/32\"\nhost_prefixes = \
             [\"fcbb:0:800::/48\"]\nmtu = 1500\n{key}\n"
        );
        (0..all).for_each(|host| self.host(&mut text, host));
        (0..leaves).for_each(|leaf| switch(&mut text, "leaf", leaf, LEAVES + leaf));
        (0..spines).for_each(|spine| switch(&mut text, "spine", spine, SPINES + spine));
        (0..all).for_each(|host| self.host_link(&mut text, host));
        for (leaf, spine) in (0..leaves).flat_map(|leaf| (0..spines).map(move |spine| (leaf, spine))) {
            let subnet = format!("2001:db8:{leaf:x}:{spine:x}::");
            let _ = writeln!(
                text,
                "[[link]]\nends = [\n    {{ node = \"leaf{leaf:02}\", port = \"eth{}\", addresses = [\"{subnet}1/64\"] }},\n    \
                 {{ node = \"spine{spine:02}\", port = \"eth{}\", addresses = [\"{subnet}2/64\"] }},\n]\n",
                spine + 1,
                leaf + 1
            );
        }
        text
    }

    const fn leaf_of(self, host: u32) -> u32 {
        host / self.hosts
    }

    fn host(self, text: &mut String, host: u32) {
        let own = LEAVES + self.leaf_of(host);
        let _ = writeln!(
            text,
            "[[node]]\nname = \"host{host:02}\"\nrole = \"host\"\nsource = \"fcbb:0:800:{host:x}::2\"\nsteer = ["
        );
        for to in (0..self.leaves * self.hosts).filter(|to| self.leaf_of(*to) != self.leaf_of(host)) {
            let leaf = LEAVES + self.leaf_of(to);
            let carrier = |spine: u32, function| format!("fcbb:0:{own:x}:{:x}:{leaf:x}:{function}::", SPINES + spine);
            for (prefix, family, function) in
                [(format!("fcbb:0:800:{to:x}::/64"), "v6", "fe06"), (format!("10.200.{to}.0/24"), "v4", "fe04")]
            {
                let name = format!("host{to:02}-{family}");
                let path = |name: String, spine| {
                    format!("{{ name = \"{name}\", segments = [\"{}\"] }}", carrier(spine, function))
                };
                let paths: Vec<String> = if self.probes {
                    (0..self.spines).map(|spine| path(format!("{name}-spine{spine:02}"), spine)).collect()
                } else {
                    vec![path(name, (host + to) % self.spines)]
                };
                let _ = writeln!(text, "    {{ prefix = \"{prefix}\", paths = [{}] }},", paths.join(", "));
            }
        }
        text.push_str("]\n\n");
    }

    fn host_link(self, text: &mut String, host: u32) {
        let (leaf, subnet) = (self.leaf_of(host), format!("fcbb:0:800:{host:x}::"));
        let port = self.spines + 1 + host % self.hosts;
        let carriers = LEAVES + leaf;
        let _ = writeln!(
            text,
            "[[link]]\nends = [\n    {{ node = \"host{host:02}\", port = \"eth1\", addresses = [\"{subnet}2/64\", \
             \"10.200.{host}.2/24\"] }},\n    {{ node = \"leaf{leaf:02}\", port = \"eth{port}\", addresses = \
             [\"{subnet}1/64\", \"10.200.{host}.1/24\"], role = \"host\", allowed_carriers = \
             [\"fcbb:0:{carriers:x}::/48\"] }},\n]\n"
        );
    }
}

/// Writes a leaf or a spine. Leaves decapsulate.
fn switch(text: &mut String, role: &str, number: u32, usid: u32) {
    let _ = writeln!(
        text,
        "[[node]]\nname = \"{role}{number:02}\"\nrole = \"{role}\"\nsource = \"fcbb:0:{usid:x}::1\"\naddresses = \
         [\"fcbb:0:{usid:x}::1/128\"]\nsids = [\n    {{ sid = \"fcbb:0:{usid:x}::/48\", behavior = \"uN\" }},"
    );
    for (function, behavior) in [("fe06", "uDT6"), ("fe04", "uDT4")].into_iter().filter(|_| role == "leaf") {
        let _ = writeln!(text, "    {{ sid = \"fcbb:0:{usid:x}:{function}::/64\", behavior = \"{behavior}\" }},");
    }
    text.push_str("]\n\n");
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test may panic")]
mod tests {
    use super::*;
    use crate::topology::{Role, Topology};

    #[test]
    fn every_size_is_a_topology() {
        for (leaves, spines, hosts) in [(1, 1, 1), (2, 3, 2), (4, 4, 8), (64, 64, 1), (12, 4, 6)] {
            let size = Size { leaves: Some(leaves), spines: Some(spines), hosts, probes: hosts > 1 };
            let topology = Topology::parse(&size.topology().unwrap().unwrap(), "generated").unwrap();
            assert_eq!(topology.tier(Role::Host).count(), (leaves * hosts) as usize);
            assert_eq!(topology.links().count(), (leaves * spines + leaves * hosts) as usize);
            let first = topology.node("host00").unwrap();
            assert_eq!(first.steer.len(), (2 * (leaves - 1) * hosts) as usize);
        }
    }

    #[test]
    fn paths_use_all_spines_alike() {
        let text = Size { leaves: Some(4), spines: Some(4), hosts: 4, probes: false }.topology().unwrap().unwrap();
        let of_spine = |spine: u32| text.matches(&format!(":{:x}:14", SPINES + spine)).count();
        assert_eq!([0, 1, 2, 3].map(of_spine), [of_spine(0); 4]);
    }

    #[test]
    fn too_many_nodes_are_refused() {
        let refused =
            Size { leaves: Some(128), spines: Some(64), hosts: 1, probes: false }.topology().unwrap_err().to_string();
        assert!(refused.contains("are 320 nodes") && refused.contains("fix: choose at most 256 nodes"), "{refused}");
    }
}
