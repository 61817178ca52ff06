//! Sources that are admitted: to SIDs, and through ports.

use std::collections::{BTreeMap, BTreeSet};

use aya::maps::MapError;

use super::maps::{self, OF_DOMAIN, of_port};
use super::{Forwarding, XdpOffload, way_key};

/// By network and length.
type Prefixes = BTreeSet<(u128, u8)>;

/// What the program looks up about the source of what comes in through a port.
pub(super) fn checks(wanted: &Forwarding, port: u16) -> u16 {
    let of_port = if wanted.sources.contains_key(&port) { maps::CHECK_PORT } else { 0 };
    let of_domain = if wanted.domain.is_some() { maps::CHECK_DOMAIN } else { 0 };
    of_port | of_domain
}

impl XdpOffload {
    pub(super) fn write_sources(&mut self, set: usize, wanted: &Forwarding) -> Result<(), MapError> {
        let wanted = by_owner(set, wanted);
        let Some(written) = self.sets.get_mut(set) else { return Ok(()) };
        let (map, now) = (&mut self.maps.sources, &mut written.sources);
        let none = Prefixes::new();
        for owner in now.keys().chain(wanted.keys()).copied().collect::<BTreeSet<u32>>() {
            let (has, wants) = (now.entry(owner).or_default(), wanted.get(&owner).unwrap_or(&none));
            for &(address, len) in has.clone().difference(wants) {
                map.remove(&way_key(owner, address, len))?;
                has.remove(&(address, len));
            }
            for &(address, len) in wants {
                if !has.contains(&(address, len)) {
                    map.insert(&way_key(owner, address, len), 1, 0)?;
                    has.insert((address, len));
                }
            }
        }
        now.retain(|_, prefixes| !prefixes.is_empty());
        Ok(())
    }
}

/// By what stands in front of the address in a key.
fn by_owner(set: usize, wanted: &Forwarding) -> BTreeMap<u32, Prefixes> {
    let domain = wanted.domain.iter().map(|domain| (maps::key_set(set, OF_DOMAIN, false), domain.clone()));
    let of_ports = wanted.sources.iter().flat_map(|(&port, sources)| {
        let key = |is_v4| maps::key_set(set, of_port(port), is_v4);
        [(key(false), sources.v6.clone()), (key(true), sources.v4.clone())]
    });
    domain.chain(of_ports).collect()
}
