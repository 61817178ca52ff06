//! Few plain routes of the kernel have changed, and nothing else: the plan in force is amended, for a whole plan among many
//! routes takes much longer. Whatever could mean more than these routes themselves is left to a whole plan.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use srv6d_kernel_routes::RouteKey;
use srv6d_srv6::model::{Amendment, RouteChange, SteerChange, TableId};

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
) -> Option<Amendment> {
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
    let routes = keys.iter().filter(|key| context.follows(key.table)).map(change).collect::<Option<_>>()?;
    Some(Amendment { routes, steers: Vec::new() })
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
    pub fn amend(&mut self, amendment: &Amendment) -> Diff {
        let undo = self.desired.amend(amendment);
        let (mut routes, mut steers) = (Change::default(), Change::default());
        for RouteChange { table, prefix, action } in undo.routes {
            let is_it = |change: &&RouteChange| change.prefix == prefix && change.table == table;
            let is_there = amendment.routes.iter().rev().find(is_it).is_some_and(|change| change.action.is_some());
            routes.note(in_table(prefix, table.0), action.is_some(), is_there);
        }
        for SteerChange { table, prefix, paths } in undo.steers {
            let is_it = |change: &&SteerChange| change.prefix == prefix && change.table == table;
            let is_there = amendment.steers.iter().rev().find(is_it).is_some_and(|change| !change.paths.is_empty());
            steers.note(in_table(prefix, table.0), !paths.is_empty(), is_there);
        }
        let kinds = [("steers", steers), ("routes", routes)];
        Diff { kinds: kinds.into_iter().filter(|(_, change)| *change != Change::default()).collect() }
    }

    /// Some of these lie inside of a steered prefix: local applications' traffic to them is led otherwise.
    pub fn steers_around(&self, amendment: &Amendment) -> bool {
        let steered =
            |change: &RouteChange| self.desired.steers.iter().any(|steer| steer.prefix.contains(&change.prefix));
        !amendment.steers.is_empty() || amendment.routes.iter().any(steered)
    }
}

impl Change {
    fn note(&mut self, name: String, was_there: bool, is_there: bool) {
        match (was_there, is_there) {
            (false, _) => self.added.push(name),
            (true, true) => self.changed.push(name),
            (true, false) => self.removed.push(name),
        }
    }
}
