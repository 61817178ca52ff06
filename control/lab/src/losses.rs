//! Finds out where packets of a lab were lost: in full rings, dropped by srv6d for some reason, or dropped by the
//! kernels.

use srv6d_netns as netns;
use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use srv6d_api::{Request, Response, Topic};

use super::fabric::Lab;
use super::screen::Screen;
use super::topology::{Forwarder, Node};

/// Numbers of packets lost so far, by place and reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses(BTreeMap<String, u64>);

impl Losses {
    /// Reads the losses of every node until now. A node that does not answer is left out.
    pub(super) fn of(lab: &Lab) -> Self {
        let mut losses = Self::default();
        for node in lab.topology.nodes() {
            if node.kind == Forwarder::Srv6d {
                losses.of_srv6d(lab, node);
            }
            losses.of_the_kernel(lab, node);
        }
        losses
    }

    /// Prints where packets have been lost since `before`, if a node counted any.
    pub(super) fn show(&self, before: &Self, screen: &mut Screen) {
        let lines = self.since(before);
        if !lines.is_empty() {
            screen.line("\n  Where nodes have lost packets meanwhile:");
        }
        for line in lines {
            screen.line(&format!("    {line}"));
        }
    }

    /// Returns what has been lost since `before`, one line for each place.
    fn since(&self, before: &Self) -> Vec<String> {
        let more = self.0.iter().filter_map(|(place, packets)| {
            let more = packets.saturating_sub(before.0.get(place).copied().unwrap_or_default());
            (more > 0).then(|| format!("{place}: {more}"))
        });
        more.collect()
    }

    fn add(&mut self, place: String, packets: u64) {
        *self.0.entry(place).or_default() += packets;
    }

    fn of_srv6d(&mut self, lab: &Lab, Node { name, .. }: &Node) {
        let ask = |topic| lab.ask(name, &Request::Show { topic });
        if let Ok(Response::Ports(ports)) = ask(Topic::Ports) {
            for port in ports {
                self.add(format!("{name} {}, receive ring full", port.name), port.rx_lost);
                self.add(format!("{name} {}, transmit ring full", port.name), port.tx_lost);
            }
        }
        if let Ok(Response::Counters(counters)) = ask(Topic::Counters) {
            // Packets that found a transmit ring full are counted at their port already.
            for row in counters.drop.into_iter().filter(|row| row.reason != "tx_full") {
                self.add(format!("{name}, dropped by srv6d for {} ({})", row.reason, row.meaning), row.packets);
            }
        }
    }

    fn of_the_kernel(&mut self, lab: &Lab, Node { name, .. }: &Node) {
        let netns = lab.netns(name);
        let shown = netns::run(netns::tool("ip").args(["-n", &netns, "-s", "-j", "link", "show"]));
        let links: Value = serde_json::from_str(&shown.unwrap_or_default()).unwrap_or_default();
        for link in links.as_array().into_iter().flatten() {
            for (way, said) in [("rx", "received (full rings among them)"), ("tx", "to be sent")] {
                let place = format!("{name} {}, dropped by the kernel, {said}", text(link, "ifname"));
                self.add(place, number(link, way, "dropped") + number(link, way, "errors"));
            }
        }
        let full = netns::enter(&netns, || {
            Ok::<_, netns::Error>(
                ["snmp", "snmp6"].map(|file| fs::read_to_string(format!("/proc/thread-self/net/{file}"))),
            )
        });
        let [v4, v6] = full.ok().unwrap_or_else(|| ["", ""].map(|text| Ok(text.to_owned())));
        let full = buffer_errors(&v4.unwrap_or_default()) + buffer_errors_v6(&v6.unwrap_or_default());
        self.add(format!("{name}, a UDP socket's buffer full"), full);
    }
}

fn text<'v>(link: &'v Value, key: &str) -> &'v str {
    link.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Reads a counter from the output of `ip -s -j link show`.
fn number(link: &Value, way: &str, what: &str) -> u64 {
    let count = link.get("stats64").and_then(|all| all.get(way)).and_then(|way| way.get(what));
    count.and_then(Value::as_u64).unwrap_or_default()
}

/// Reads receive buffer errors from `/proc/net/snmp`, which has a line of names and a line of numbers.
fn buffer_errors(snmp: &str) -> u64 {
    let mut lines = snmp.lines().filter(|line| line.starts_with("Udp:")).map(str::split_whitespace);
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return 0 };
    let of_buffers = names.zip(numbers).find(|(name, _)| *name == "RcvbufErrors");
    of_buffers.and_then(|(_, number)| number.parse().ok()).unwrap_or_default()
}

/// Reads receive buffer errors from `/proc/net/snmp6`, which has a name and a number in each line.
fn buffer_errors_v6(snmp6: &str) -> u64 {
    let line = snmp6.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_come_since_is_said() {
        let losses =
            |of: &[(&str, u64)]| Losses(of.iter().map(|(place, packets)| ((*place).to_owned(), *packets)).collect());
        let before = losses(&[("leaf00 eth1, receive ring full", 4), ("leaf00, dropped by srv6d for no_route", 2)]);
        let after = losses(&[
            ("leaf00 eth1, receive ring full", 9),
            ("leaf00, dropped by srv6d for no_route", 2),
            ("host02, a UDP socket's buffer full", 1),
        ]);
        assert_eq!(
            after.since(&before),
            ["host02, a UDP socket's buffer full: 1", "leaf00 eth1, receive ring full: 5"]
        );
        assert_eq!(after.since(&after), Vec::<String>::new());
    }

    #[test]
    fn full_buffers_are_read_by_name() {
        let snmp = "Ip: Forwarding\nIp: 1\nUdp: InDatagrams NoPorts RcvbufErrors SndbufErrors\nUdp: 10 0 7 1\n\
            UdpLite: InDatagrams RcvbufErrors\nUdpLite: 0 3\n";
        assert_eq!(buffer_errors(snmp), 7);
        assert_eq!(buffer_errors_v6("Udp6InErrors\t2\nUdp6RcvbufErrors      \t5\n"), 5);
        assert_eq!((buffer_errors(""), buffer_errors_v6("")), (0, 0));
    }
}
