//! Leads local applications' traffic into srv6d's own veth. It uses a routing table of srv6d's own and a rule by which
//! the kernel looks into that table before `main`.
//!
//! ```text
//! ip rule:  32500: not from all iif srv6d0 lookup 8986
//! ip route show table 8986:
//!   2001:db8:2::/64 dev srv6d0          steered
//!   10.2.0.0/16 dev srv6d0 mtu 1460     steered; fragments that the kernel makes must fit behind the outer header
//!   throw 2001:db8:2:0:1::/80           more specific in main, and not steered: main decides
//! ```
//!
//! Without a steered prefix there is neither rule nor route.
//!
//! The routes of `main` are not changed, and srv6d adds none to it: `ip route del PREFIX` removes the route that the
//! user means, even while its traffic is steered. When srv6d is killed, its routes vanish together with the veth, and
//! the rule finds an empty table.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::stream::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use rtnetlink::{Handle, IpVersion, RouteMessageBuilder};
use srv6d_addresses::TableId;
use srv6d_kernel_routes::{self as kernel_routes, KernelRule, RouteKey, Routes};

use super::veth::find;
use super::{KernelError, errno, netlink};

/// The protocol (`proto`) of these routes, as `ip route` shows it.
pub const ROUTE_PROTOCOL: u8 = 200;
/// Number of the table, after the RFC of SRv6 network programming.
pub const TABLE: u32 = 8986;
/// Priority of the rule: before `main` (32766), behind `local` (0) and the rule of VRF devices (1000).
const PRIORITY: u32 = 32500;

/// The entry of a prefix in srv6d's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// A route into the veth. The kernel fragments IPv4 packets that may be fragmented to this size.
    Steered { mtu: Option<u32> },
    /// A `throw` route: the kernel goes on to `main`.
    Throw,
}

/// The rule and the routes that are installed now.
#[derive(Debug, Default)]
pub struct Steering {
    installed: BTreeMap<IpNet, Entry>,
    has_rule: bool,
    /// Whether IPv6 routes have an MTU, too.
    tells_mtu: bool,
}

impl Steering {
    /// Sets whether IPv6 routes installed from now on have an MTU, too. With it TCP sends segments that fit from the first
    /// one on.
    pub fn tell_mtu(&mut self, tells: bool) {
        self.tells_mtu = tells;
    }

    /// Changes the table so that it leads `steered` into the veth and leaves to `main` the prefixes for which `main`
    /// has more specific routes. It goes on after an error, and returns the first one.
    ///
    /// # Errors
    /// The kernel refuses a route or the rule.
    pub async fn sync(
        &mut self,
        handle: &Handle,
        veth: (&str, u32),
        steered: &BTreeMap<IpNet, u32>,
        main: &Routes,
    ) -> Result<(), KernelError> {
        let wanted = wanted(steered, main, self.tells_mtu);
        let stale = self.installed.keys().filter(|prefix| !wanted.contains_key(*prefix)).map(|prefix| (*prefix, None));
        let stale: Vec<_> = stale.collect();
        let changes = wanted.into_iter().map(|(prefix, entry)| (prefix, Some(entry))).chain(stale).collect();
        self.put(handle, veth, changes).await
    }

    /// Like [`sync`](Self::sync), but for the case that only these prefixes have changed: those of `steered` (`None`:
    /// no longer steered), and `others` of `main`.
    ///
    /// # Errors
    /// The kernel refuses a route or the rule.
    pub async fn amend(
        &mut self,
        handle: &Handle,
        veth: (&str, u32),
        steered: &BTreeMap<IpNet, Option<u32>>,
        others: impl IntoIterator<Item = IpNet>,
        main: &Routes,
    ) -> Result<(), KernelError> {
        let inside = |prefix: &IpNet| main.inside(RouteKey { table: TableId::MAIN, prefix: *prefix });
        let inner = steered.keys().flat_map(inside).map(|key| key.prefix);
        let prefixes: BTreeSet<IpNet> = steered.keys().copied().chain(inner).chain(others).collect();
        let mut changes = BTreeMap::new();
        for prefix in prefixes {
            let is_known = || main.used_for(&RouteKey { table: TableId::MAIN, prefix }).is_some();
            let entry = match self.steered_as(prefix, steered) {
                None if is_known() && self.lies_in_steered(prefix, steered) => Some(Entry::Throw),
                entry => entry,
            };
            changes.insert(prefix, entry);
        }
        self.put(handle, veth, changes).await
    }

    fn steered_as(&self, prefix: IpNet, changed: &BTreeMap<IpNet, Option<u32>>) -> Option<Entry> {
        match changed.get(&prefix) {
            Some(mtu) => mtu.map(|mtu| steered_entry(prefix, mtu, self.tells_mtu)),
            None => self.installed.get(&prefix).copied().filter(|entry| *entry != Entry::Throw),
        }
    }

    fn lies_in_steered(&self, prefix: IpNet, changed: &BTreeMap<IpNet, Option<u32>>) -> bool {
        let mut above = std::iter::successors(prefix.supernet(), IpNet::supernet);
        above.any(|above| self.steered_as(above, changed).is_some())
    }

    /// Installs and removes entries. Additions come first, so that a prefix that only changes its entry always has a
    /// route. The rule comes with the first entry and goes with the last one.
    async fn put(
        &mut self,
        handle: &Handle,
        (name, ifindex): (&str, u32),
        changes: BTreeMap<IpNet, Option<Entry>>,
    ) -> Result<(), KernelError> {
        let is_needed = !self.has_rule && changes.values().any(Option::is_some);
        let mut result = Ok(());
        if is_needed {
            // The rule of the other srv6d would apply to our routes.
            if let Some(other) = steered_by_another(handle, name).await? {
                return Err(KernelError::SteeredBy(other));
            }
            result = self.add_rules(handle, name).await;
        }
        for (&prefix, &entry) in &changes {
            let Some(entry) = entry.filter(|entry| self.installed.get(&prefix) != Some(entry)) else { continue };
            match handle.route().add(message(prefix, entry, ifindex)).replace().execute().await {
                Ok(()) => drop(self.installed.insert(prefix, entry)),
                Err(why) => result = result.and(Err(netlink(format!("add the route {prefix} to table {TABLE}"))(why))),
            }
        }
        for prefix in changes.iter().filter(|(_, entry)| entry.is_none()).map(|(prefix, _)| *prefix) {
            let Some(entry) = self.installed.remove(&prefix) else { continue };
            let deleted = handle.route().del(message(prefix, entry, ifindex)).execute().await;
            result = result.and(unless_gone(deleted, &format!("remove the route {prefix} from")));
        }
        if self.has_rule && self.installed.is_empty() {
            self.has_rule = false;
            result = result.and(remove_leftovers(handle, name).await);
        }
        result
    }

    /// Removes all routes and the rules.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn clear(&mut self, handle: &Handle, veth: (&str, u32)) -> Result<(), KernelError> {
        self.sync(handle, veth, &BTreeMap::new(), &Routes::default()).await
    }

    async fn add_rules(&mut self, handle: &Handle, veth: &str) -> Result<(), KernelError> {
        // A rule of an earlier srv6d may name another veth.
        remove_leftovers(handle, veth).await?;
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = handle.rule().add().priority(PRIORITY).table_id(TABLE).action(RuleAction::ToTable);
            let message = request.message_mut();
            message.header.family = family;
            message.header.flags |= RuleFlags::Invert;
            message.attributes.push(RuleAttribute::Iifname(veth.to_owned()));
            request.execute().await.map_err(netlink(format!("add the rule for table {TABLE}")))?;
        }
        self.has_rule = true;
        Ok(())
    }
}

/// Removes the rules and the routes of srv6d's table: those of the veth with this name, or those that a killed srv6d
/// left behind. A `throw` route has no device, so it does not vanish with one. What another srv6d uses stays.
///
/// # Errors
/// The kernel refuses.
pub async fn remove_leftovers(handle: &Handle, veth: &str) -> Result<(), KernelError> {
    if steered_by_another(handle, veth).await?.is_some() {
        return Ok(());
    }
    for rule in rules(handle).await? {
        unless_gone(handle.rule().del(rule).execute().await, "remove the rule for")?;
    }
    for asked in [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()] {
        let routes: Vec<RouteMessage> =
            handle.route().get(asked).execute().try_collect().await.map_err(netlink("list the routes"))?;
        for route in routes.into_iter().filter(|route| route.attributes.contains(&RouteAttribute::Table(TABLE))) {
            unless_gone(handle.route().del(route).execute().await, "empty")?;
        }
    }
    Ok(())
}

/// Returns the veth of another srv6d that uses the table: a rule names it, and it exists.
///
/// # Errors
/// The kernel refuses.
pub async fn steered_by_another(handle: &Handle, veth: &str) -> Result<Option<String>, KernelError> {
    for rule in rules(handle).await? {
        if let Some(other) = names(&rule).filter(|name| *name != veth)
            && find(handle, other).await?.is_some()
        {
            return Ok(Some(other.to_owned()));
        }
    }
    Ok(None)
}

/// Returns the rules that lead into srv6d's table.
async fn rules(handle: &Handle) -> Result<Vec<RuleMessage>, KernelError> {
    let mut found = Vec::new();
    for version in [IpVersion::V4, IpVersion::V6] {
        let rules: Vec<RuleMessage> =
            handle.rule().get(version).execute().try_collect().await.map_err(netlink("list the rules"))?;
        found.extend(rules.into_iter().filter(is_own));
    }
    Ok(found)
}

/// Returns the veth to whose packets the rule does not apply.
fn names(rule: &RuleMessage) -> Option<&str> {
    rule.attributes.iter().find_map(|attribute| match attribute {
        RuleAttribute::Iifname(name) => Some(name.as_str()),
        _ => None,
    })
}

fn unless_gone(result: Result<(), rtnetlink::Error>, what: &str) -> Result<(), KernelError> {
    use nix::errno::Errno::{ENOENT, ESRCH};
    match result {
        Err(why) if errno(&why) != Some(ENOENT as i32) && errno(&why) != Some(ESRCH as i32) => {
            Err(netlink(format!("{what} table {TABLE}"))(why))
        }
        _ => Ok(()),
    }
}

/// Like [`is_own`], but for a rule of the mirrored routes.
pub(super) fn is_own_rule(rule: &KernelRule) -> bool {
    rule.priority == PRIORITY && rule.action == kernel_routes::RuleAction::Lookup(TableId(TABLE))
}

fn is_own(rule: &RuleMessage) -> bool {
    let has = |wanted: RuleAttribute| rule.attributes.contains(&wanted);
    has(RuleAttribute::Table(TABLE)) && has(RuleAttribute::Priority(PRIORITY))
}

/// Smallest MTU of IPv6 (RFC 8200 section 5).
const MIN_MTU_V6: u32 = 1280;

/// Makes the entry of a steered prefix. An IPv6 prefix needs no MTU unless `tells_mtu`: srv6d itself tells the sender,
/// which fragments its packets on its own.
fn steered_entry(prefix: IpNet, mtu: u32, tells_mtu: bool) -> Entry {
    let mtu = match prefix {
        IpNet::V4(_) => Some(mtu),
        IpNet::V6(_) => tells_mtu.then(|| mtu.max(MIN_MTU_V6)),
    };
    Entry::Steered { mtu }
}

/// Returns the entries that the table should have: the steered prefixes, and inside each of them the more specific
/// routes of `main`.
fn wanted(steered: &BTreeMap<IpNet, u32>, main: &Routes, tells_mtu: bool) -> BTreeMap<IpNet, Entry> {
    let mut wanted: BTreeMap<IpNet, Entry> =
        steered.iter().map(|(prefix, mtu)| (*prefix, steered_entry(*prefix, *mtu, tells_mtu))).collect();
    if steered.is_empty() {
        return wanted;
    }
    for prefix in steered.keys() {
        let inside = main.inside(RouteKey { table: TableId::MAIN, prefix: *prefix });
        let known_better = inside.filter(|key| !steered.contains_key(&key.prefix));
        wanted.extend(known_better.map(|key| (key.prefix, Entry::Throw)));
    }
    wanted
}

fn message(prefix: IpNet, entry: Entry, ifindex: u32) -> RouteMessage {
    let builder = RouteMessageBuilder::<IpAddr>::new().table_id(TABLE).protocol(RouteProtocol::from(ROUTE_PROTOCOL));
    let builder = match entry {
        Entry::Steered { .. } => builder.output_interface(ifindex),
        Entry::Throw => builder.kind(RouteType::Throw),
    };
    let builder = match (prefix, entry) {
        (IpNet::V4(_), Entry::Steered { .. }) => builder.scope(RouteScope::Link),
        _ => builder,
    };
    let mut message = match builder.destination_prefix(prefix.network(), prefix.prefix_len()) {
        Ok(builder) => builder.build(),
        Err(_) => RouteMessage::default(), // an IpNet's length always fits its family
    };
    if let Entry::Steered { mtu: Some(mtu) } = entry {
        message.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]));
    }
    message
}
