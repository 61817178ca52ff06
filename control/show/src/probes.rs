//! `srv6d show probes`.

use srv6d_api::state::{ProbeRow, ProbesView};

use super::{Table, dash, vrf};

/// Formats the state of the probes.
pub(super) fn render(view: &ProbesView) -> String {
    let mut text = format!(
        "a probe every {} ms, judged after {} ms; dead after {} lost in a row, good again after {} ms; back to {}\n",
        view.interval_ms,
        view.timeout_ms,
        view.dead_after,
        view.hold_ms,
        dash(view.address.as_ref())
    );
    text.extend(view.trouble.iter().map(|why| format!("trouble: {why}\n")));
    let late = (view.late > 0).then_some(view.late);
    text.extend(late.map(|times| format!("srv6d was late {times} times, and judged nothing then\n")));
    text += &refused(view);
    text.push('\n');
    text += &paths(&view.paths);
    text
}

fn refused(view: &ProbesView) -> String {
    let counted = view.refused.iter().filter(|(_, count)| **count > 0);
    let counted: Vec<String> = counted.map(|(reason, count)| format!("{reason} {count}")).collect();
    if counted.is_empty() { String::new() } else { format!("refused as answers: {}\n", counted.join(", ")) }
}

fn paths(rows: &[ProbeRow]) -> String {
    let mut table = Table::new(&[
        "PREFIX", "TABLE", "PATH", "STATE", ">FOR", "USED", ">SENT", ">LOST", ">LOSS", ">CE", ">RTT p50", ">p99",
        ">SKEW", "PROBES", "WHY",
    ]);
    for row in rows {
        table.row([
            row.prefix.clone(),
            vrf(row.table),
            row.path.clone(),
            row.state.clone(),
            if row.sent == 0 { "-".to_owned() } else { seconds(row.since_ms) },
            if row.in_use { "yes" } else { "no" }.to_owned(),
            row.sent.to_string(),
            row.lost.to_string(),
            dash(row.loss_percent.map(|loss| format!("{loss} %")).as_ref()),
            row.ce.to_string(),
            dash(row.rtt_p50_us.map(milliseconds).as_ref()),
            dash(row.rtt_p99_us.map(milliseconds).as_ref()),
            dash(row.skew_us.map(milliseconds).as_ref()),
            dash(row.carrier.as_ref()),
            dash(row.why.as_ref()),
        ]);
    }
    table.finish("no prefix that is probed has a path")
}

fn seconds(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
}

fn milliseconds(microseconds: u64) -> String {
    format!("{}.{:02} ms", microseconds / 1000, microseconds % 1000 / 10)
}
