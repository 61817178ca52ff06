//! Rows of `APPL_DB` for a switch, which `sonic-db-cli APPL_DB` looks up.

use srv6d_sonic::{Action, Encap, Sid, StaticRoute, Switch, Target, is_default_vrf};

/// A row: its key and its fields.
pub type Row = (String, Vec<(&'static str, String)>);

/// Returns all rows.
pub fn rows(switch: &Switch) -> Vec<Row> {
    let sids = switch.sids.iter().map(|row| sid(switch, row));
    let routes = switch.routes.iter().map(route);
    let lists = switch.routes.iter().flat_map(|route| lists(route).into_iter().map(list));
    sids.chain(routes).chain(lists).collect()
}

/// Makes the row `SRV6_MY_SID_TABLE:<block>:<node>:<func>:<arg>:<sid>`. The node length is counted only for a SID
/// inside its locator: a SID of the local block consumes only its function.
fn sid(switch: &Switch, sid: &Sid) -> Row {
    let locator = switch.locators.iter().find(|locator| locator.name == sid.locator);
    let inside = locator.filter(|locator| locator.prefix.contains(&sid.prefix));
    let node = inside.map_or(0, |locator| locator.node_len);
    let function = sid.prefix.prefix_len().saturating_sub(sid.block_len.saturating_add(node));
    let key = format!("SRV6_MY_SID_TABLE:{}:{node}:{function}:0:{}", sid.block_len, sid.prefix.addr());
    let mut fields = vec![("action", sid.action.keyword().to_lowercase())];
    match sid.action {
        Action::Ua => {
            let port = sid.interface.clone().unwrap_or_default();
            let adjacency = sid.adjacency.map_or_else(|| port.clone(), |neighbor| format!("{neighbor}@{port}"));
            fields.push(("adj", adjacency));
        }
        Action::Un => {}
        _ => fields.push(("vrf", sid.vrf.clone().unwrap_or_else(|| "default".to_owned()))),
    }
    (key, fields)
}

/// Makes the row `ROUTE_TABLE:[VrfX:]prefix`.
fn route(route: &StaticRoute) -> Row {
    let vrf = route.vrf.as_ref().filter(|vrf| !is_default_vrf(vrf)).map(|vrf| format!("{vrf}:")).unwrap_or_default();
    let key = format!("ROUTE_TABLE:{vrf}{}", route.prefix);
    let fields = match &route.target {
        Target::Blackhole | Target::Reject => vec![("blackhole", "true".to_owned())],
        Target::Hops(hops) => {
            let nothing = || if route.prefix.addr().is_ipv4() { "0.0.0.0" } else { "::" }.to_owned();
            let joined = |parts: Vec<String>| parts.join(",");
            let via = hops.iter().map(|hop| hop.via.map_or_else(nothing, |via| via.to_string())).collect();
            let interfaces = hops.iter().map(|hop| hop.interface.clone().unwrap_or_default()).collect();
            let mut fields = vec![("nexthop", joined(via)), ("ifname", joined(interfaces))];
            if hops.iter().any(|hop| hop.encap.is_some()) {
                let lists = hops.iter().map(|hop| hop.encap.as_ref().map(list_name).unwrap_or_default()).collect();
                fields.push(("segment", joined(lists)));
            }
            fields
        }
    };
    (key, fields)
}

fn lists(route: &StaticRoute) -> Vec<&Encap> {
    match &route.target {
        Target::Hops(hops) => hops.iter().filter_map(|hop| hop.encap.as_ref()).collect(),
        _ => Vec::new(),
    }
}

fn list_name(encap: &Encap) -> String {
    path(encap)
}

fn path(encap: &Encap) -> String {
    encap.segments.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Makes the row `SRV6_SID_LIST_TABLE:<name>`. The name consists of the segments.
fn list(encap: &Encap) -> Row {
    let kind = if encap.reduced { "encaps.red" } else { "encaps" };
    (format!("SRV6_SID_LIST_TABLE:{}", list_name(encap)), vec![("path", path(encap)), ("type", kind.to_owned())])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const FRR: &str = "\
segment-routing
 srv6
  locators
   locator MAIN
    prefix fcbb:bbbb:1::/48 block-len 32 node-len 16
  static-sids
   sid fcbb:bbbb:1::/48 locator MAIN behavior uN
   sid fcbb:bbbb:1:fe24::/64 locator MAIN behavior uA interface Ethernet4 nexthop 2001:db8::2
   sid fcbb:bbbb:fe24::/48 locator MAIN behavior uA interface Ethernet4
   sid fcbb:bbbb:1:d046::/64 locator MAIN behavior uDT46 vrf Vrf1
ipv6 route fcbb:bbbb::/32 blackhole
ipv6 route 3fff::/32 2001:db8::2 Ethernet4
ipv6 route 3fff::/32 2001:db8:1::2
vrf Vrf1
 ip route 10.9.0.0/16 Ethernet4 segments fcbb:bbbb:2:d046:: encap-behavior H_Encaps_Red
";

    #[test]
    fn keys_say_how_far_a_sid_shifts() {
        let switch = srv6d_sonic::read(None, Some(FRR), None, false).unwrap().switch;
        let written: Vec<String> = rows(&switch)
            .into_iter()
            .map(|(key, fields)| {
                format!(
                    "{key} {}",
                    fields.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
                )
            })
            .collect();
        assert_eq!(
            written,
            [
                "SRV6_MY_SID_TABLE:32:16:0:0:fcbb:bbbb:1:: action=un",
                "SRV6_MY_SID_TABLE:32:16:16:0:fcbb:bbbb:1:fe24:: action=ua adj=2001:db8::2@Ethernet4",
                "SRV6_MY_SID_TABLE:32:0:16:0:fcbb:bbbb:fe24:: action=ua adj=Ethernet4",
                "SRV6_MY_SID_TABLE:32:16:16:0:fcbb:bbbb:1:d046:: action=udt46 vrf=Vrf1",
                "ROUTE_TABLE:fcbb:bbbb::/32 blackhole=true",
                "ROUTE_TABLE:3fff::/32 nexthop=2001:db8::2,2001:db8:1::2 ifname=Ethernet4,",
                "ROUTE_TABLE:Vrf1:10.9.0.0/16 nexthop=0.0.0.0 ifname=Ethernet4 segment=fcbb:bbbb:2:d046::",
                "SRV6_SID_LIST_TABLE:fcbb:bbbb:2:d046:: path=fcbb:bbbb:2:d046:: type=encaps.red",
            ]
        );
    }
}
