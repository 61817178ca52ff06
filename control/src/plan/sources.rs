//! `[jalapeno]` and `[syd]`: what can be seen of their mistakes before anybody is asked.

use super::Context;
use crate::config::{Findings, Jalapeno, PathKind, Steering, Syd};

pub(super) fn check(context: &Context<'_>, found: &mut Findings) {
    if let Some(table) = &context.config.jalapeno {
        jalapeno(table, found);
        steering(context, "[jalapeno]", &table.steering, table.endpoint.span(), found);
    }
    if let Some(table) = &context.config.syd {
        syd(table, found);
        steering(context, "[syd]", &table.steering, table.endpoint.span(), found);
    }
}

fn jalapeno(table: &Jalapeno, found: &mut Findings) {
    let at = table.endpoint.span();
    if table.peers.is_empty() && table.job.is_none() {
        let fix = "list `peers = [\"hosts/host01\"]`, or name a `job` file";
        found.error(at.clone(), "[jalapeno]", "has no peers: nothing would be steered", fix);
    }
    let kind = table.path.as_ref().map_or(PathKind::Shortest, |kind| *kind.get_ref());
    match (kind, table.excluded_countries.first()) {
        (PathKind::Sovereignty, None) => {
            let fix = "add `excluded_countries = [\"FRA\"]`";
            found.error(at, "[jalapeno]", "path = \"sovereignty\" avoids no country", fix);
        }
        (PathKind::Sovereignty, Some(_)) | (_, None) => {}
        (_, Some(country)) => {
            let fix = "write path = \"sovereignty\", or remove the list";
            found.warning(country.span(), "[jalapeno] excluded_countries", "only \"sovereignty\" heeds it", fix);
        }
    }
    if let (Some(limit), false) = (&table.limit, matches!(kind, PathKind::BestPaths | PathKind::NextBestPath)) {
        let fix = "write path = \"next-best-path\" for several paths, or remove it";
        found.warning(limit.span(), "[jalapeno] limit", format!("{:?} gives one path", kind.word()), fix);
    }
    if let (Some(state), true) = (&table.state, kind != PathKind::Load) {
        let what = "only path = \"load\" has allocations to remember";
        found.warning(state.span(), "[jalapeno] state", what, "remove it");
    }
}

fn syd(table: &Syd, found: &mut Findings) {
    if table.peers.is_empty() {
        let fix = "list `peers = [{ node = \"leaf-02\", prefixes = [\"2001:db8:2::/64\"] }]`";
        found.error(table.endpoint.span(), "[syd]", "has no peers: nothing would be steered", fix);
    }
    for peer in &table.peers {
        if peer.get_ref().prefixes.is_empty() {
            let what = format!("{} has no prefixes: nothing is steered to it", peer.get_ref().node.get_ref());
            found.error(peer.span(), "[syd] peers", what, "add `prefixes = [\"2001:db8:2::/64\"]`");
        }
    }
}

fn steering(context: &Context<'_>, entry: &str, steering: &Steering, at: std::ops::Range<usize>, found: &mut Findings) {
    if let Some(port) = &steering.port {
        context.ports.named(port, &format!("{entry} port"), found);
    }
    let ports = || context.config.ports.iter().any(|port| port.get_ref().source.is_some());
    if context.config.node.source.is_none() && !ports() {
        let fix = "add `source = ...` under [node]: a global address of this node";
        found.error(at, entry, "its paths have no outer source address", fix);
    }
}
