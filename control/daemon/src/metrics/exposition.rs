//! Formats the metrics of one scrape.
//!
//! Labels are names from the configuration (ports, SIDs, paths) and the counters' own names: their number is limited by
//! the configuration, never by traffic.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use srv6d_api::state::Published;

use super::{emulated, glb, jobs, probes, workers};

use srv6d_api::state::{Health, SourceView, State};

/// Formats the state in the `OpenMetrics` text format.
///
/// # Errors
/// Never in practice: writing to a string does not fail.
pub fn exposition(state: State) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("srv6d");
    registry.register_collector(Box::new(Collector(state)));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Collector(State);

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let encoder = &mut encoder;
        self.totals(encoder)?;
        workers::workers(&self.0.workers, encoder)?;
        self.ports(encoder)?;
        emulated::ports(&self.0.counters.ports, encoder)?;
        self.sids(encoder)?;
        self.paths(encoder)?;
        self.sources(encoder)?;
        self.fpm(encoder)?;
        if let Some(view) = &self.0.glb {
            glb::glb(view, encoder)?;
        }
        if let Some(view) = &self.0.probes {
            probes::probes(view, encoder)?;
        }
        jobs::jobs(&self.0.jobs, encoder)?;
        self.tables(encoder)?;
        self.daemon(encoder)
    }
}

/// One sample: its labels and its value.
pub(super) type Sample<'a> = (Vec<(&'static str, &'a str)>, u64);

pub(super) fn counters<'a>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    unit: &Unit,
    samples: impl Iterator<Item = Sample<'a>>,
) -> std::fmt::Result {
    let counter = ConstCounter::new(0u64);
    let mut family = encoder.encode_descriptor(name, help, Some(unit), counter.metric_type())?;
    for (labels, value) in samples {
        let counter = ConstCounter::new(value);
        if labels.is_empty() {
            return counter.encode(family);
        }
        counter.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

pub(super) fn gauges<'a>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    samples: impl Iterator<Item = Sample<'a>>,
) -> std::fmt::Result {
    let gauge = ConstGauge::new(0i64);
    let mut family = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
    for (labels, value) in samples {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        if labels.is_empty() {
            return gauge.encode(family);
        }
        gauge.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauge(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: u64) -> std::fmt::Result {
    gauges(encoder, name, help, [(vec![], value)].into_iter())
}

pub(super) fn packets() -> Unit {
    Unit::Other("packets".to_owned())
}

impl Collector {
    fn totals(&self, encoder: &mut DescriptorEncoder) -> std::fmt::Result {
        let view = &self.0.counters;
        let all = [
            ("received", "Packets taken from the ports", view.rx),
            ("sent", "Packets sent", view.tx),
            ("kernel", "Packets handed to the kernel of this node", view.kernel),
        ];
        for (name, help, value) in all {
            counters(encoder, name, help, &packets(), [(vec![], value)].into_iter())?;
        }
        let local_lost = view.local_lost.into_iter().map(|lost| (vec![], lost));
        let help = "Packets of local applications that the kernel dropped in front of srv6d";
        counters(encoder, "local_lost", help, &packets(), local_lost)?;
        let help = "Decapsulated packets that were ECT outside and Not-ECT inside";
        counters(encoder, "ecn_unused", help, &packets(), [(vec![], view.ecn_unused)].into_iter())?;
        let reasons = |rows: &'_ [srv6d_api::state::ReasonCount]| -> Vec<(String, u64)> {
            rows.iter().map(|row| (row.reason.clone(), row.packets)).collect()
        };
        for (name, help, rows) in [
            ("reply", "Packets answered by srv6d itself", reasons(&view.reply)),
            ("drop", "Packets dropped", reasons(&view.drop)),
        ] {
            let samples = rows.iter().map(|(reason, value)| (vec![("reason", reason.as_str())], *value));
            counters(encoder, name, help, &packets(), samples)?;
        }
        gauge(encoder, "held_packets", "Packets waiting for a neighbour", view.held)?;
        gauge(encoder, "queued_packets", "Packets in emulated ports", view.queued)
    }

    fn ports(&self, encoder: &mut DescriptorEncoder) -> std::fmt::Result {
        // A value that is counted only per device is assigned to one of its ports, so that every sum over ports is
        // right.
        let rows = &self.0.counters.ports;
        let ports = || rows.iter().map(|row| (vec![("port", row.name.as_str()), ("device", row.device.as_str())], row));
        counters(
            encoder,
            "port_received",
            "Claimed packets received",
            &packets(),
            ports().map(|(l, r)| (l, r.rx_packets)),
        )?;
        counters(
            encoder,
            "port_received",
            "Claimed bytes received",
            &Unit::Bytes,
            ports().map(|(l, r)| (l, r.rx_bytes)),
        )?;
        counters(
            encoder,
            "port_lost",
            "Claimed packets lost to a full ring",
            &packets(),
            ports().map(|(l, r)| (l, r.rx_lost)),
        )?;
        counters(
            encoder,
            "port_unsent",
            "Packets dropped because the transmit ring was full",
            &packets(),
            ports().map(|(l, r)| (l, r.tx_lost)),
        )?;
        counters(encoder, "port_sent", "Packets sent", &packets(), ports().map(|(l, r)| (l, r.tx_packets)))?;
        counters(encoder, "port_sent", "Bytes sent", &Unit::Bytes, ports().map(|(l, r)| (l, r.tx_bytes)))?;
        counters(
            encoder,
            "port_unclaimed",
            "Packets left to the kernel",
            &packets(),
            ports().map(|(l, r)| (l, r.to_kernel)),
        )?;
        counters(
            encoder,
            "port_offloaded",
            "Packets received and forwarded by the XDP program or the tc program, past the workers",
            &packets(),
            ports().map(|(l, r)| (l, r.offloaded)),
        )?;
        let of_ports = rows.iter().filter(|row| row.role != "kernel");
        let asked = of_ports.filter_map(|row| Some((row, row.offload.as_ref().filter(|offload| !offload.auto)?)));
        let offload = asked.map(|(row, offload)| (vec![("port", row.name.as_str())], u64::from(offload.on)));
        gauges(
            encoder,
            "port_offload",
            "1 while the XDP program of a port with offload = \"xdp\" forwards plain packets",
            offload,
        )?;
        let up = rows.iter().map(|row| (vec![("port", row.name.as_str())], u64::from(row.state == Health::Up)));
        gauges(encoder, "port_up", "1 while the port can carry packets", up)
    }

    fn sids(&self, encoder: &mut DescriptorEncoder) -> std::fmt::Result {
        let rows = || {
            self.0.sids.iter().map(|row| (vec![("sid", row.sid.as_str()), ("behavior", row.behavior.as_str())], row))
        };
        counters(encoder, "sid", "Packets served by a local SID", &packets(), rows().map(|(l, r)| (l, r.packets)))?;
        counters(encoder, "sid", "Bytes served by a local SID", &Unit::Bytes, rows().map(|(l, r)| (l, r.bytes)))?;
        let up = rows().map(|(labels, row)| (labels, u64::from(row.state == Health::Up)));
        gauges(encoder, "sid_up", "1 while a packet for the SID can be served", up)
    }

    fn paths(&self, encoder: &mut DescriptorEncoder) -> std::fmt::Result {
        let rows =
            || self.0.paths.iter().map(|row| (vec![("path", row.path.as_str()), ("prefix", row.prefix.as_str())], row));
        counters(encoder, "path", "Packets encapsulated onto a path", &packets(), rows().map(|(l, r)| (l, r.packets)))?;
        counters(encoder, "path", "Bytes encapsulated onto a path", &Unit::Bytes, rows().map(|(l, r)| (l, r.bytes)))
    }

    fn sources(&self, encoder: &mut DescriptorEncoder) -> std::fmt::Result {
        let controllers: Vec<SourceView> = self.0.sources.iter().filter(|row| row.fpm.is_none()).cloned().collect();
        let rows = &controllers;
        if rows.is_empty() {
            return Ok(());
        }
        let by = |value: fn(&SourceView) -> u64| {
            rows.iter().map(move |row| (vec![("source", row.source.as_str())], value(row))).collect::<Vec<_>>()
        };
        // The metric's name ends in what is counted, where other metrics have their unit:
        // `srv6d_source_attempts_total`.
        let of = |counted: &str| Unit::Other(counted.to_owned());
        let attempts = by(|row| row.attempts);
        counters(encoder, "source", "Rounds of requests to a path controller", &of("attempts"), attempts.into_iter())?;
        let successes = by(|row| row.successes);
        counters(
            encoder,
            "source",
            "Rounds after which every peer was fresh",
            &of("successes"),
            successes.into_iter(),
        )?;
        let failures = rows.iter().flat_map(|row| {
            let failure = move |(cause, count): (&'_ String, &u64)| (row.source.clone(), cause.clone(), *count);
            row.failures.iter().map(failure).collect::<Vec<_>>()
        });
        let failures: Vec<(String, String, u64)> = failures.collect();
        let samples = failures
            .iter()
            .map(|(source, cause, count)| (vec![("source", source.as_str()), ("cause", cause.as_str())], *count));
        counters(encoder, "source", "Failed requests and refused answers", &of("failures"), samples)?;
        for (name, help, samples) in [
            ("source_peers", "Peers about which a path controller is asked", by(|row| row.peers_total as u64)),
            ("source_fresh_peers", "Peers whose paths are current", by(|row| row.peers_fresh as u64)),
            ("source_round_milliseconds", "Time of the last round", by(|row| row.last_duration_ms)),
        ] {
            gauges(encoder, name, help, samples.into_iter())?;
        }
        // A controller that has never answered has no age. The metric is absent then, which an alert can detect.
        let ages = rows.iter().filter_map(|row| Some((vec![("source", row.source.as_str())], row.age_seconds?)));
        gauges(encoder, "source_age_seconds", "Time since the last round after which every peer was fresh", ages)
    }

    fn fpm(&self, encoder: &mut DescriptorEncoder) -> std::fmt::Result {
        let Some(row) = self.0.sources.iter().find(|row| row.fpm.is_some()) else { return Ok(()) };
        let Some(fpm) = &row.fpm else { return Ok(()) };
        for (name, help, value) in [
            ("fpm_connected", "1 while zebra is connected", u64::from(row.state == "connected")),
            ("fpm_routes", "Routes that FRR announces", fpm.routes as u64),
            ("fpm_sids", "SIDs that FRR announces in messages of their own", fpm.sids as u64),
            ("fpm_stale_routes", "Routes and SIDs of an earlier connection, not announced again", fpm.stale as u64),
            ("fpm_unfollowed_routes", "Announced routes that are not in force", fpm.unfollowed as u64),
        ] {
            gauge(encoder, name, help, value)?;
        }
        for (unit, help, value) in [
            ("connections", "Connections of zebra", fpm.connections),
            ("messages", "Netlink messages of zebra", fpm.messages),
            ("malformed", "Messages that could not be parsed", fpm.malformed),
            ("unknown_attributes", "Unknown attributes", fpm.unknown_attributes),
            ("swept", "Routes and SIDs removed because they were not announced again", fpm.swept),
            ("turned_away", "Connections whose user or address is not allowed", fpm.turned_away),
            ("refused", "Announcements refused because there were too many", fpm.refused),
            ("answers", "Routes that zebra was told are in force", fpm.answers),
        ] {
            counters(encoder, "fpm", help, &Unit::Other(unit.to_owned()), [(vec![], value)].into_iter())?;
        }
        let ignored = fpm.ignored.iter().map(|(kind, count)| (vec![("kind", kind.as_str())], *count));
        counters(encoder, "fpm", "Messages that are not used", &Unit::Other("ignored".to_owned()), ignored)
    }

    fn tables(&self, encoder: &mut DescriptorEncoder) -> std::fmt::Result {
        let generation = self.0.generation.generations.first().map_or(0, |row| row.generation);
        gauge(encoder, "generation", "Generation of the tables in force", generation)?;
        let Published { whole, whole_for_amendment, in_place, copied } = self.0.generation.tables;
        let compiled = [("generation", whole - whole_for_amendment), ("amendment", whole_for_amendment)];
        let compiled = compiled.map(|(cause, count)| (vec![("cause", cause)], count));
        let help =
            "Whole builds of the tables, for a new generation or for an amendment that could not be made in place";
        counters(encoder, "tables", help, &Unit::Other("compiled".to_owned()), compiled.into_iter())?;
        let amended = [("standby", in_place - copied), ("fresh", copied)];
        let amended = amended.map(|(copy, count)| (vec![("copy", copy)], count));
        let help = "Amendments of the tables made in place, in the standby copy or in a fresh one";
        counters(encoder, "tables", help, &Unit::Other("amended".to_owned()), amended.into_iter())?;
        let unresolved = self.0.neighbors.iter().filter(|row| row.next_hop && row.state == Health::Unresolved).count();
        gauge(encoder, "unresolved_next_hops", "Next hops without a MAC address", unresolved as u64)
    }

    /// Encodes metrics of the daemon itself, and what `show generation` lists below its table.
    fn daemon(&self, encoder: &mut DescriptorEncoder) -> std::fmt::Result {
        let view = &self.0.generation;
        let version = (vec![("version", view.daemon.as_str()), ("node", view.node.as_str())], 1);
        gauges(encoder, "build_info", "1, with the daemon's version and the node's name", [version].into_iter())?;
        for (name, help, value) in [
            ("start_time_seconds", "When the daemon was started, in seconds since 1970-01-01 UTC", view.started),
            ("kernel_memory_bytes", "Kernel memory of the daemon's BPF maps and programs", view.kernel_memory),
            ("pending_entries", "Entries of the configuration that wait for the machine", view.pending.len() as u64),
            ("warnings", "Warnings about accepted entries of the configuration", view.warnings.len() as u64),
            ("reload_refused", "1 while the newest reload was refused", u64::from(!view.refused.is_empty())),
            ("rollback_held", "1 while a rollback keeps sources from being followed", u64::from(view.held.is_some())),
        ] {
            gauge(encoder, name, help, value)?;
        }
        Ok(())
    }
}
