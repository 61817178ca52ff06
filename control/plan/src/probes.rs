//! Plans `[probes]`, and leaves out the paths that do not work.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ipnet::IpNet;
use srv6d_config::{self as config, Findings, Optional, ShortTime, Spanned};
use srv6d_srv6::desired::{Path, Steer, TableId};

use super::environment::is_link_local;
use super::node::or;
use super::not_unicast;

const INTERVAL: Duration = Duration::from_millis(100);
const LEAST_INTERVAL: Duration = Duration::from_millis(10);
/// Number of intervals that a probe may wait for its answer at most.
const MOST_INTERVALS: u32 = 20;
const DEAD_AFTER: u32 = 3;
const HOLD: Duration = Duration::from_secs(1);
/// UDP port of probes.
const UDP_PORT: u16 = 47151;

/// `[probes]` with its defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probes {
    /// Time between two probes of a path.
    pub interval: Duration,
    /// Time after which a probe without an answer is judged.
    pub timeout: Duration,
    /// Number of probes lost in a row after which a path is left out.
    pub dead_after: u32,
    /// Time for which probes of a dead path have to come back before it is used again.
    pub hold: Duration,
    /// Prefixes whose paths are probed. Empty: every steered prefix.
    pub prefixes: Vec<IpNet>,
    /// Address of this node to which probes come back.
    pub address: Option<Ipv6Addr>,
    /// uSID with which the last node of a loop decapsulates.
    pub decap: Option<u16>,
    /// UDP port of probes.
    pub udp_port: u16,
}

impl Probes {
    /// Returns whether the paths of a prefix are probed.
    pub fn watch(&self, prefix: &IpNet) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|wanted| wanted.contains(prefix))
    }
}

/// Returns the settings of probes. `None`: nothing is probed.
pub(super) fn plan(config: &config::Config, found: &mut Findings) -> Option<Probes> {
    let table = config.probes.as_ref()?;
    let interval = time(&table.interval, INTERVAL);
    let timeout = time(&table.timeout, interval);
    check_times(table, interval, timeout, found);
    if let Some(address) = &table.address {
        check_address(address, found);
    }
    let outer = config.node.source.as_ref();
    Some(Probes {
        interval,
        timeout,
        dead_after: or(&table.dead_after, DEAD_AFTER),
        hold: time(&table.hold, HOLD),
        prefixes: table.prefixes.iter().map(|prefix| *prefix.get_ref()).collect(),
        address: table.address.as_ref().or(outer).map(|address| *address.get_ref()),
        decap: table.decap.as_ref().map(|usid| *usid.get_ref()),
        udp_port: or(&table.udp_port, UDP_PORT),
    })
}

#[expect(clippy::ref_option, reason = "as it is written in a table")]
fn time(written: &Optional<ShortTime>, default: Duration) -> Duration {
    written.as_ref().map_or(default, |time| time.get_ref().0)
}

fn check_times(table: &config::Probes, interval: Duration, timeout: Duration, found: &mut Findings) {
    let span = |key: &Optional<ShortTime>| key.as_ref().map_or(0..0, Spanned::span);
    if interval < LEAST_INTERVAL {
        let fix = "write interval = \"10ms\" or more";
        found.error(span(&table.interval), "[probes] interval", "is below 10 ms", fix);
    }
    if timeout < interval {
        let what = format!(
            "is shorter than the interval of {} ms: whether a probe got lost is judged by the probes of other paths behind it",
            interval.as_millis()
        );
        found.error(span(&table.timeout), "[probes] timeout", what, "write a longer timeout, or a shorter interval");
    }
    if timeout > interval * MOST_INTERVALS {
        let what = format!("is longer than {MOST_INTERVALS} intervals of {} ms", interval.as_millis());
        found.error(span(&table.timeout), "[probes] timeout", what, "write a shorter timeout, or a longer interval");
    }
}

fn check_address(address: &Spanned<Ipv6Addr>, found: &mut Findings) {
    let own = IpAddr::V6(*address.get_ref());
    let link_local = is_link_local(own).then_some("a link-local address");
    if let Some(kind) = not_unicast(own).or(link_local) {
        let fix = "write a global unicast address of this node, or leave it out, so that `source` of [node] is used";
        found.error(address.span(), "[probes] address", format!("{own} is {kind}: no probe comes back to it"), fix);
    }
}

/// Key of a steered prefix.
type Key = (TableId, IpNet);

/// Removes paths from steered prefixes, but never all paths of one. Returns all paths of those prefixes that have fewer now.
pub(super) fn leave_out(steers: &mut [Steer], unused: &BTreeSet<String>) -> BTreeMap<Key, Vec<Path>> {
    let mut whole = BTreeMap::new();
    if unused.is_empty() {
        return whole;
    }
    for steer in steers {
        if let Some(used) = without(&steer.paths, unused) {
            let all = std::mem::replace(&mut steer.paths, used);
            whole.insert((steer.table, steer.prefix), all);
        }
    }
    whole
}

/// Returns the paths that are left. `None`: all of them, or none.
pub(super) fn without(paths: &[Path], unused: &BTreeSet<String>) -> Option<Vec<Path>> {
    let is_left = |path: &&Path| !unused.contains(&path.name);
    // Most prefixes keep all of their paths, and are not copied.
    let is_part = paths.iter().any(|path| !is_left(&path)) && paths.iter().any(|path| is_left(&path));
    is_part.then(|| paths.iter().filter(is_left).cloned().collect())
}
