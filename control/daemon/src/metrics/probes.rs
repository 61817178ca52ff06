//! Metrics of path probes.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use srv6d_api::state::{ProbeRow, ProbesView};

use super::exposition::{counters, gauges};

/// Encodes the metrics of probes.
pub(super) fn probes(view: &ProbesView, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let unit = |counted: &str| Unit::Other(counted.to_owned());
    let probed = || view.paths.iter().filter(|row| row.carrier.is_some());
    let count = |value: fn(&ProbeRow) -> u64| probed().map(move |row| (vec![("path", row.path.as_str())], value(row)));
    counters(encoder, "probe", "Probes sent along a path", &unit("sent"), count(|row| row.sent))?;
    counters(encoder, "probe", "Probes that came back", &unit("received"), count(|row| row.received))?;
    counters(encoder, "probe", "Probes that got lost", &unit("lost"), count(|row| row.lost))?;
    let help = "Probes that did not come back and prove nothing";
    counters(encoder, "probe", help, &unit("unjudged"), count(|row| row.unjudged))?;
    let help = "Probes that came back marked by a congested port";
    counters(encoder, "probe", help, &unit("ce_marked"), count(|row| row.ce))?;
    let refused = view.refused.iter().map(|(reason, count)| (vec![("reason", reason.as_str())], *count));
    counters(encoder, "probe", "Datagrams refused as probes that came back", &unit("refused"), refused)?;
    let help = "Times at which srv6d was late and judged no probe";
    counters(encoder, "probe", help, &unit("late"), [(vec![], view.late)].into_iter())?;
    let help = "1 while the probes of a path get lost";
    gauges(encoder, "path_dead", help, count(|row| u64::from(row.state == "dead")))?;
    let help = "1 while a path is left out because its probes get lost";
    gauges(encoder, "path_left_out", help, count(|row| u64::from(!row.in_use)))?;
    round_trips(view, encoder)
}

#[allow(clippy::cast_precision_loss, reason = "it is a time")]
fn round_trips(view: &ProbesView, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let help = "Round-trip time of the last probes of a path";
    let mut family = encoder.encode_descriptor("probe_rtt_seconds", help, None, MetricType::Gauge)?;
    for row in &view.paths {
        for (quantile, time) in [("0.5", row.rtt_p50_us), ("0.99", row.rtt_p99_us), ("1", row.rtt_max_us)] {
            let Some(time) = time else { continue };
            let labels = [("path", row.path.as_str()), ("quantile", quantile)];
            ConstGauge::new(time as f64 / 1e6).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}
