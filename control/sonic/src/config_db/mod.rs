//! Reads `config_db.json`: the contents of CONFIG_DB, as SONiC writes them to a file.
//!
//! Tables that do not concern forwarding (buffers, queues, management, BGP, ...) are ignored.

mod device;
mod interfaces;
mod ports;
mod routes;
mod row;
mod srv6;

use std::net::Ipv6Addr;

use crate::finding::Findings;
use crate::routes::Leg;
use crate::srv6::{WrittenLocator, WrittenSid};
use crate::switch::{Switch, Vrf};
pub(crate) use ports::by_name as ports_by_name;
use row::Db;

/// Table of the first VRF. SONiC itself begins with this number, too.
pub(crate) const FIRST_TABLE: u32 = 1001;

/// The contents of the file before they are merged with those of the other one.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) switch: Switch,
    pub(crate) locators: Vec<WrittenLocator>,
    pub(crate) sids: Vec<WrittenSid>,
    pub(crate) legs: Vec<Leg>,
    pub(crate) encapsulation_source: Option<(Ipv6Addr, String)>,
}

pub(crate) fn read(text: &str, present: Option<&[String]>, found: &mut Findings) -> Written {
    let Some(db) = Db::parse(text, found) else { return Written::default() };
    let mut switch = Switch {
        device: device::device(&db, found),
        ports: ports::ports(&db, present, found),
        vrfs: vrfs(&db, found),
        sid_counters: device::sid_counters(&db, found),
        ..Switch::default()
    };
    interfaces::read(&db, &mut switch, found);
    let written = Written {
        switch,
        locators: srv6::locators(&db, found),
        sids: srv6::sids(&db, found),
        legs: routes::routes(&db, found),
        encapsulation_source: device::encapsulation_source(&db, found),
    };
    db.check_others(found);
    written
}

fn vrfs(db: &Db, found: &mut Findings) -> Vec<Vrf> {
    let mut vrfs: Vec<Vrf> = Vec::new();
    // No row occurs twice.
    for row in &db.rows("VRF", found) {
        let name = row.key.clone();
        if crate::switch::is_default_vrf(&name) {
            continue;
        }
        if !is_vrf_name(&name) {
            found.tolerated(
                row.place(""),
                "is no name of a VRF for SONiC, which wants Vrf and letters behind it: taken",
            );
        }
        vrfs.push(Vrf { name, table: next_table(&vrfs), in_config_db: true });
    }
    vrfs
}

/// Returns the next free table. Tables are assigned in order.
pub(crate) fn next_table(vrfs: &[Vrf]) -> u32 {
    vrfs.last().map_or(FIRST_TABLE, |vrf| vrf.table + 1)
}

fn is_vrf_name(name: &str) -> bool {
    let rest = name.strip_prefix("Vrf").unwrap_or_default();
    !rest.is_empty() && rest.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'))
}
