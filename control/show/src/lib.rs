//! Formats the daemon's answers as tables for users; `--json` bypasses all of this.

mod balance;
mod counters;
pub mod explain;
mod fpm;
mod generation;
mod glb;
mod jobs;
pub mod packet;
mod page;
mod probes;
mod process;
pub mod rates;
mod source;
mod table;
pub mod workers;

use srv6d_addresses::TableId;
use srv6d_api::Response;
use srv6d_api::state::{
    BusyPollingStatus, DeliveryStatus, EmulatedStatus, Health, NeighborStatus, NextHopStatus, PathStatus, PortStatus,
    RouteStatus, SidStatus, UnfollowedRoute,
};
use srv6d_text::escaped_lines;

pub use generation::{time, what_waits};
pub use page::page;
pub use table::Table;

/// Formats an answer for a terminal, with a newline at its end. Names and reasons may come from other systems
/// (controllers, FRR, names of interfaces), so control characters for the terminal are escaped.
pub fn render(response: &Response) -> String {
    escaped_lines(&text_of(response))
}

fn text_of(response: &Response) -> String {
    match response {
        Response::Ports(rows) => ports(rows),
        Response::Sids(rows) => sids(rows),
        Response::Routes(rows) => routes(rows),
        Response::Unfollowed(rows) => unfollowed(rows),
        Response::Paths(rows) => paths(rows),
        Response::Neighbors(rows) => neighbors(rows),
        Response::Balance(rows) => balance::render(rows),
        Response::Glb(view) => glb::render(view),
        Response::Probes(view) => probes::render(view),
        Response::Counters(view) => counters::render(view),
        Response::Generation(view) => generation::render(view),
        Response::Source(views) => source::render(views),
        Response::Workers(rows) => workers::render(rows, None),
        Response::Process(view) => process::render(view),
        Response::Explained(view) => explain::render(view),
        Response::Matched(row) => explain::longest_match(row),
        Response::Drops(rows) => explain::drops(rows, false),
        Response::Capturing { devices } => format!("packets of {} follow\n", devices.join(", ")),
        Response::Syncing => "controllers are being asked; see `srv6d show source`\n".to_owned(),
        Response::Reloaded(reloaded) => generation::reloaded(reloaded),
        Response::Diff(diff) => generation::diff(diff),
        Response::Placed(view) => jobs::placed(view),
        Response::Occupancy(rows) => jobs::occupancies(rows),
        Response::Job(view) => jobs::one(view),
        Response::Jobs(views) => jobs::render(views),
        Response::Refused(refusal) => lines(&refusal.errors),
    }
}

fn lines(lines: &[String]) -> String {
    let mut text = lines.join("\n");
    if !lines.is_empty() {
        text.push('\n');
    }
    text
}

fn ports(rows: &[PortStatus]) -> String {
    let mut columns = vec![
        "PORT",
        "STATE",
        "ROLE",
        "TABLE",
        "MODE",
        "QUEUES",
        "MTU",
        "MAC",
        "PROG",
        ">RX",
        ">RX LOST",
        ">TX",
        ">TX LOST",
        ">TO KERNEL",
        "OFFLOAD",
        ">OFFLOADED",
    ];
    let is_any_emulated = rows.iter().any(|row| row.emulated.is_some());
    if is_any_emulated {
        columns.extend([">RATE", ">LOAD", ">QUEUE", ">PEAK", ">MARKED", ">DROPPED"]);
    }
    let mut table = Table::new(&columns);
    for row in rows {
        let mut cells = vec![
            row.name.clone(),
            health(row.state).to_owned(),
            row.role.clone(),
            vrf(row.table),
            dash(row.mode.as_ref()),
            row.queues.to_string(),
            row.mtu.to_string(),
            dash(row.mac.as_ref()),
            dash(row.xdp_program.as_ref()),
            row.rx_packets.to_string(),
            row.rx_lost.to_string(),
            row.tx_packets.to_string(),
            row.tx_lost.to_string(),
            row.to_kernel.to_string(),
            if is_by_tc(row) { "tc" } else { offload(row) }.to_owned(),
            row.offloaded.to_string(),
        ];
        if is_any_emulated {
            cells.extend(row.emulated.as_ref().map_or_else(|| [const { String::new() }; 6].map(dash_empty), emulated));
        }
        table.row(cells);
    }
    let mut text = table.finish("no ports are configured");
    let reasons = rows.iter().filter(|row| !row.reason.is_empty());
    text.extend(reasons.map(|row| format!("{}: {}\n", row.name, row.reason)));
    let roles = rows.iter().filter(|row| row.role != "kernel" && !row.role_reason.is_empty());
    text.extend(roles.map(|row| format!("{}: {}: {}\n", row.name, row.role, row.role_reason)));
    let offloads = rows.iter().filter_map(|row| Some((row, row.offload.as_ref()?)));
    let offloads = offloads.filter(|(_, offload)| !offload.reason.is_empty());
    text.extend(offloads.map(|(row, offload)| format!("{}: offload: {}\n", row.name, offload.reason)));
    let deliveries = rows.iter().filter_map(|row| Some((row, row.delivery.as_ref()?)));
    text.extend(deliveries.map(|(row, delivery)| format!("{}: delivery: {}\n", row.name, said(delivery))));
    let polled = rows.iter().filter_map(|row| Some((row, row.busy_polling.as_ref()?)));
    text.extend(polled.map(|(row, polled)| format!("{}: busy polling: {}\n", row.name, busy_polling(polled))));
    text
}

fn said(DeliveryStatus { engine, reason }: &DeliveryStatus) -> String {
    if reason.is_empty() { engine.clone() } else { format!("{engine}: {reason}") }
}

/// Whether the tc program forwards for srv6d's own veth.
fn is_by_tc(row: &PortStatus) -> bool {
    row.role == "kernel" && row.offload.as_ref().is_some_and(|offload| offload.on)
}

fn busy_polling(BusyPollingStatus { napi_ids, reason }: &BusyPollingStatus) -> String {
    let napis = napi_ids.iter().map(|id| format!("NAPI {id}"));
    napis.chain(Some(reason.clone()).filter(|reason| !reason.is_empty())).collect::<Vec<_>>().join(", ")
}

/// Formats rate and load of an emulated port, its queue now and at most in bytes, and the packets marked and dropped.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn emulated(row: &EmulatedStatus) -> [String; 6] {
    let dropped: u64 = row.dropped.values().sum();
    [
        rates::rate(Some(row.rate as f64)),
        format!("{}.{}%", row.load_permille / 10, row.load_permille % 10),
        row.queue_bytes.to_string(),
        row.peak_bytes.to_string(),
        row.marked.to_string(),
        dropped.to_string(),
    ]
}

fn offload(row: &PortStatus) -> &'static str {
    match row.offload.as_ref().map(|offload| (offload.on, offload.auto)) {
        None => "-",
        Some((true, _)) => "xdp",
        Some((false, true)) => "worker",
        Some((false, false)) => "no",
    }
}

fn sids(rows: &[SidStatus]) -> String {
    let mut table = Table::new(&["SID", "BEHAVIOR", "FLAVORS", "TO", "STATE", ">PACKETS", ">BYTES"]);
    for row in rows {
        let to = row.table.map_or_else(|| hops(&row.next_hops), |table| format!("table {}", vrf(table)));
        let to = if row.backup.is_empty() { to } else { format!("{to} backup {}", hops(&row.backup)) };
        table.row([
            row.sid.clone(),
            row.behavior.clone(),
            dash_empty(row.flavors.join(",")),
            dash_empty(to),
            health(row.state).to_owned(),
            row.packets.to_string(),
            row.bytes.to_string(),
        ]);
    }
    table.finish("no SIDs are configured")
}

fn routes(rows: &[RouteStatus]) -> String {
    let mut table = Table::new(&["PREFIX", "TABLE", "TYPE", "NEXT HOPS"]);
    for row in rows {
        table.row([row.prefix.clone(), vrf(row.table), row.kind.clone(), dash_empty(hops(&row.next_hops))]);
    }
    table.finish("no routes")
}

fn unfollowed(rows: &[UnfollowedRoute]) -> String {
    let mut table = Table::new(&["PREFIX", "TABLE", "WHY IT STAYS WITH THE KERNEL"]);
    for row in rows {
        table.row([row.prefix.clone(), vrf(row.table), row.why.clone()]);
    }
    table.finish("every route of the followed tables is followed")
}

fn paths(rows: &[PathStatus]) -> String {
    let are_probed = rows.iter().any(|row| row.probes.is_some());
    let columns = [
        "PREFIX",
        "TABLE",
        "PATH",
        "SEGMENTS",
        "uSIDS",
        "MODE",
        "WEIGHT",
        "VIA",
        "LEARNED MTU",
        ">PACKETS",
        ">BYTES",
        ">SHARE",
    ];
    let columns: Vec<&str> = columns.into_iter().chain(are_probed.then_some("PROBES")).collect();
    let mut table = Table::new(&columns);
    for row in rows {
        let usids: Vec<String> = row.usids.iter().map(|usids| usids.join(" ")).collect();
        let probes = are_probed.then(|| probed(row));
        let cells = [
            row.prefix.clone(),
            vrf(row.table),
            row.path.clone(),
            row.segments.join(", "),
            usids.join(" | "),
            row.mode.clone(),
            row.weight.to_string(),
            if row.next_hops.is_empty() { "route".to_owned() } else { hops(&row.next_hops) },
            dash(row.learned_mtu.as_ref()),
            row.packets.to_string(),
            row.bytes.to_string(),
            row.share_percent.map_or_else(|| "-".to_owned(), |share| format!("{share:.1}%")),
        ];
        table.row(cells.into_iter().chain(probes));
    }
    let mut text = table.finish("no prefixes are steered");
    let engines = || rows.iter().filter_map(|row| Some((row, row.engine.as_deref()?)));
    let by_tc = engines().filter(|(_, engine)| *engine == "tc").count();
    let all = engines().count();
    let of_all = format!("tc encapsulates what local applications send by {by_tc} of {all} paths\n");
    text.extend(Some(of_all).filter(|_| all > 0));
    let by_worker = engines().filter(|(row, _)| !row.engine_reason.is_empty());
    text.extend(by_worker.map(|(row, engine)| format!("{}: {engine}: {}\n", row.path, row.engine_reason)));
    text
}

fn neighbors(rows: &[NeighborStatus]) -> String {
    let mut table = Table::new(&["ADDRESS", "PORT", "MAC", "STATE", "NEXT HOP"]);
    for row in rows {
        table.row([
            row.address.clone(),
            row.port.clone(),
            dash(row.mac.as_ref()),
            health(row.state).to_owned(),
            if row.next_hop { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table.finish("no neighbours are known")
}

/// Formats next hops: `via fe80::2 eth1`, `on-link eth1`. Weight and state are shown only if they say something.
fn hops(hops: &[NextHopStatus]) -> String {
    let one = |hop: &NextHopStatus| {
        let to = hop.via.as_ref().map_or_else(|| "on-link".to_owned(), |via| format!("via {via}"));
        let weight = if hops.len() > 1 { format!(" weight {}", hop.weight) } else { String::new() };
        let state = if hop.state == Health::Up { String::new() } else { format!(" ({})", health(hop.state)) };
        format!("{to} {}{weight}{state}", hop.port)
    };
    hops.iter().map(one).collect::<Vec<_>>().join(", ")
}

const fn health(health: Health) -> &'static str {
    match health {
        Health::Up => "up",
        Health::Down => "down",
        Health::Unresolved => "unresolved",
        Health::Pending => "pending",
    }
}

/// Returns the name of a table, as in the `/etc/iproute2/rt_tables` that every machine has.
/// Returns what probes say of a path.
fn probed(row: &PathStatus) -> String {
    let state = dash(row.probes.as_ref());
    if row.left_out { format!("{state}, left out") } else { state }
}

fn vrf(table: u32) -> String {
    match TableId(table) {
        TableId::MAIN => "main".to_owned(),
        TableId::NOBODY => "kernel".to_owned(),
        TableId(number) => number.to_string(),
    }
}

fn dash<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}

fn dash_empty(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_named_cannot_steer_the_terminal() {
        let why = "gone\u{1b}[2J\u{202e}".to_owned();
        let row = UnfollowedRoute { prefix: "::/0\n::/1".to_owned(), table: 254, why };
        let text = render(&Response::Unfollowed(vec![row]));
        assert!(text.contains("::/0\\n::/1") && text.contains("gone\\u{1b}[2J\\u{202e}"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
    }

    #[test]
    fn tables_have_the_names_people_know() {
        assert_eq!([254, TableId::NOBODY.0, 100].map(vrf), ["main", "kernel", "100"]);
    }
}
