//! The shape of the fabric: which ports there are, and which port a packet takes next.
//!
//! ```text
//! host ─ HostUp ─► leaf ─ LeafUp ─► spine ─ SpineDown ─► leaf ─ HostDown ─► host
//! ```

/// Numbers of leaves, of spines, and of hosts at each leaf. Every leaf has a link to every spine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub leaves: u32,
    pub spines: u32,
    pub hosts: u32,
}

/// The place of a port: the node that sends by it, and the node that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    HostUp { host: u32 },
    LeafUp { leaf: u32, spine: u32 },
    SpineDown { spine: u32, leaf: u32 },
    HostDown { host: u32 },
}

impl Shape {
    /// Number of hosts.
    pub const fn host_count(self) -> u32 {
        self.leaves * self.hosts
    }

    /// Number of links between leaves and spines, each direction counted once.
    pub const fn link_count(self) -> u32 {
        2 * self.pairs()
    }

    /// Number of pairs of a leaf and a spine.
    pub const fn pairs(self) -> u32 {
        self.leaves * self.spines
    }

    /// Number of ports.
    pub const fn port_count(self) -> u32 {
        self.link_count() + 2 * self.host_count()
    }

    /// Number of the pair of a leaf and a spine.
    pub const fn pair(self, leaf: u32, spine: u32) -> u32 {
        leaf * self.spines + spine
    }

    /// Returns the leaf of a host.
    pub const fn leaf_of(self, host: u32) -> u32 {
        host / self.hosts
    }

    /// Returns the port of a place. Links between switches come first.
    pub const fn port(self, place: Place) -> u32 {
        match place {
            Place::LeafUp { leaf, spine } => self.pair(leaf, spine),
            Place::SpineDown { spine, leaf } => self.pairs() + self.pair(leaf, spine),
            Place::HostUp { host } => self.link_count() + host,
            Place::HostDown { host } => self.link_count() + self.host_count() + host,
        }
    }

    /// Returns the place of a port.
    pub const fn place(self, port: u32) -> Place {
        if port < self.pairs() {
            return Place::LeafUp { leaf: port / self.spines, spine: port % self.spines };
        }
        if port < self.link_count() {
            let pair = port - self.pairs();
            return Place::SpineDown { spine: pair % self.spines, leaf: pair / self.spines };
        }
        let host = port - self.link_count();
        if host < self.host_count() {
            Place::HostUp { host }
        } else {
            Place::HostDown { host: host - self.host_count() }
        }
    }

    /// Returns the port at the other end of a port's link.
    pub const fn other_end(self, port: u32) -> u32 {
        self.port(match self.place(port) {
            Place::LeafUp { leaf, spine } => Place::SpineDown { spine, leaf },
            Place::SpineDown { spine, leaf } => Place::LeafUp { leaf, spine },
            Place::HostUp { host } => Place::HostDown { host },
            Place::HostDown { host } => Place::HostUp { host },
        })
    }

    /// Returns the name of a port.
    pub fn name(self, port: u32) -> String {
        match self.place(port) {
            Place::HostUp { host } => format!("host{host}-leaf{}", self.leaf_of(host)),
            Place::LeafUp { leaf, spine } => format!("leaf{leaf}-spine{spine}"),
            Place::SpineDown { spine, leaf } => format!("spine{spine}-leaf{leaf}"),
            Place::HostDown { host } => format!("leaf{}-host{host}", self.leaf_of(host)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_one_place_and_a_place_one_port() {
        let shape = Shape { leaves: 3, spines: 2, hosts: 5 };
        assert_eq!((shape.port_count(), shape.link_count(), shape.host_count()), (42, 12, 15));
        let mut names = std::collections::HashSet::new();
        for port in 0..shape.port_count() {
            assert_eq!(shape.port(shape.place(port)), port);
            assert_eq!(shape.other_end(shape.other_end(port)), port);
            assert!(names.insert(shape.name(port)), "{}", shape.name(port));
        }
        assert_eq!(shape.name(shape.port(Place::SpineDown { spine: 1, leaf: 2 })), "spine1-leaf2");
        assert_eq!(shape.name(shape.port(Place::HostUp { host: 14 })), "host14-leaf2");
    }
}
