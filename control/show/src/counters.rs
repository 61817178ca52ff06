//! Formats `show counters`: in which counter every packet ended.

use std::fmt::Write;

use crate::table::Table;
use srv6d_api::state::{CountersView, ReasonCount};

pub fn render(view: &CountersView) -> String {
    let mut totals = Table::new(&["COUNTER", ">PACKETS", "MEANING"]);
    let mut total = |name: &str, packets: u64, meaning: &str| {
        totals.row([name.to_owned(), packets.to_string(), meaning.to_owned()]);
    };
    total("rx", view.rx, "taken from the ports");
    total("tx", view.tx, "sent");
    total("kernel", view.kernel, "handed to the kernel of this node");
    total("reply", sum(&view.reply), "answered by srv6d itself");
    total("drop", sum(&view.drop), "dropped, for the reasons below");
    total("held", view.held, "waiting for a neighbour");
    total("queued", view.queued, "in emulated ports");
    total(
        "offloaded",
        view.offloaded,
        "of rx, tx and kernel: handled by XDP programs or the tc program, past the workers",
    );
    if let Some(lost) = view.local_lost {
        total("local lost", lost, "not in rx: of local applications, dropped by the kernel in front of srv6d");
    }
    if view.ecn_unused > 0 {
        total("ecn unused", view.ecn_unused, "decapsulated: ECT outside and Not-ECT inside, which no sender makes");
    }
    let rx_lost = view.ports.iter().map(|port| port.rx_lost).sum();
    total(
        "rx lost",
        rx_lost,
        "not in rx: a worker took packets too slowly, and its ring was full; the ports are below",
    );
    let mut text = totals.finish("");
    text.push_str(&balance(view));
    text.push('\n');
    text.push_str(&reasons("REPLY", &view.reply, "no packet was answered"));
    text.push('\n');
    text.push_str(&reasons("DROP", &view.drop, "no packet was dropped"));
    text.push('\n');
    text.push_str(&super::ports(&view.ports));
    text
}

/// Formats the balance: `rx 10 = tx 7 + kernel 1 + reply 1 + drop 1 + held 0 + queued 0: balanced`.
fn balance(view: &CountersView) -> String {
    let verdict = if view.balanced {
        "balanced".to_owned()
    } else {
        format!("NOT balanced, {} unaccounted", i128::from(view.rx) - i128::from(view.accounted))
    };
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "rx {} = tx {} + kernel {} + reply {} + drop {} + held {} + queued {}: {verdict}",
        view.rx,
        view.tx,
        view.kernel,
        sum(&view.reply),
        sum(&view.drop),
        view.held,
        view.queued
    );
    text
}

/// Formats the counters that are not 0. The names of all others are in `--json`.
fn reasons(heading: &str, rows: &[ReasonCount], nothing: &str) -> String {
    let mut table = Table::new(&[heading, ">PACKETS", "MEANING"]);
    for row in rows.iter().filter(|row| row.packets > 0) {
        table.row([row.reason.clone(), row.packets.to_string(), row.meaning.clone()]);
    }
    table.finish(nothing)
}

fn sum(rows: &[ReasonCount]) -> u64 {
    rows.iter().map(|row| row.packets).sum()
}
