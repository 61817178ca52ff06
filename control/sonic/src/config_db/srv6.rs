//! Reads `SRV6_MY_LOCATORS` and `SRV6_MY_SIDS`.

use ipnet::Ipv6Net;

use super::row::{Db, Row};
use crate::finding::{Findings, Quirk};
use crate::srv6::{WrittenLocator, WrittenSid};
use crate::switch::{Action, DscpMode, Locator, Origin};
use crate::value;

const LOCATOR_FIELDS: [&str; 6] = ["prefix", "block_len", "node_len", "func_len", "arg_len", "vrf"];
const SID_FIELDS: [&str; 5] = ["action", "decap_dscp_mode", "decap_vrf", "interface", "adj"];

pub(super) fn locators(db: &Db, found: &mut Findings) -> Vec<WrittenLocator> {
    let rows = db.rows("SRV6_MY_LOCATORS", found);
    let locators = rows.iter().filter_map(|row| {
        unknown_fields(row, &LOCATOR_FIELDS, found);
        let locator = locator(row, found)?;
        Some(WrittenLocator { locator, vrf: row.owned("vrf"), place: row.place("") })
    });
    locators.collect()
}

fn locator(row: &Row<'_>, found: &mut Findings) -> Option<Locator> {
    let Some(written) = row.text("prefix") else {
        found.ignored(row.place("prefix"), "is not written: a locator needs one; left out");
        return None;
    };
    let mut length = |field, low, default| bits(row, field, low, found).unwrap_or(default);
    let lengths =
        [length("block_len", 1, 32), length("node_len", 1, 16), length("func_len", 0, 16), length("arg_len", 0, 0)];
    let [block_len, node_len, func_len, arg_len] = lengths;
    let sum: u32 = lengths.iter().map(|&bits| u32::from(bits)).sum();
    let locator_len = u32::from(block_len) + u32::from(node_len);
    if locator_len > 128 {
        found.ignored(row.place(""), format!("block_len + node_len is {locator_len}, more than 128: left out"));
        return None;
    }
    if sum > 128 {
        found.tolerated(row.place(""), format!("its lengths are {sum} bits together, more than 128"));
    }
    let address = written.split('/').next().unwrap_or_default();
    let Some(address) = value::address6(address) else {
        found.ignored(row.place("prefix"), format!("{written:?} is no IPv6 address: left out"));
        return None;
    };
    if written.contains('/') {
        found.tolerated(row.place("prefix"), "has a length: the locator is as long as block_len + node_len");
    } else if value::is_long_form(written) {
        found.count(row.table(), Quirk::LongForm);
    }
    let prefix = Ipv6Net::new(address, block_len + node_len).ok()?;
    if prefix.addr() != prefix.trunc().addr() {
        let what =
            format!("{written} has bits behind the {} of its block and node: {}", block_len + node_len, prefix.trunc());
        found.tolerated(row.place("prefix"), what);
    }
    Some(Locator {
        name: row.key.clone(),
        written: written.to_owned(),
        prefix: prefix.trunc(),
        block_len,
        node_len,
        func_len,
        arg_len,
        origin: Origin::ConfigDb,
    })
}

fn bits(row: &Row<'_>, field: &str, low: u32, found: &mut Findings) -> Option<u8> {
    row.number(field, low, 128, found).and_then(|bits| u8::try_from(bits).ok())
}

fn unknown_fields(row: &Row<'_>, known: &[&str], found: &mut Findings) {
    for name in row.names().filter(|name| !known.contains(name)) {
        found.tolerated(row.place(name), format!("is no field of {}: passed over", row.table()));
    }
}

pub(super) fn sids(db: &Db, found: &mut Findings) -> Vec<WrittenSid> {
    db.rows("SRV6_MY_SIDS", found).iter().filter_map(|row| sid(row, found)).collect()
}

fn sid(row: &Row<'_>, found: &mut Findings) -> Option<WrittenSid> {
    unknown_fields(row, &SID_FIELDS, found);
    let parts = row.parts();
    let [locator, written] = parts.as_slice() else {
        found.ignored(row.place(""), "is not locator and prefix: left out");
        return None;
    };
    let Some(prefix) = value::prefix6(written).filter(|_| written.contains('/')) else {
        found.ignored(row.place(""), format!("{written:?} is no IPv6 prefix with a length: left out"));
        return None;
    };
    if value::is_long_form(written) {
        found.count(row.table(), Quirk::LongForm);
    }
    let action = action(row, found)?;
    let mut adjacency = row.parsed("adj", "an IPv6 address", value::address6, found);
    let mut interface = row.owned("interface");
    if action == Action::Ua && interface.is_none() {
        found.ignored(row.place("interface"), "is not written: a uA needs a port; left out");
        return None;
    }
    if action != Action::Ua {
        if adjacency.take().is_some() {
            found.tolerated(row.place("adj"), format!("has no meaning for {}: passed over", action.keyword()));
        }
        interface = None;
    }
    Some(WrittenSid {
        prefix,
        written: (*written).to_owned(),
        locator: (*locator).to_owned(),
        action,
        decap_dscp_mode: row.parsed("decap_dscp_mode", "pipe or uniform", dscp_mode, found),
        vrf: row.owned("decap_vrf").filter(|_| action.is_decap()),
        interface,
        adjacency,
        origin: Origin::ConfigDb,
        place: row.place(""),
    })
}

fn dscp_mode(word: &str) -> Option<DscpMode> {
    [DscpMode::Pipe, DscpMode::Uniform].into_iter().find(|mode| mode.keyword() == word)
}

/// Reads the action of a SID. SONiC's own bgpcfgd accepts uN, uA and uDT46; frrcfgd also accepts uDT4 and uDT6.
fn action(row: &Row<'_>, found: &mut Findings) -> Option<Action> {
    let place = row.place("action");
    let Some(word) = row.text("action") else {
        found.ignored(place, "is not written: left out");
        return None;
    };
    let exact = Action::KEYWORDS.into_iter().find(|(known, _)| *known == word);
    let action = exact.or_else(|| Action::KEYWORDS.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(word)));
    match (exact, action) {
        (Some((_, action @ (Action::Udt4 | Action::Udt6))), _) => {
            found.tolerated(place, format!("{word} is known to FRR's management framework alone"));
            Some(action)
        }
        (Some((_, action)), _) => Some(action),
        (None, _) => {
            let known = "uN, uA, uDT4, uDT6, uDT46";
            let meant = action.map(|(known, _)| format!(" (meant: {known})")).unwrap_or_default();
            found.ignored(place, format!("{word:?} is not known; known: {known}{meant}: left out"));
            None
        }
    }
}
