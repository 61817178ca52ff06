//! Metrics of emulated ports.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use srv6d_api::state::{EmulatedStatus, PortStatus};

use super::exposition::{counters, gauges, packets};

/// Upper bound of the first bucket of delays, in seconds. Each further bucket goes up to twice as much.
const FIRST_BUCKET: f64 = 1.024e-6;

/// Encodes the metrics of the ports that are emulated.
pub(super) fn ports(rows: &[PortStatus], encoder: &mut DescriptorEncoder) -> fmt::Result {
    let emulated: Vec<(&str, &EmulatedStatus)> =
        rows.iter().filter_map(|row| Some((row.name.as_str(), row.emulated.as_ref()?))).collect();
    let ports = || emulated.iter().map(|&(port, row)| (vec![("port", port)], row));
    let help = "Bytes in the queue of an emulated port";
    gauges(encoder, "port_queue_bytes", help, ports().map(|(labels, row)| (labels, row.queue_bytes)))?;
    load(&emulated, encoder)?;
    let help = "Packets marked with CE by an emulated port";
    counters(encoder, "port_marked", help, &packets(), ports().map(|(labels, row)| (labels, row.marked)))?;
    let dropped = emulated.iter().flat_map(|&(port, row)| {
        row.dropped.iter().map(move |(reason, count)| (vec![("port", port), ("reason", reason.as_str())], *count))
    });
    counters(encoder, "port_queue_dropped", "Packets dropped by an emulated port", &packets(), dropped)?;
    late(&emulated, encoder)
}

#[allow(clippy::cast_precision_loss, reason = "it is at most 1000")]
fn load(emulated: &[(&str, &EmulatedStatus)], encoder: &mut DescriptorEncoder) -> fmt::Result {
    let help = "Share of the time for which the link of an emulated port was busy";
    let mut family = encoder.encode_descriptor("port_load_ratio", help, None, MetricType::Gauge)?;
    for &(port, row) in emulated {
        let load = ConstGauge::new(row.load_permille as f64 / 1000.0);
        load.encode(family.encode_family(&[("port", port)])?)?;
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "it is a sum of measured times")]
fn late(emulated: &[(&str, &EmulatedStatus)], encoder: &mut DescriptorEncoder) -> fmt::Result {
    let help = "Time by which packets left an emulated port too late";
    let mut family = encoder.encode_descriptor("port_late", help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for &(port, row) in emulated {
        let bounds = std::iter::successors(Some(FIRST_BUCKET), |bound| Some(bound * 2.0));
        let finite = row.late.len().saturating_sub(1);
        let bounds = bounds.take(finite).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(row.late.iter().copied()).collect();
        let (sum, count) = (row.late_ns as f64 / 1e9, row.late.iter().sum());
        let labels = [("port", port)];
        let mut encoder = family.encode_family(&labels)?;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}
