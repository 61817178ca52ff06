//! Rules: the table in which a packet is looked up, as far as destination and port decide that.
//!
//! ```text
//! 100: from all to 10.1.0.0/16 lookup 50   ┐ every port: 50 inside of 10.1.0.0/16, then 60, then main. One table of
//! 200: from all lookup 60                  ├ srv6d's holds what that comes to: a route of a later table counts where
//! 32766: from all lookup main              ┘ no earlier one has a route.
//! 300: from all iif eth1 lookup 70           eth1 is in table 70, and what 70 does not know is the kernel's
//! 1000: from all lookup [l3mdev-table]       what comes in by a device of a VRF is in the VRF's table
//! 400: from 10.2.0.0/16 lookup 80            by source: whatever 80 has a route for is the kernel's
//! ```

use std::collections::{BTreeMap, HashSet};

use ipnet::IpNet;
use srv6d_addresses::TableId;
use srv6d_kernel_routes::{KernelAction, KernelRoute, KernelRule, Routes, RuleAction};

use super::environment::Environment;
use super::followed::{KERNEL, Unfollowed};
use srv6d_config as config;

/// `local` in `/etc/iproute2/rt_tables`.
pub(super) const LOCAL: TableId = TableId(255);

/// The effect of the rules.
#[derive(Default)]
pub(super) struct Rules {
    /// Tables that rules choose for ports, by device.
    pub(super) port_tables: BTreeMap<String, TableId>,
    /// Steps for every other packet, IPv4 and IPv6. If it is empty, the rules are not known, and `main` is used.
    common: [Vec<RuleStep>; 2],
    pub(super) unfollowed: Vec<Unfollowed>,
}

/// One rule that may apply to a packet.
#[derive(Clone, Debug, PartialEq)]
struct RuleStep {
    to: IpNet,
    ask: Ask,
}

#[derive(Clone, Debug, PartialEq)]
enum Ask {
    Table(TableId),
    Discard(KernelAction),
    /// The kernel decides. If a table is given, it decides for the destinations that the table has routes for.
    Kernel(Option<TableId>),
}

/// A route that is in force for a prefix in one of srv6d's tables.
pub(super) struct Chosen<'r> {
    pub(super) table: TableId,
    pub(super) prefix: IpNet,
    /// Protocol of the route. 0 means that a rule made it.
    pub(super) protocol: u8,
    /// Action of the route. `None` leaves it to the kernel, where it is listed with its rule.
    pub(super) action: Option<&'r KernelAction>,
}

impl<'r> From<&'r KernelRoute> for Chosen<'r> {
    fn from(route: &'r KernelRoute) -> Self {
        Self { table: route.table, prefix: route.prefix, protocol: route.protocol, action: Some(&route.action) }
    }
}

impl Rules {
    /// Reads the rules. Without `[kernel]` none applies. `devices` carry ports whose table is not in the
    /// configuration.
    pub(super) fn read<'d>(
        kernel: Option<&config::Kernel>,
        environment: &Environment,
        devices: impl Iterator<Item = &'d str>,
    ) -> Self {
        let routes: &Routes = &environment.routes;
        let (mut read, rules) = (Self::default(), routes.rules());
        if kernel.is_none() || rules.is_empty() {
            return read;
        }
        read.common = [false, true].map(|is_v6| steps(rules, is_v6, None));
        read.unfollowed.extend(rules.iter().filter_map(unfollowed));
        let has_rule = |device: &str| rules.iter().any(|rule| rule.iif.as_deref() == Some(device));
        let (named, others): (Vec<&str>, Vec<&str>) = devices.partition(|device| has_rule(device));
        if rules.iter().any(|rule| rule.action == RuleAction::L3mdev) {
            let member = |device: &str| Some((device.to_owned(), *environment.vrf_members.get(device)?));
            read.port_tables.extend(others.into_iter().filter_map(member));
        }
        for device in named {
            let chains = [false, true].map(|is_v6| steps(rules, is_v6, Some(device)));
            if chains != read.common {
                let (table, why) = port_table(&chains, &read.common, routes);
                read.port_tables.insert(device.to_owned(), table);
                let of_port = rules.iter().filter(|rule| rule.iif.as_deref() == Some(device));
                read.unfollowed
                    .extend(why.into_iter().flat_map(|why| of_port.clone().map(move |rule| named_rule(rule, why))));
            }
        }
        read
    }

    /// Returns true if a table is followed because a rule leads to it.
    pub(super) fn lead_to(&self, table: TableId) -> bool {
        self.port_tables.values().any(|chosen| *chosen == table)
    }

    /// Returns true if every packet is looked up in `main` only.
    pub(super) fn lead_to_main_only(&self, routes: &Routes) -> bool {
        self.port_tables.is_empty()
            && self.unfollowed.is_empty()
            && self.common.iter().all(|steps| is_plain(steps, routes))
    }

    /// Returns the routes in force, by table: for `main` the effect of all rules, for the others their own routes.
    pub(super) fn choose<'r>(
        &self,
        routes: &'r Routes,
        follows: impl Fn(TableId) -> bool + Copy + 'r,
    ) -> Box<dyn Iterator<Item = Chosen<'r>> + 'r> {
        let plain: [bool; 2] = self.common.each_ref().map(|steps| is_plain(steps, routes));
        let stays = move |route: &&KernelRoute| {
            let [v4, v6] = plain;
            let is_plain = if route.prefix.addr().is_ipv4() { v4 } else { v6 };
            (route.table != TableId::MAIN || is_plain) && follows(route.table)
        };
        let merged: Vec<Chosen<'r>> = self
            .common
            .iter()
            .zip(plain)
            .filter(|(_, is_plain)| !is_plain && follows(TableId::MAIN))
            .flat_map(|(steps, _)| merge(steps, routes))
            .collect();
        Box::new(routes.used().filter(stays).map(Chosen::from).chain(merged))
    }
}

/// Returns true if `main` is the only table with routes that is looked up.
fn is_plain(steps: &[RuleStep], routes: &Routes) -> bool {
    let has_routes = |ask: &Ask| !matches!(ask, Ask::Table(table) if routes.table(*table).next().is_none());
    let mut asked = steps.iter().filter(|step| has_routes(&step.ask));
    let is_main = |step: &RuleStep| step.to.prefix_len() == 0 && step.ask == Ask::Table(TableId::MAIN);
    asked.next().is_none_or(is_main) && asked.next().is_none()
}

/// Returns the steps for packets of a family that come in by a device. `None` stands for any device that no rule
/// names.
fn steps(rules: &[KernelRule], is_v6: bool, device: Option<&str>) -> Vec<RuleStep> {
    let concerns = |rule: &&KernelRule| {
        let is_of_port = rule.iif.as_deref().is_none_or(|iif| device == Some(iif)) || is_inverted(rule);
        rule.is_v6 == is_v6 && !rule.local_only && is_of_port
    };
    rules.iter().filter(concerns).filter_map(|rule| Some(RuleStep { to: rule.to, ask: ask(rule)? })).collect()
}

fn is_inverted(rule: &KernelRule) -> bool {
    rule.only_for.iter().any(|word| word == "not")
}

/// Returns the step of a rule, or `None` if the next rule applies in any case.
fn ask(rule: &KernelRule) -> Option<Ask> {
    let table = match rule.action {
        RuleAction::Lookup(table) => Some(table),
        _ => None,
    };
    Some(match &rule.action {
        // srv6d looks up this node's addresses first, as the kernel does. A VRF is the table of its ports.
        RuleAction::Lookup(LOCAL) | RuleAction::L3mdev | RuleAction::Nop => return None,
        _ if !rule.only_for.is_empty() => Ask::Kernel(table),
        RuleAction::Lookup(table) => Ask::Table(*table),
        RuleAction::Blackhole => Ask::Discard(KernelAction::Blackhole),
        RuleAction::Unreachable => Ask::Discard(KernelAction::Unreachable),
        RuleAction::Prohibit | RuleAction::Other(_) => Ask::Kernel(None),
    })
}

/// Returns the rule as text if it leaves something to the kernel.
fn unfollowed(rule: &KernelRule) -> Option<Unfollowed> {
    if rule.local_only || !matches!(ask(rule)?, Ask::Kernel(_)) {
        return None;
    }
    Some(named_rule(rule, "chooses by more than port and destination"))
}

fn named_rule(rule: &KernelRule, why: &str) -> Unfollowed {
    let table = if let RuleAction::Lookup(table) = rule.action { table } else { TableId::MAIN };
    Unfollowed { source: KERNEL, table, prefix: rule.to, why: format!("the rule \"{rule}\" {why}") }
}

/// Returns the table of a port whose rules differ from those of the others, and what that leaves to the kernel. A
/// port has one table for both families.
fn port_table(
    chains: &[Vec<RuleStep>; 2],
    common: &[Vec<RuleStep>; 2],
    routes: &Routes,
) -> (TableId, Option<&'static str>) {
    let first = |chain: &[RuleStep]| match chain.first() {
        Some(RuleStep { to, ask: Ask::Table(table) }) if to.prefix_len() == 0 => Some(*table),
        _ => None,
    };
    let has = |table, is_v6: bool| routes.table(table).any(|route| route.prefix.addr().is_ipv6() == is_v6);
    let ([v4, v6], [common_v4, common_v6]) = (chains, common);
    match (first(v4), first(v6)) {
        (Some(v4), Some(v6)) if v4 == v6 => (v4, None),
        (Some(v4), _) if v6 == common_v6 && !has(v4, true) => {
            (v4, Some("is for IPv4 alone: IPv6 that comes in there stays with the kernel"))
        }
        (_, Some(v6)) if v4 == common_v4 && !has(v6, false) => {
            (v6, Some("is for IPv6 alone: IPv4 that comes in there stays with the kernel"))
        }
        _ => {
            (TableId::NOBODY, Some("is not the first one in both families: what comes in there stays with the kernel"))
        }
    }
}

/// Merges several tables that are looked up in turn into one: a route is in force if no earlier one covers it.
fn merge<'r>(steps: &[RuleStep], routes: &'r Routes) -> Vec<Chosen<'r>> {
    let mut earlier: HashSet<IpNet> = HashSet::new();
    let mut merged: Vec<Chosen<'r>> = Vec::new();
    for step in steps {
        let begin = merged.len();
        let is_covered =
            |prefix: IpNet| std::iter::successors(Some(prefix), IpNet::supernet).any(|above| earlier.contains(&above));
        merged.extend(answers(step, routes).into_iter().filter(|answer| !is_covered(answer.prefix)));
        earlier.extend(merged.iter().skip(begin).map(|chosen| chosen.prefix));
    }
    merged
}

/// Returns the routes of one rule, for the table that holds those of all rules.
fn answers<'r>(step: &RuleStep, routes: &'r Routes) -> Vec<Chosen<'r>> {
    static BLACKHOLE: KernelAction = KernelAction::Blackhole;
    static UNREACHABLE: KernelAction = KernelAction::Unreachable;
    let whole = |action| vec![Chosen { table: TableId::MAIN, prefix: step.to, protocol: 0, action }];
    match &step.ask {
        Ask::Table(table) => within(step.to, *table, routes).collect(),
        Ask::Kernel(Some(table)) => {
            within(step.to, *table, routes).map(|chosen| Chosen { action: None, ..chosen }).collect()
        }
        Ask::Kernel(None) => whole(None),
        Ask::Discard(KernelAction::Blackhole) => whole(Some(&BLACKHOLE)),
        Ask::Discard(_) => whole(Some(&UNREACHABLE)),
    }
}

/// Returns the routes of a table for the destinations inside of a prefix.
fn within(to: IpNet, table: TableId, routes: &Routes) -> impl Iterator<Item = Chosen<'_>> {
    let is_of_family = move |route: &&KernelRoute| route.prefix.addr().is_ipv4() == to.addr().is_ipv4();
    let as_main = |route, prefix| Chosen { table: TableId::MAIN, prefix, ..Chosen::from(route) };
    let around = routes.table(table).filter(is_of_family).filter(move |route| route.prefix.contains(&to));
    let longest = around.max_by_key(|route| route.prefix.prefix_len());
    let is_inside = move |route: &&KernelRoute| to != route.prefix && to.contains(&route.prefix);
    let inside = routes.table(table).filter(is_of_family).filter(is_inside);
    longest.map(|route| as_main(route, to)).into_iter().chain(inside.map(move |route| as_main(route, route.prefix)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use std::sync::Arc;

    use srv6d_kernel_routes::Message;

    use super::*;

    fn rule(priority: u32, iif: Option<&str>, action: RuleAction) -> KernelRule {
        let to = "::/0".parse().unwrap();
        let iif = iif.map(str::to_owned);
        KernelRule { priority, is_v6: true, to, iif, local_only: false, only_for: Vec::new(), action }
    }

    #[test]
    fn ports_in_a_vrf_are_in_its_table_as_the_l3mdev_rule_says() {
        let l3mdev = rule(1000, None, RuleAction::L3mdev);
        let of_port = rule(500, Some("eth2"), RuleAction::Lookup(TableId(70)));
        let main = rule(32766, None, RuleAction::Lookup(TableId::MAIN));
        let tables = |rules: &[&KernelRule]| {
            let mut routes = Routes::default();
            for rule in rules {
                routes.load(Message::Rule((*rule).clone()));
            }
            let vrf_members = ["eth1", "eth2"].map(|device| (device.to_owned(), TableId(1001))).into();
            let environment = Environment { routes: Arc::new(routes), vrf_members, ..Environment::default() };
            let written = config::parse("[kernel]", "srv6d.toml").unwrap();
            Rules::read(written.kernel.as_ref(), &environment, ["eth1", "eth2", "eth3"].into_iter()).port_tables
        };
        let found = tables(&[&of_port, &l3mdev, &main]);
        assert_eq!(found.get("eth1"), Some(&TableId(1001)));
        assert_eq!((found.get("eth2"), found.get("eth3")), (Some(&TableId(70)), None));
        assert!(tables(&[&main]).is_empty(), "nothing in the kernel leads to the VRF's table");
    }
}
