//! Formats `explain`, `show routes ADDRESS` and `show drops`.

use std::fmt::Write as _;

use srv6d_api::explain::{
    ExplainView, ExplainedChoice, ExplainedStep, ExplainedVerdict, HopChoice, LastDrop, LongestMatch, PathChoice,
};

use super::packet::{bytes_of, dump, summary};
use super::{dash, dash_empty, generation, health, vrf};
use crate::table::Table;

/// Number of bytes that are shown of a frame. `--json` has all.
const SHOWN: usize = 128;

/// Formats `explain`.
pub fn render(view: &ExplainView) -> String {
    let (before, after) = (bytes_of(&view.before), bytes_of(&view.after));
    // Writing to a String cannot fail.
    let path = if view.fast_path { "fast path" } else { "slow path" };
    let mut text = format!("received on {}: {}\n", view.port, summary(&before));
    if !view.in_front.is_empty() {
        let _ = writeln!(text, "in front of the worker: {}", view.in_front);
    }
    let _ = writeln!(text, "worker: {path}, generation {}", view.generation);
    text.extend(view.steps.iter().map(step));
    text += &verdict(&view.verdict, &view.port);
    if let Some(route) = &view.kernel_route {
        let _ = writeln!(text, "kernel: ip route get: {route}");
    }
    let _ = write!(text, "\nbefore: {} bytes\n{}", before.len(), dump(&before, SHOWN));
    if view.verdict.verdict != "dropped" && view.verdict.verdict != "held" {
        let _ = write!(text, "after: {}\n{}", summary(&after), dump(&after, SHOWN));
    }
    text
}

fn step(step: &ExplainedStep) -> String {
    match step {
        ExplainedStep::Port { name, role, table, mtu } => {
            format!("port      {name}: role {role}, table {}, mtu {mtu}\n", vrf(*table))
        }
        ExplainedStep::LookUp(row) => format!("look up   {}\n", matched(row)),
        ExplainedStep::Shift => "shift     the next uSID of the carrier\n".to_owned(),
        ExplainedStep::NextSegment => "segment   the next one of the SRH\n".to_owned(),
        ExplainedStep::Decapsulate { source, destination, table } => {
            format!("decap     inner packet {source} > {destination}, table {}\n", vrf(*table))
        }
        ExplainedStep::Path(choice) => choose("path", choice, path),
        ExplainedStep::NextHop(choice) => choose("next hop", choice, hop),
        ExplainedStep::Size { length, mtu } => {
            let sign = if length <= mtu { "<=" } else { ">" };
            format!("size      {length} bytes {sign} mtu {mtu}\n")
        }
    }
}

/// Formats a longest match on one line.
fn matched(row: &LongestMatch) -> String {
    let what = match (&row.prefix, row.kind.as_str()) {
        (_, "none") => "nothing matches".to_owned(),
        (Some(prefix), kind) => format!("{prefix} {kind}"),
        (None, kind) => kind.to_owned(),
    };
    let detail = if row.detail.is_empty() { String::new() } else { format!(": {}", row.detail) };
    let origin = if row.origin.is_empty() { String::new() } else { format!(" ({})", row.origin) };
    format!("{} in table {}: {what}{detail}{origin}", row.address, vrf(row.table))
}

/// Formats the answer to `show routes ADDRESS`.
pub fn longest_match(row: &LongestMatch) -> String {
    matched(row) + "\n"
}

fn choose<T>(what: &str, choice: &ExplainedChoice<T>, member: impl Fn(&T) -> (bool, usize, String)) -> String {
    let slot = choice.slot.map_or_else(String::new, |slot| format!("slot {slot} of {}", choice.slots));
    let is_one = choice.members.len() == 1;
    let line = |of: &T| {
        let (is_chosen, slots, text) = member(of);
        let sign = if is_chosen { "->" } else { "  " };
        let share = if is_one { String::new() } else { format!(", {slots} slots") };
        format!("        {sign} {text}{share}\n")
    };
    let head = match (is_one, choice.slot) {
        (true, _) => "the only one".to_owned(),
        (false, Some(_)) => slot,
        (false, None) => "by policy, as for a new flow on idle ports".to_owned(),
    };
    format!("{what:<10}{head}\n{}", choice.members.iter().map(line).collect::<String>())
}

fn path(row: &PathChoice) -> (bool, usize, String) {
    (row.chosen, row.slots, format!("{}: {}", row.path, row.segments.join(", ")))
}

fn hop(row: &HopChoice) -> (bool, usize, String) {
    let mac = row.mac.as_ref().map_or_else(|| "MAC address unknown".to_owned(), ToString::to_string);
    (row.chosen, row.slots, format!("{} on {}: {}, {mac}", row.via, row.port, health(row.state)))
}

/// Formats the end of a packet that was received by the port `received_on`.
fn verdict(row: &ExplainedVerdict, received_on: &str) -> String {
    let port = row.port.as_deref().unwrap_or("-");
    let reason = row.reason.as_deref().unwrap_or_default();
    let mut text = match row.verdict.as_str() {
        "sent" => format!("verdict   sent by {port}\n"),
        "kernel" if port == received_on => {
            format!("verdict   left to the kernel on {port}, which receives or forwards it by its own routes\n")
        }
        "kernel" => format!("verdict   handed to the kernel, which receives it on {port}\n"),
        "echo" => format!("verdict   echo request, answered by {port}\n"),
        "answered" => format!("verdict   {reason}: answered with an ICMP error by {port}, within `icmp_rate`\n"),
        "held" => {
            let neighbor = row.neighbor.as_deref().unwrap_or("-");
            format!("verdict   held until {neighbor} on {port} is resolved\n")
        }
        other => format!("verdict   {other}: {reason}\n"),
    };
    text.extend(row.meaning.iter().map(|meaning| format!("because   {meaning}\n")));
    text.extend(row.setting.iter().map(|setting| format!("setting   {setting}\n")));
    text
}

/// Formats `show drops`, with the bytes of each packet if `with_bytes` is set.
pub fn drops(rows: &[LastDrop], with_bytes: bool) -> String {
    let mut table = Table::new(&["TIME", "REASON", "WORKER", "PORT", "LOOKED UP", "NOW", "PACKET"]);
    let mut dumps = String::new();
    for row in rows {
        let head = bytes_of(&row.head);
        let port = if row.leaving { format!("to {}", row.device) } else { row.device.clone() };
        let seconds = generation::time(row.time_ms / 1000);
        let time = format!("{}.{:03}Z", seconds.trim_end_matches('Z'), row.time_ms % 1000);
        table.row([
            time.clone(),
            row.reason.clone(),
            row.worker.to_string(),
            port.clone(),
            dash(row.destination.as_ref()),
            dash_empty(row.now.clone().unwrap_or_default()),
            summary_of(&head, row.length),
        ]);
        if with_bytes {
            let _ = write!(dumps, "\n{time} {} {port}, {} bytes\n{}", row.reason, row.length, dump(&head, SHOWN));
        }
    }
    table.finish("no packet was dropped") + &dumps
}

/// Describes a packet of which only the first bytes are known.
fn summary_of(head: &[u8], length: usize) -> String {
    let known = summary(head);
    let suffix = format!(", {} bytes", head.len());
    match known.strip_suffix(&suffix) {
        Some(text) => format!("{text}, {length} bytes"),
        None => known,
    }
}
