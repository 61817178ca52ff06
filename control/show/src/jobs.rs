//! Formats jobs.

use std::fmt::Write;

use crate::source::time;
use crate::table::Table;
use srv6d_api::jobs::{JobView, PlacedJob};
use srv6d_job::{Occupancy, PhaseLoad, Replaces};

pub fn render(views: &[JobView]) -> String {
    if views.is_empty() {
        return "no job has ranks here\n".to_owned();
    }
    views.iter().map(one).collect::<Vec<_>>().join("\n")
}

pub fn one(view: &JobView) -> String {
    if view.members.is_empty() {
        return format!("{}: {}\n", view.id, view.state);
    }
    let tenant = view.tenant.as_ref().map_or_else(String::new, |tenant| format!(", tenant {tenant}"));
    let mut text = format!(
        "{}: {}, generation {}, {} of {} ranks{tenant}, priority {}\n",
        view.id, view.state, view.generation, view.pattern, view.size, view.priority,
    );
    if let (Some(busiest), Some(bound)) = (view.busiest, view.bound) {
        let _ = writeln!(text, "its busiest link carries {busiest}; no placement of it alone has less than {bound}");
    }
    for (number, phase) in (1..).zip(&view.phases) {
        let PhaseLoad { bound, busiest } = phase;
        let _ = writeln!(text, "phase {number}: its busiest link carries {busiest}; alone no less than {bound}");
    }
    if let Some(Replaces { generation, flows, moved, .. }) = view.replaces {
        let _ = writeln!(text, "placed again beside generation {generation}: {moved} of {flows} paths have moved");
    }
    if let Some(why) = &view.stale {
        let _ = writeln!(text, "should be placed again: {why}");
    }
    if let Some(prepared) = &view.prepared {
        let ranks: Vec<String> = prepared.ranks.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "generation {} is prepared for rank {}", prepared.generation, ranks.join(", "));
        for what in &prepared.missing {
            let _ = writeln!(text, "not ready: {what}");
        }
    }
    for share in &view.shares {
        let _ = writeln!(text, "shares with {}: {}", share.job, share.links.join(", "));
    }
    text.push('\n');
    let mut members = Table::new(&["RANK", "HOST", "GENERATION", "STATE", "HELD BY", ">LEFT"]);
    for member in &view.members {
        members.row([
            member.rank.to_string(),
            member.host.clone(),
            member.generation.to_string(),
            member.state.clone(),
            member.hold.clone(),
            member.left_seconds.map_or_else(|| "-".to_owned(), time),
        ]);
    }
    text.push_str(&members.finish("no ranks"));
    text.push('\n');
    let mut paths = Table::new(&["RANK", "TO", "PREFIX", "STATE", "VIA", "CARRIERS"]);
    for path in &view.paths {
        paths.row([
            path.rank.to_string(),
            path.to.to_string(),
            path.prefix.clone(),
            path.state.clone(),
            path.via.join(" "),
            path.segments.join(" "),
        ]);
    }
    text.push_str(&paths.finish("no paths: what this host sends stays on it"));
    for path in &view.paths {
        if let Some(why) = &path.why {
            let _ = writeln!(text, "rank {} to {}: {why}", path.rank, path.prefix);
        }
    }
    text
}

pub fn placed(placed: &PlacedJob) -> String {
    let placement = &placed.placement;
    format!("job {} is placed: its busiest link carries {}\n", placement.job, placement.busiest)
}

pub fn occupancies(jobs: &[Occupancy]) -> String {
    let mut table = Table::new(&["JOB", ">GENERATION", ">PRIORITY", ">LINKS"]);
    for job in jobs {
        table.row([job.id.clone(), job.generation.to_string(), job.priority.to_string(), job.links.len().to_string()]);
    }
    table.finish("no job has ranks here")
}
