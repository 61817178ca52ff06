//! Metrics of jobs that have ranks here.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use srv6d_api::jobs::JobCounts;

use super::exposition::gauges;

pub(super) fn jobs(rows: &[JobCounts], encoder: &mut DescriptorEncoder) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    // `job` is the label of Prometheus itself.
    let rows = || rows.iter().map(|row| (vec![("job_id", row.id.as_str())], row));
    gauges(encoder, "job_ranks", "Ranks of the job that joined here", rows().map(|(l, row)| (l, row.ranks as u64)))?;
    let paths = rows().flat_map(|(labels, row)| {
        let states = [("in_force", row.in_force), ("waiting", row.waiting), ("refused", row.refused)];
        states.map(|(state, count)| ([labels.clone(), vec![("state", state)]].concat(), count as u64))
    });
    gauges(encoder, "job_paths", "Paths of the job's ranks here, by what has become of them", paths)?;
    let stale = rows().map(|(labels, row)| (labels, u64::from(row.is_stale)));
    gauges(encoder, "job_stale", "1 while the job should be placed again: the topology has changed", stale)
}
