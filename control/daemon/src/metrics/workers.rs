//! Metrics of workers.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Unit;
use srv6d_api::state::WorkerStatus;

use super::exposition::{counters, packets};

/// Encodes the metrics of workers.
pub(super) fn workers(rows: &[WorkerStatus], encoder: &mut DescriptorEncoder) -> fmt::Result {
    let rows: Vec<(String, &WorkerStatus)> = rows.iter().map(|row| (row.worker.to_string(), row)).collect();
    let labelled = |value: fn(&WorkerStatus) -> u64| {
        rows.iter().map(move |(worker, row)| (vec![("worker", worker.as_str())], value(row)))
    };
    let rounds = Unit::Other("rounds".to_owned());
    for (name, help, value) in [
        ("worker", "Rounds of a worker", (|row| row.rounds) as fn(&WorkerStatus) -> u64),
        ("worker_busy", "Rounds with packets", |row| row.busy_rounds),
        ("worker_full", "Rounds in which a port had as many packets as a round takes", |row| row.full_rounds),
        ("worker_late", "Rounds of more than a millisecond", |row| row.late_rounds),
    ] {
        counters(encoder, name, help, &rounds, labelled(value))?;
    }
    for (name, help, value) in [
        ("worker_received", "Packets that a worker received", (|row| row.packets) as fn(&WorkerStatus) -> u64),
        ("worker_timed", "Packets of the rounds that were timed stage by stage", |row| row.timed_packets),
    ] {
        counters(encoder, name, help, &packets(), labelled(value))?;
    }
    for (name, help, value) in [
        ("worker_lived", "Time since a worker was started", (|row| row.lived_ns) as fn(&WorkerStatus) -> u64),
        ("worker_busy", "Time of a worker in rounds with packets", |row| row.busy_ns),
        ("worker_asleep", "Time that a worker was asleep", |row| row.asleep_ns),
    ] {
        seconds(encoder, name, help, labelled(value))?;
    }
    let stages = rows.iter().flat_map(|(worker, row)| {
        let labels = |stage| vec![("worker", worker.as_str()), ("stage", stage)];
        row.stages_ns.iter().map(move |stage| (labels(stage.stage.as_str()), stage.nanoseconds))
    });
    seconds(encoder, "worker_stage", "Time of a stage in the rounds that were timed", stages)
}

#[allow(clippy::cast_precision_loss, reason = "it is a time")]
fn seconds<'a>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    samples: impl Iterator<Item = (Vec<(&'static str, &'a str)>, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
    for (labels, nanoseconds) in samples {
        ConstCounter::new(nanoseconds as f64 / 1e9).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
