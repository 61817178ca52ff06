//! Sources that are admitted to SIDs and through ports, sources that are refused because they are this node's own, and
//! carriers that are let in.

use std::collections::{BTreeMap, BTreeSet};

use aya::maps::MapError;
use srv6d_fib::{Forwarding, KeyRow, OF_DOMAIN, TABLES, key_owner, of_carriers, of_port, of_table};

use super::{ProgramWiring, XdpOffload, maps};

/// Prefixes by network and length.
type Prefixes = BTreeSet<(u128, u8)>;

impl XdpOffload {
    pub(super) fn write_sources(
        &mut self,
        set: usize,
        wanted: &Forwarding,
        wiring: &ProgramWiring,
    ) -> Result<(), MapError> {
        let wanted = by_owner(set, wanted, wiring);
        let Some(written) = self.sets.get_mut(set) else { return Ok(()) };
        let (map, now) = (&mut self.maps.sources, &mut written.sources);
        let none = Prefixes::new();
        for owner in now.keys().chain(wanted.keys()).copied().collect::<BTreeSet<u32>>() {
            let (has, wants) = (now.entry(owner).or_default(), wanted.get(&owner).unwrap_or(&none));
            for prefix in has.clone().difference(wants) {
                map.remove(&maps::key(KeyRow::new(owner, *prefix)))?;
                has.remove(prefix);
            }
            for prefix in wants {
                if !has.contains(prefix) {
                    map.insert(&maps::key(KeyRow::new(owner, *prefix)), 1, 0)?;
                    has.insert(*prefix);
                }
            }
        }
        now.retain(|_, prefixes| !prefixes.is_empty());
        Ok(())
    }
}

/// Returns the prefixes by the value that stands in front of the address in a key.
fn by_owner(set: usize, wanted: &Forwarding, wiring: &ProgramWiring) -> BTreeMap<u32, Prefixes> {
    let domain = (key_owner(set, OF_DOMAIN, false), wanted.domain.clone());
    let number = |port: &u16| wiring.from.get(port).copied();
    let of_ports = wanted.sources.iter().filter_map(|(port, sources)| Some((of_port(number(port)?), sources)));
    let of_tables = wanted.own_sources.iter().filter(|&(&table, _)| u32::from(table) < TABLES);
    let of_tables = of_tables.map(|(&table, sources)| (of_table(table), sources));
    let families = of_ports.chain(of_tables).flat_map(|(owner, [v6, v4])| {
        let key = |is_v4| key_owner(set, owner, is_v4);
        [(key(false), v6.clone()), (key(true), v4.clone())]
    });
    let carriers = wanted
        .carriers
        .iter()
        .filter_map(|(port, carriers)| Some((key_owner(set, of_carriers(number(port)?), false), carriers.clone())));
    families.chain(carriers).chain([domain]).collect()
}
