//! Checks `[fpm]`, `[jalapeno]`, `[syd]` and `[jobs]`, as far as that is possible before a controller is asked.

use std::collections::HashSet;
use std::fmt::Display;
use std::hash::Hash;
use std::time::Duration;

use super::Context;
use super::hops::{HopFamily, HopRule};
use srv6d_config::{
    Criterion, Endpoint, Findings, Jalapeno, Jobs, ListenAddress, OneHop, RequestSettings, Spanned, Steering, Syd,
};

pub(super) fn check(context: &Context<'_>, found: &mut Findings) {
    if let Some(listen) = context.config.fpm.as_ref().and_then(|table| table.listen.as_ref()) {
        fpm(listen, found);
    }
    if let Some(table) = &context.config.jalapeno {
        jalapeno(table, found);
        asking("[jalapeno]", &table.endpoint, &table.asking, found);
        steering(context, "[jalapeno]", &table.steering, table.endpoint.span(), found);
    }
    if let Some(table) = &context.config.syd {
        syd(table, found);
        asking("[syd]", &table.endpoint, &table.asking, found);
        steering(context, "[syd]", &table.steering, table.endpoint.span(), found);
    }
    if let Some(table) = &context.config.jobs {
        jobs(table, found);
        if let Some(first) = table.allowed_prefixes.first() {
            steering(context, "[jobs]", &Steering::default(), first.span(), found);
        }
    }
}

fn fpm(listen: &Spanned<ListenAddress>, found: &mut Findings) {
    let address = listen.get_ref().0;
    if !address.ip().is_loopback() {
        let what = format!("whoever reaches {address} can connect, and decides on the routes of this node");
        found.warning(listen.span(), "[fpm] listen", what, "write \"127.0.0.1:2620\", where only this node's zebra is");
    }
}

fn jalapeno(table: &Jalapeno, found: &mut Findings) {
    let at = table.endpoint.span();
    if table.peers.is_empty() && table.job.is_none() {
        let fix = "list `peers = [\"hosts/host01\"]`, or name a `job` file";
        found.error(at.clone(), "[jalapeno]", "has no peers: nothing would be steered", fix);
    }
    repeated(table.peers.iter(), &table.source, "[jalapeno] peers", found);
    let kind = table.path.as_ref().map_or(Criterion::Shortest, |kind| *kind.get_ref());
    match (kind, table.excluded_countries.first()) {
        (Criterion::Sovereignty, None) => {
            let fix = "add `excluded_countries = [\"FRA\"]`";
            found.error(at, "[jalapeno]", "path = \"sovereignty\" avoids no country", fix);
        }
        (Criterion::Sovereignty, Some(_)) | (_, None) => {}
        (_, Some(country)) => {
            let fix = "write path = \"sovereignty\", or remove the list";
            found.warning(country.span(), "[jalapeno] excluded_countries", "only \"sovereignty\" uses it", fix);
        }
    }
    if let (Some(limit), false) = (&table.limit, matches!(kind, Criterion::BestPaths | Criterion::NextBestPath)) {
        let fix = "write path = \"next-best-path\" for several paths, or remove it";
        found.warning(limit.span(), "[jalapeno] limit", format!("{:?} gives one path", kind.keyword()), fix);
    }
    if let (Some(state), true) = (&table.state, kind != Criterion::Load) {
        let what = "only path = \"load\" has allocations to keep";
        found.warning(state.span(), "[jalapeno] state", what, "remove it");
    }
}

fn syd(table: &Syd, found: &mut Findings) {
    if table.peers.is_empty() {
        let fix = "list `peers = [{ node = \"leaf-02\", prefixes = [\"2001:db8:2::/64\"] }]`";
        found.error(table.endpoint.span(), "[syd]", "has no peers: nothing would be steered", fix);
    }
    repeated(table.peers.iter().map(|peer| &peer.get_ref().node), &table.node, "[syd] peers", found);
    for peer in &table.peers {
        if peer.get_ref().prefixes.is_empty() {
            let what = format!("{} has no prefixes: nothing is steered to it", peer.get_ref().node.get_ref());
            found.error(peer.span(), "[syd] peers", what, "add `prefixes = [\"2001:db8:2::/64\"]`");
        }
    }
}

/// Shortest and longest time between two looks of jobs at their topology.
const TOPOLOGY_INTERVAL: [Duration; 2] = [Duration::from_secs(1), Duration::from_hours(24)];

fn jobs(table: &Jobs, found: &mut Findings) {
    let [least, most] = TOPOLOGY_INTERVAL;
    if let Some(interval) = table.topology_interval.as_ref().filter(|time| !(least..=most).contains(time.get_ref())) {
        let what = format!("{:?} between two looks at the topology", interval.get_ref());
        found.error(interval.span(), "[jobs] topology_interval", what, "write 1s to 24h");
    }
    for prefix in table.allowed_prefixes.iter().filter(|prefix| prefix.get_ref().prefix_len() == 0) {
        let what = format!("with {} a job may steer any traffic of this node", prefix.get_ref());
        found.warning(
            prefix.span(),
            "[jobs] allowed_prefixes",
            what,
            "list the prefixes of the hosts that jobs run on",
        );
    }
}

/// Checks that certificates are only configured with TLS.
fn asking(entry: &str, endpoint: &Spanned<Endpoint>, asking: &RequestSettings, found: &mut Findings) {
    if let Some(file) = asking.ca_file.as_ref().filter(|_| !endpoint.get_ref().is_https()) {
        let what = format!("{} is asked without TLS", endpoint.get_ref().0);
        found.error(file.span(), &format!("{entry} ca_file"), what, "write https:// in `endpoint`, or remove it");
    }
}

/// Refuses a peer that is this node itself, or is listed twice.
fn repeated<'p, T: Eq + Hash + Display + 'p>(
    peers: impl Iterator<Item = &'p Spanned<T>>,
    own: &Spanned<T>,
    entry: &str,
    found: &mut Findings,
) {
    let mut seen: HashSet<&T> = HashSet::new();
    for peer in peers {
        if peer.get_ref() == own.get_ref() {
            found.error(peer.span(), entry, format!("{} is this node itself", peer.get_ref()), "remove it");
        } else if !seen.insert(peer.get_ref()) {
            found.error(peer.span(), entry, format!("{} is listed twice", peer.get_ref()), "keep one of the two");
        }
    }
}

fn steering(context: &Context<'_>, entry: &str, steering: &Steering, at: std::ops::Range<usize>, found: &mut Findings) {
    if let Some(port) = &steering.port {
        context.ports.named(port, &format!("{entry} port"), found);
    }
    if steering.via.is_some() {
        let hop = OneHop { via: steering.via.clone(), port: steering.port.clone() };
        let rule = HopRule { family: HopFamily::V6, on_link: false };
        context.ports.hops((entry, at.clone()), &hop, &[], rule, found);
    }
    let ports = || context.config.ports.iter().any(|port| port.get_ref().source.is_some());
    if context.config.node.source.is_none() && !ports() {
        let fix = "add `source = ...` under [node]: a global address of this node";
        found.error(at, entry, "its paths have no outer source address", fix);
    }
}
