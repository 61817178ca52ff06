//! Plans `[[route]]`, and the connected routes of the ports' own addresses.

use srv6d_srv6::desired::{Hop, Route, RouteAction, TableId};
use toml::Spanned;

use super::Context;
use super::hops::{HopFamily, HopRule};
use super::node::or;
use super::owners::{Owner, Owners};
use srv6d_config::{self as config, Findings, RouteType};

pub(super) fn routes(context: &Context<'_>, owners: &mut Owners, found: &mut Findings) -> Vec<Route> {
    let mut routes = Vec::new();
    for written in &context.config.routes {
        let table = written.get_ref();
        let key = (or(&table.table, TableId::MAIN), *table.prefix.get_ref());
        let action = action(context, written, found);
        let owner = match &action {
            Some(RouteAction::Via(hops)) => Owner::Route(hops.clone()),
            Some(_) => Owner::Route(Vec::new()),
            None => Owner::WaitingRoute,
        };
        if owners.record(key, owner, table.prefix.span(), found) {
            routes.extend(action.map(|action| Route { table: key.0, prefix: key.1, action }));
        }
    }
    routes
}

/// Returns `None` if the route is refused, or none of its next hops resolves yet. Both have been reported.
fn action(context: &Context<'_>, written: &Spanned<config::Route>, found: &mut Findings) -> Option<RouteAction> {
    let route = written.get_ref();
    let kind = or(&route.kind, RouteType::Unicast);
    let family = if route.prefix.get_ref().addr().is_ipv4() { HopFamily::Any } else { HopFamily::V6 };
    let rule = HopRule { family, on_link: true };
    let hops = context.ports.hops(("[[route]]", written.span()), &route.hop, &route.nexthops, rule, found);
    if kind != RouteType::Unicast && hops.written {
        let what = format!("a route of type {:?} has no next hop", kind.keyword());
        found.error(written.span(), "[[route]]", what, "remove `via`, `port` and `nexthops`, or `type`");
    }
    match kind {
        RouteType::Blackhole => Some(RouteAction::Blackhole),
        RouteType::Unreachable => Some(RouteAction::Unreachable),
        RouteType::Kernel => Some(RouteAction::Kernel),
        RouteType::Unicast if !hops.written => {
            let fix = "add `via = ...` and `port = ...`, or `type = \"blackhole\"`, \"unreachable\" or \"kernel\"";
            found.error(written.span(), "[[route]]", format!("{} has no next hop", route.prefix.get_ref()), fix);
            None
        }
        RouteType::Unicast => (!hops.resolved.is_empty()).then_some(RouteAction::Via(hops.resolved)),
    }
}

/// Returns one on-link route for each connected prefix that has no other entry in the configuration. If the kernel's
/// routes are followed, the connected routes are among them.
pub(super) fn connected(context: &Context<'_>, owners: &mut Owners) -> Vec<Route> {
    let mut routes = Vec::new();
    for connected in context.ports.connected.iter().filter(|connected| !context.follows(connected.table)) {
        let hops = vec![Hop { port: connected.port, via: None, weight: 1 }];
        if owners.record_connected((connected.table, connected.prefix), hops.clone()) {
            let (table, prefix) = (connected.table, connected.prefix);
            routes.push(Route { table, prefix, action: RouteAction::Via(hops) });
        }
    }
    routes
}
