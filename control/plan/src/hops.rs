//! Resolves `via`, `port` and `nexthops` to next hops of the packet path.

use std::net::IpAddr;
use std::ops::Range;

use srv6d_srv6::desired::{Hop, TableId};

use super::environment::is_link_local;
use super::node::or;
use super::not_unicast;
use super::ports::{Connected, Ports};
use srv6d_config::{Findings, NextHop, OneHop, Spanned};

/// The kinds of next hops that an entry accepts.
#[derive(Clone, Copy)]
pub(super) struct HopRule {
    /// Accepted address family.
    pub(super) family: HopFamily,
    /// Whether a port without `via` is accepted: the destination itself is the neighbour.
    pub(super) on_link: bool,
}

/// Families that a next hop may have.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum HopFamily {
    V4,
    V6,
    /// Either family. IPv4 over an IPv6 next hop is accepted too (RFC 8950).
    Any,
}

/// The next hops of one entry.
#[derive(Default)]
pub(super) struct Hops {
    /// Next hops that resolve.
    pub(super) resolved: Vec<Hop>,
    /// Whether any were written, resolved or not.
    pub(super) written: bool,
}

impl Ports<'_> {
    /// Resolves `via`/`port` or `nexthops` of one entry.
    pub(super) fn hops(
        &self,
        (entry, span): (&str, Range<usize>),
        one: &OneHop,
        several: &[Spanned<NextHop>],
        rule: HopRule,
        found: &mut Findings,
    ) -> Hops {
        let is_one = one.via.is_some() || one.port.is_some();
        if is_one && !several.is_empty() {
            let fix = "move `via` and `port` into `nexthops`";
            found.error(span.clone(), entry, "has both `via`/`port` and `nexthops`", fix);
        }
        let mut hops = Hops { resolved: Vec::new(), written: is_one || !several.is_empty() };
        if is_one {
            hops.resolved.extend(self.hop(entry, span, one, 1, rule, found));
        }
        // A single on-link next hop has the destination as its neighbour. Among several next hops that gives no
        // choice.
        let rule = HopRule { on_link: rule.on_link && several.len() < 2, ..rule };
        hops.resolved.extend(self.list(entry, several, rule, found));
        hops
    }

    /// Resolves a list of next hops.
    pub(super) fn list(
        &self,
        entry: &str,
        several: &[Spanned<NextHop>],
        rule: HopRule,
        found: &mut Findings,
    ) -> Vec<Hop> {
        let resolve = |hop: &Spanned<NextHop>| {
            let weight = or(&hop.get_ref().weight, 1);
            self.hop(entry, hop.span(), &hop.get_ref().hop, weight, rule, found)
        };
        several.iter().filter_map(resolve).collect()
    }

    fn hop(
        &self,
        entry: &str,
        span: Range<usize>,
        hop: &OneHop,
        weight: u16,
        rule: HopRule,
        found: &mut Findings,
    ) -> Option<Hop> {
        let Some(via) = &hop.via else {
            let Some(name) = &hop.port else {
                found.error(
                    span,
                    entry,
                    "a next hop needs `via` or `port`",
                    "add `via = \"fe80::2\", port = \"eth1\"`",
                );
                return None;
            };
            let port = self.named(name, &format!("{entry} port"), found)?;
            if !rule.on_link {
                let fix = "add `via = ...`: the address of the neighbour on that port";
                found.error(name.span(), entry, "a port alone does not say which neighbour is meant", fix);
            }
            return Some(Hop { port, via: None, weight });
        };
        let entry = &format!("{entry} via");
        check_via(via, rule, entry, found)?;
        let address = *via.get_ref();
        let port = match &hop.port {
            Some(name) => self.named(name, entry, found)?,
            None if is_link_local(address) => {
                let what = format!("{address} is link-local, and exists on every port");
                found.error(via.span(), entry, what, "add `port = ...`");
                return None;
            }
            None => self.connected_port(via, entry, found)?,
        };
        Some(Hop { port, via: Some(address), weight })
    }

    /// Returns the port with the longest connected prefix around an address.
    fn connected_port(
        &self,
        via: &Spanned<IpAddr>,
        entry: &str,
        found: &mut Findings,
    ) -> Option<srv6d_srv6::desired::PortId> {
        let address = *via.get_ref();
        let mut best = self.connected_around(address);
        let Some(first) = best.next() else {
            let fix = "add `port = ...`, or give the port an address with the prefix of that neighbour";
            let what = format!("no port has an address in the subnet of {address}");
            if self.settled() {
                found.error(via.span(), entry, what, fix);
            } else {
                found.pending(via.span(), entry, format!("waits: {what} yet"), fix);
            }
            return None;
        };
        if let Some(second) = best.find(|second| second.port != first.port) {
            let what = format!("{address} lies in a subnet of {} and of {}", self.shown(first), self.shown(second));
            found.error(via.span(), entry, what, "add `port = ...`");
        }
        Some(first.port)
    }

    fn shown(&self, connected: &Connected) -> String {
        let name = self.written.get(usize::from(connected.port.0)).map_or("", |port| port.name);
        match connected.table {
            TableId::MAIN => name.to_owned(),
            TableId(table) => format!("{name} (table {table})"),
        }
    }
}

fn check_via(via: &Spanned<IpAddr>, rule: HopRule, entry: &str, found: &mut Findings) -> Option<()> {
    let address = *via.get_ref();
    if let Some(kind) = not_unicast(address) {
        let what = format!("{address} is {kind}, and cannot be a next hop");
        found.error(via.span(), entry, what, "write the address of one neighbour");
        return None;
    }
    let (fits, wanted) = match rule.family {
        HopFamily::V4 => (address.is_ipv4(), "an IPv4 next hop, e.g. \"192.0.2.2\""),
        HopFamily::V6 => (address.is_ipv6(), "an IPv6 next hop, e.g. \"fe80::2\""),
        HopFamily::Any => (true, ""),
    };
    if !fits {
        found.error(via.span(), entry, format!("{address} is of the wrong family here"), format!("write {wanted}"));
    }
    fits.then_some(())
}
