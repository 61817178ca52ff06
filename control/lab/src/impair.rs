//! `srv6d lab impair`: gives links of a running lab a rate, a queue, a delay or losses, and takes them away again.
//!
//! AF_XDP sends past every qdisc, so `tc` does nothing to what a srv6d forwards. The port is emulated by its srv6d instead:
//! its `srv6d.toml` is changed in place and reloaded, which loses no packet.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args;
use toml::Value;

use super::emulate::{self, Emulate};
use super::error::LabError;
use super::fabric::Lab;
use super::screen::{DIM, Screen, styled};
use super::topology::{Forwarder, NodePort, Topology};

/// Rate of a port that is given none: the highest that there is, which no port of a lab reaches.
pub const NO_LIMIT: &str = "1.6Tbit";

/// Settings of the ports. An option that is not given leaves its setting as it is.
#[derive(Clone, Debug, Default, Args)]
#[group(id = "settings", required = true, multiple = true)]
pub struct Settings {
    /// Bits per second on the wire, e.g. 100Mbit. A port that has no rate yet gets 1.6Tbit with the other options, which
    /// limits nothing
    #[arg(long, allow_hyphen_values = true)]
    rate: Option<String>,
    /// Time on the wire, e.g. 5ms, at most 1s
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    delay: Option<String>,
    /// Share of the packets that get lost, e.g. 1% or 0.01
    #[arg(long, value_name = "SHARE", value_parser = share, allow_hyphen_values = true)]
    loss: Option<f64>,
    /// Length of the queue in bytes [default: 256000]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(i64).range(1..), allow_hyphen_values = true)]
    queue: Option<i64>,
    /// Largest number of packets in the port, in the queue or on the wire [default: 512]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(8..=16384), allow_hyphen_values = true)]
    packets: Option<i64>,
    /// ECN marking: lab, azure-lossless, hpcc-100g, or off
    #[arg(long, value_name = "PROFILE")]
    ecn: Option<String>,
    /// Restore what the topology says: its settings, or else no emulation
    #[arg(long, conflicts_with_all = ["rate", "delay", "loss", "queue", "packets", "ecn"])]
    clear: bool,
}

/// Reads a share of packets: `1%` or `0.01`. A bare `1` could mean either, so it is refused.
fn share(text: &str) -> Result<f64, String> {
    let (number, part) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.trim().parse().ok().map(|number: f64| number / part);
    let is_clear = part > 1.0 || share.is_some_and(|share| share < 1.0);
    share.filter(|share| (0.0..=1.0).contains(share) && is_clear).ok_or_else(|| {
        "is no share of packets; write it in percent, from 0% to 100%, or as a number below 1, e.g. 1% or 0.01"
            .to_owned()
    })
}

impl Settings {
    /// Returns what a port becomes that has the settings `now`. `topology` is what the topology says about it.
    fn applied(&self, now: Option<Emulate>, topology: Option<&Emulate>) -> Option<Emulate> {
        if self.clear {
            return topology.cloned();
        }
        let mut emulate = now.unwrap_or_default();
        let given = [
            ("rate", self.rate.clone().map(Value::from)),
            ("queue", self.queue.map(Value::from)),
            ("packets", self.packets.map(Value::from)),
            ("delay", self.delay.clone().map(Value::from)),
            ("loss", self.loss.map(Value::from)),
        ];
        for (key, value) in given.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            emulate.set(key, value);
        }
        match self.ecn.as_deref() {
            None => {}
            Some("off") => emulate.remove("ecn"),
            Some(profile) => emulate.set("ecn", profile),
        }
        if !emulate.has("rate") {
            emulate.set("rate", NO_LIMIT);
        }
        Some(emulate)
    }
}

/// Impairs a link in both directions, or what leaves a node through a port.
///
/// # Errors
/// There is no such link, a kernel forwards at an end of it, or a srv6d refuses the settings. Then every port is as before.
pub fn run(lab: &Lab, name: &str, settings: &Settings, screen: &mut Screen) -> Result<(), LabError> {
    let directions = directions(&lab.topology, name)?;
    directions.iter().try_for_each(|direction| has_srv6d(&lab.topology, direction))?;
    let mut changes = Vec::new();
    for direction in directions {
        let now = in_file(lab, &direction.own.node, &direction.own.port)?;
        let wanted = settings.applied(now, direction.emulate);
        if let Some(emulate) = wanted.as_ref().filter(|_| !settings.clear) {
            emulate.check().map_err(|errors| refused(&errors))?;
        }
        changes.push((direction, wanted));
    }
    apply(lab, &changes)?;
    for (direction, emulate) in &changes {
        let what = emulate.as_ref().map_or_else(|| "not emulated".to_owned(), said);
        screen.line(&format!("{} to {}: {what}", from(direction), direction.peer.node));
    }
    if !settings.clear {
        screen.line(&styled(DIM, &format!("`srv6d lab impair {name} --clear` takes it away again")));
    }
    Ok(())
}

/// Gives ports these settings, or none. All ports of a node change in one reload.
///
/// # Errors
/// A file cannot be read or written, or a srv6d does not take its file. Then every port is as before.
pub fn apply(lab: &Lab, changes: &[(NodePort<'_>, Option<Emulate>)]) -> Result<(), LabError> {
    let mut before = BTreeMap::new();
    for (direction, _) in changes {
        before.insert(direction.own.node.as_str(), config(lab, &direction.own.node)?);
    }
    let mut after = before.clone();
    for (NodePort { own, .. }, emulate) in changes {
        let Some(text) = after.get_mut(own.node.as_str()) else { continue };
        *text = emulate::changed(text, &own.port, emulate.as_ref()).map_err(|why| unfit(lab, &own.node, &why))?;
    }
    let done = after.iter().try_for_each(|(node, text)| lab.reload_with(node, text).map(drop));
    if done.is_err() {
        // The first error is the one to report.
        for (node, text) in &before {
            let _ = lab.reload_with(node, text);
        }
    }
    done
}

/// Returns `emulate` of a port as the node's `srv6d.toml` has it.
///
/// # Errors
/// The file cannot be read.
pub fn in_file(lab: &Lab, node: &str, port: &str) -> Result<Option<Emulate>, LabError> {
    emulate::of_port(&config(lab, node)?, port).map_err(|why| unfit(lab, node, &why))
}

fn config(lab: &Lab, node: &str) -> Result<String, LabError> {
    let file = lab.run.config(node);
    srv6d_text::read_text(&file).map_err(|error| LabError::io("read", &file, &error))
}

fn unfit(lab: &Lab, node: &str, why: &str) -> LabError {
    LabError::Failed(format!(
        "{}: {why}\nfix: correct the file, and run the command again",
        lab.run.config(node).display()
    ))
}

/// Returns the directions that a name means: both of a link such as `leaf00-spine01`, or that of `leaf00:eth2`.
fn directions<'t>(topology: &'t Topology, name: &str) -> Result<Vec<NodePort<'t>>, LabError> {
    let links: Vec<[NodePort<'t>; 2]> = topology.links().map(|link| topology.port_pair(link)).collect();
    if let Some(one) = links.iter().flatten().find(|direction| from(direction) == name) {
        return Ok(vec![*one]);
    }
    let is_meant = |ends: &&[NodePort<'t>; 2]| ends.iter().flat_map(names).any(|known| known == name);
    match links.iter().filter(is_meant).collect::<Vec<_>>().as_slice() {
        [] => Err(no_such_link(topology, name)),
        [link] => Ok(link.to_vec()),
        several => {
            let names: Vec<String> = several.iter().map(|[first, _]| by_ports(first)).collect();
            let fix = format!("name one of them by its ports: {}", names.join(", "));
            Err(LabError::Invalid(format!("{name:?} are {} links\nfix: {fix}", names.len())))
        }
    }
}

fn no_such_link(topology: &Topology, name: &str) -> LabError {
    let links: Vec<String> =
        topology.links().map(|link| link.ends.each_ref().map(|end| end.node.as_str()).join("-")).collect();
    let mut fix = format!("name one of the links: {}", links.join(", "));
    if let Some(end) = topology.links().next().and_then(|link| link.ends.first()) {
        let _ = write!(fix, "; or one direction: {}:{} is what {0} sends through {1}", end.node, end.port);
    }
    LabError::Invalid(format!("there is no link {name:?} in this lab\nfix: {fix}"))
}

/// Returns the names of a link, seen from one end: by its nodes, and by its ports.
fn names(direction: &NodePort<'_>) -> [String; 3] {
    let (own, peer) = (&direction.own.node, &direction.peer.node);
    [format!("{own}-{peer}"), format!("{own}_{peer}"), by_ports(direction)]
}

fn by_ports(direction: &NodePort<'_>) -> String {
    format!("{}-{}", from(direction), from(&direction.back()))
}

/// Returns the name of a direction: the node and the port that it leaves by.
pub fn from(direction: &NodePort<'_>) -> String {
    format!("{}:{}", direction.own.node, direction.own.port)
}

fn has_srv6d(topology: &Topology, direction: &NodePort<'_>) -> Result<(), LabError> {
    let end = direction.own;
    if topology.node(&end.node).is_some_and(|node| node.kind == Forwarder::Srv6d) {
        return Ok(());
    }
    Err(LabError::Invalid(format!(
        "{} forwards in its kernel, and only a srv6d emulates its ports\n\
         fix: srv6d lab exec {} -- tc qdisc add dev {} root netem ..., which the kernel obeys; `srv6d lab impair {}` is \
         the other direction, if a srv6d is there",
        end.node,
        end.node,
        end.port,
        from(&direction.back())
    )))
}

fn refused(errors: &srv6d_config::Errors) -> LabError {
    let said = |error: &srv6d_config::Diagnostic| {
        let key = error.entry.rsplit(' ').next().unwrap_or_default();
        let what = if key == "emulate" { error.what.clone() } else { format!("--{key}: {}", error.what) };
        format!("error: {what}\nfix: {}", error.fix)
    };
    LabError::Invalid(errors.0.iter().map(said).collect::<Vec<_>>().join("\n\n"))
}

/// Returns the settings in words: `rate 10Mbit, delay 5ms`.
fn said(emulate: &Emulate) -> String {
    let keys = ["rate", "queue", "packets", "delay", "loss", "ecn"];
    let settings = keys.iter().filter_map(|key| Some(format!("{key} {}", emulate.shown(key)?)));
    let no_limit = emulate.shown("rate").is_some_and(|rate| rate == NO_LIMIT);
    settings.collect::<Vec<_>>().join(", ") + if no_limit { " (a rate that limits nothing)" } else { "" }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::FABRIC;

    fn fabric() -> Topology {
        Topology::parse(FABRIC, "fabric").unwrap()
    }

    fn named(topology: &Topology, name: &str) -> Vec<String> {
        directions(topology, name).unwrap().iter().map(from).collect()
    }

    #[test]
    fn a_link_has_two_directions_and_a_port_is_one() {
        let topology = fabric();
        for name in ["leaf00-spine01", "spine01-leaf00", "leaf00_spine01", "spine01:eth1-leaf00:eth2"] {
            assert_eq!(named(&topology, name), ["leaf00:eth2", "spine01:eth1"], "{name}");
        }
        assert_eq!(named(&topology, "spine01:eth1"), ["spine01:eth1"]);
    }

    #[test]
    fn a_wrong_name_is_answered_with_all_links() {
        let error = directions(&fabric(), "leaf00-leaf01").unwrap_err().to_string();
        assert!(error.contains("no link \"leaf00-leaf01\"") && error.contains("leaf02-spine02"), "{error}");
        assert!(error.contains("host00:eth1 is what host00 sends through eth1"), "{error}");
    }

    #[test]
    fn parallel_links_are_named_by_their_ports() {
        let link = "\n[[link]]\nends = [{ node = \"leaf00\", port = \"eth9\", addresses = [\"2001:db8:9::1/64\"] },\
                    { node = \"spine01\", port = \"eth9\", addresses = [\"2001:db8:9::2/64\"] }]\n";
        let topology = Topology::parse(&format!("{FABRIC}{link}"), "two").unwrap();
        let error = directions(&topology, "leaf00-spine01").unwrap_err().to_string();
        assert!(error.contains("are 2 links") && error.contains("leaf00:eth9-spine01:eth9"), "{error}");
        assert_eq!(named(&topology, "leaf00:eth9-spine01:eth9"), ["leaf00:eth9", "spine01:eth9"]);
    }

    #[test]
    fn only_what_is_given_changes() {
        let slow = Settings { rate: Some("10Mbit".into()), loss: Some(0.01), ..Settings::default() };
        let once = slow.applied(None, None);
        assert_eq!(once.as_ref().unwrap().to_string(), "{ rate = \"10Mbit\", loss = 0.01 }");
        let late = Settings { delay: Some("5ms".into()), ecn: Some("lab".into()), ..Settings::default() };
        let twice = late.applied(once, None);
        let all = "{ rate = \"10Mbit\", delay = \"5ms\", loss = 0.01, ecn = \"lab\" }";
        assert_eq!(twice.as_ref().unwrap().to_string(), all);
        let unmarked = Settings { ecn: Some("off".into()), ..Settings::default() }.applied(twice.clone(), None);
        assert!(!unmarked.unwrap().has("ecn"));
        let clear = Settings { clear: true, ..Settings::default() };
        assert_eq!(clear.applied(twice.clone(), None), None);
        let topology = late.applied(None, None);
        assert_eq!(clear.applied(twice, topology.as_ref()), topology);
    }

    #[test]
    fn without_a_rate_nothing_is_limited() {
        let late = Settings { delay: Some("5ms".into()), ..Settings::default() }.applied(None, None).unwrap();
        assert_eq!(late.to_string(), "{ rate = \"1.6Tbit\", delay = \"5ms\" }");
        late.check().unwrap();
        assert!(said(&late).ends_with("(a rate that limits nothing)"));
    }

    #[test]
    fn a_share_is_in_percent_or_below_one() {
        assert_eq!(["1%", "0.01", "100%", "0", "0%"].map(share), [0.01, 0.01, 1.0, 0.0, 0.0].map(Ok));
        for text in ["1", "101%", "-1%", "5", "x", "", "NaN", "inf%"] {
            assert!(share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_wrong_setting_is_named_by_its_option() {
        let wrong = Settings { rate: Some("10".into()), ..Settings::default() }.applied(None, None).unwrap();
        let error = refused(&wrong.check().unwrap_err()).to_string();
        assert!(error.starts_with("error: --rate: \"10\" does not fit here\nfix: write a rate"), "{error}");
    }
}
