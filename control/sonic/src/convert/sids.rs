//! Writes `[[sid]]`.

use std::net::Ipv6Addr;

use srv6d_addresses::prefix_map::PrefixMap;

use super::hops::Hops;
use super::text::Toml;
use super::{Usd, is_unicast};
use crate::finding::Findings;
use crate::switch::{Action, DscpMode, Sid, Switch};

/// Writes every SID that can be written. Returns their prefixes.
pub(super) fn write(
    switch: &Switch,
    usd: Usd,
    hops: &Hops<'_>,
    toml: &mut Toml,
    found: &mut Findings,
) -> PrefixMap<()> {
    let mut written = PrefixMap::default();
    for sid in &switch.sids {
        let adjacency = match adjacency(sid, hops) {
            Ok(adjacency) => adjacency,
            Err(why) => {
                found.note(format!("SID {}", sid.prefix), format!("{why}: left out"));
                continue;
            }
        };
        toml.table("[[sid]]");
        toml.text("sid", &sid.prefix.to_string());
        toml.text("behavior", sid.action.keyword());
        let flavors = flavors(sid, usd);
        if !flavors.is_empty() {
            toml.texts("flavors", flavors.iter().map(|&flavor| flavor.to_owned()));
        }
        if sid.block_len != 32 {
            toml.number("lblen", u32::from(sid.block_len));
        }
        if sid.action.is_decap() {
            hops.table_key(sid.vrf.as_deref(), toml);
        }
        if sid.decap_dscp_mode == Some(DscpMode::Uniform) && sid.action != Action::Ua {
            toml.text("dscp", DscpMode::Uniform.keyword());
        }
        if let Some((port, via)) = adjacency {
            toml.address("via", via);
            toml.text("port", &port);
        }
        written.insert(sid.prefix, ());
    }
    written
}

/// Returns the flavors that SONiC programs: a uA decapsulates at the end of a carrier and removes the SRH, a uN keeps
/// the SRH.
fn flavors(sid: &Sid, usd: Usd) -> &'static [&'static str] {
    match sid.action {
        Action::Ua => &["psp", "usd"],
        Action::Un if usd == Usd::Always || sid.decap_dscp_mode.is_some() => &["usd"],
        Action::Un | Action::Udt4 | Action::Udt6 | Action::Udt46 => &[],
    }
}

/// Returns port and neighbour of a uA. Without a configured neighbour it is the one that is found on the port.
fn adjacency(sid: &Sid, hops: &Hops<'_>) -> Result<Option<(String, Option<Ipv6Addr>)>, String> {
    if sid.action != Action::Ua {
        return Ok(None);
    }
    let interface = sid.interface.as_deref().unwrap_or_default();
    let ports = hops.ports_of(interface);
    let [port] = ports else {
        return Err(format!("{interface} is no routed port of this switch"));
    };
    if let Some(via) = sid.adjacency.filter(|via| !is_unicast((*via).into())) {
        return Err(format!("{via} is no unicast address"));
    }
    Ok(Some((port.clone(), sid.adjacency)))
}
