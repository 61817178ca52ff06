//! Metrics of heartbeats.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use srv6d_api::state::{GlbPeerRow, GlbView};

use super::exposition::{counters, gauges};

/// Encodes the metrics of heartbeats.
pub(super) fn glb(view: &GlbView, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let unit = |counted: &str| Unit::Other(counted.to_owned());
    for (name, help, value) in [
        ("sent", "Heartbeats sent, one for each neighbour", view.sent),
        ("received", "Heartbeats received and believed", view.received),
    ] {
        counters(encoder, "glb", help, &unit(name), [(vec![], value)].into_iter())?;
    }
    let rejected = view.rejected.iter().map(|(reason, count)| (vec![("reason", reason.as_str())], *count));
    counters(encoder, "glb", "Datagrams refused as heartbeats", &unit("rejected"), rejected)?;
    ages(&view.peers, encoder)?;
    // Peers name what they like, and labels have to be names of the configuration.
    let bands = view.links.iter().filter(|link| link.looked_at).filter_map(|link| Some((link, link.band?)));
    let bands = bands.map(|(link, band)| {
        (vec![("node", link.node.as_str()), ("neighbor", link.neighbor.as_str())], u64::from(band))
    });
    gauges(encoder, "glb_band", "Quality of the link from a node to its neighbour, 0 to 7; absent while unknown", bands)
}

#[allow(clippy::cast_precision_loss, reason = "it is a time")]
fn ages(peers: &[GlbPeerRow], encoder: &mut DescriptorEncoder) -> fmt::Result {
    let help = "Time since the last heartbeat of a node";
    let mut family = encoder.encode_descriptor("glb_peer_age_seconds", help, None, MetricType::Gauge)?;
    for (peer, age) in peers.iter().filter_map(|peer| Some((peer, peer.age_us?))) {
        let age = ConstGauge::new(age as f64 / 1e6);
        age.encode(family.encode_family(&[("node", peer.node.as_str())])?)?;
    }
    Ok(())
}
