//! Few plain routes of the kernel have changed, and nothing else: the plan in force is amended, for a whole plan among many
//! routes takes much longer. Whatever could mean more than these routes themselves is left to a whole plan.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use srv6d_kernel_routes::RouteKey;
use srv6d_srv6::model::{RouteChange, TableId};

use super::diff::{Change, Diff, in_table};
use super::followed::plain_route;
use super::ports::{self, Ports};
use super::{Context, Plan};
use crate::config::{Config, Findings};
use crate::plan::Environment;
use crate::source::OutcomeState;

/// What the routes of these prefixes are now. `None`: a whole plan must say it. `next_hops` are those of the tables in
/// force.
pub fn amendments(
    config: &Config,
    environment: &Environment,
    plan: &Plan,
    (keys, next_hops): (&BTreeSet<RouteKey>, &[IpAddr]),
) -> Option<Vec<RouteChange>> {
    let mut findings = Findings::new(config.source.clone());
    let rules = ports::rules(config, environment);
    let ports = Ports::resolve(config, environment, &rules, &mut findings);
    let context = Context { config, environment, rules, ports };
    let waits = !plan.pending.is_empty() || plan.offered.iter().any(|entry| entry.state != OutcomeState::Programmed);
    if config.kernel.is_none() || config.fpm.is_some() || waits || !context.rules.are_plain(&environment.routes) {
        return None;
    }
    let first_hops: Vec<IpAddr> = next_hops.iter().copied().chain(first_segments(plan)).collect();
    let change = |key: &RouteKey| {
        let stands_alone = !means_more(&context, plan, key)
            && (key.table != TableId::MAIN || !first_hops.iter().any(|address| key.prefix.contains(address)));
        let action = match environment.routes.used_for(key) {
            Some(route) => Some(plain_route(&context, route)?),
            None => None,
        };
        stands_alone.then_some(RouteChange { table: key.table, prefix: key.prefix, action })
    };
    keys.iter().filter(|key| context.follows(key.table)).map(change).collect()
}

fn first_segments(plan: &Plan) -> impl Iterator<Item = IpAddr> {
    let paths = plan.desired.steers.iter().flat_map(|steer| &steer.paths);
    paths.flat_map(|path| {
        std::iter::once(IpAddr::V6(path.segments.first())).chain(path.via.iter().filter_map(|hop| hop.via))
    })
}

/// The prefix is something else than a followed plain route, here or in another table, or a neighbour's.
fn means_more(context: &Context<'_>, plan: &Plan, key: &RouteKey) -> bool {
    let desired = &plan.desired;
    let is_it = |prefix: IpNet| prefix == key.prefix;
    desired.steers.iter().any(|steer| is_it(steer.prefix))
        || desired.sids.iter().any(|sid| is_it(sid.prefix.into()))
        || desired.blocks.iter().any(|block| is_it(block.prefix.into()))
        || desired.local_addresses.iter().any(|(_, address)| is_it(IpNet::from(*address)))
        || desired.routes.iter().any(|route| is_it(route.prefix) && route.table != key.table)
        || desired.neighbors.keys().any(|(_, address)| key.prefix.contains(address))
        || plan.unfollowed.iter().any(|unfollowed| is_it(unfollowed.prefix))
        || context
            .ports
            .connected
            .iter()
            .any(|connected| connected.prefix.contains(&key.prefix) || key.prefix.contains(&connected.prefix))
        || context.config.routes.iter().any(|route| is_it(*route.get_ref().prefix.get_ref()))
        || context.config.steers.iter().any(|steer| is_it(*steer.get_ref().prefix.get_ref()))
        || context.config.sids.iter().any(|sid| is_it((*sid.get_ref().sid.get_ref()).into()))
}

impl Plan {
    /// Takes over what has changed, and says what that was.
    pub fn amend(&mut self, changes: &[RouteChange]) -> Diff {
        let undo = self.desired.amend(changes);
        let mut change = Change::default();
        for RouteChange { table, prefix, action } in undo {
            let name = in_table(prefix, table.0);
            let is_there = changes
                .iter()
                .any(|change| change.prefix == prefix && change.table == table && change.action.is_some());
            match (action, is_there) {
                (None, _) => change.added.push(name),
                (Some(_), true) => change.changed.push(name),
                (Some(_), false) => change.removed.push(name),
            }
        }
        let is_none = change == Change::default();
        Diff { kinds: if is_none { Vec::new() } else { vec![("routes", change)] } }
    }

    /// Some of these lie inside of a steered prefix: local applications' traffic to them is led otherwise.
    pub fn steers_around(&self, changes: &[RouteChange]) -> bool {
        let steered =
            |change: &RouteChange| self.desired.steers.iter().any(|steer| steer.prefix.contains(&change.prefix));
        changes.iter().any(steered)
    }
}
