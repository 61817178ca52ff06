//! `srv6d show glb`.

use srv6d_api::state::{GlbLinkRow, GlbPeerRow, GlbPortRow, GlbView};

use super::{Table, dash};
use crate::balance::bit_rate;

/// Formats the state of the heartbeats.
pub(super) fn render(view: &GlbView) -> String {
    let mut text = format!(
        "node {}, role {}: {} heartbeats sent, {} received, {} rejected\n",
        view.node,
        view.role,
        view.sent,
        view.received,
        view.rejected.values().sum::<u64>()
    );
    text.extend(view.trouble.iter().map(|why| format!("trouble: {why}\n")));
    text += &rejected(view);
    text.push('\n');
    text += &ports(&view.ports);
    if !view.peers.is_empty() {
        text.push('\n');
        text += &peers(&view.peers);
        text.push('\n');
        text += &links(&view.links);
    }
    text
}

fn rejected(view: &GlbView) -> String {
    let counted = view.rejected.iter().filter(|(_, count)| **count > 0);
    let counted: Vec<String> = counted.map(|(reason, count)| format!("{reason} {count}")).collect();
    if counted.is_empty() { String::new() } else { format!("rejected: {}\n", counted.join(", ")) }
}

fn ports(rows: &[GlbPortRow]) -> String {
    let mut table = Table::new(&["PORT", "NEIGHBOR", ">LOAD", ">QUEUE", ">CAPACITY", "TROUBLE"]);
    for row in rows {
        table.row([
            row.port.clone(),
            dash(row.neighbor.as_ref()),
            dash(row.load_permille.map(|load| percent(load.into())).as_ref()),
            dash(row.queue_permille.map(|queue| percent(queue.into())).as_ref()),
            dash(row.capacity.map(bit_rate).as_ref()),
            dash(row.trouble.as_ref()),
        ]);
    }
    table.finish("no ports are configured")
}

fn peers(rows: &[GlbPeerRow]) -> String {
    let mut table =
        Table::new(&["PEER", "PORT", "STATE", "ROLE", ">AGE", ">PERIOD", ">RECEIVED", ">MISSED", ">RESTARTS"]);
    for row in rows {
        table.row([
            row.node.clone(),
            row.port.clone(),
            row.state.clone(),
            dash(row.role.as_ref()),
            dash(row.age_us.map(|age| format!("{}.{} ms", age / 1000, age % 1000 / 100)).as_ref()),
            dash(row.period_ms.map(|period| format!("{period} ms")).as_ref()),
            row.received.to_string(),
            row.missed.to_string(),
            row.restarts.to_string(),
        ]);
    }
    table.finish("no peers are expected")
}

fn links(rows: &[GlbLinkRow]) -> String {
    let mut table = Table::new(&["PEER", "TO", "LINK", ">LOAD", ">QUEUE", ">CAPACITY", ">BAND"]);
    for row in rows {
        table.row([
            row.node.clone(),
            row.neighbor.clone(),
            if row.up { "up" } else { "down" }.to_owned(),
            percent(row.load_permille),
            percent(row.queue_permille),
            bit_rate(row.capacity),
            row.band.map_or_else(|| "unknown".to_owned(), |band| band.to_string()),
        ]);
    }
    table.finish("no peer has told of its links yet")
}

fn percent(permille: u64) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_and_the_links_behind_them_are_shown() {
        let view = GlbView {
            role: "both".to_owned(),
            node: "10.0.0.1".to_owned(),
            sent: 7,
            rejected: [("ttl".to_owned(), 2), ("port".to_owned(), 0)].into(),
            peers: vec![GlbPeerRow {
                node: "10.0.0.11".to_owned(),
                port: "eth1".to_owned(),
                state: "fresh".to_owned(),
                role: Some("helper-only".to_owned()),
                age_us: Some(12_345),
                period_ms: Some(20),
                received: 9,
                missed: 1,
                restarts: 0,
            }],
            links: vec![GlbLinkRow {
                node: "10.0.0.11".to_owned(),
                neighbor: "10.0.0.2".to_owned(),
                up: true,
                load_permille: 125,
                queue_permille: 0,
                capacity: 25_000_000_000,
                looked_at: true,
                band: None,
            }],
            ..GlbView::default()
        };
        let shown = render(&view);
        for part in ["2 rejected", "rejected: ttl 2\n", "12.3 ms", "12.5 %", "25 Gbit", "unknown"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
