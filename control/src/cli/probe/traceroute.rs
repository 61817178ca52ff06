//! `srv6d traceroute`: a line for each node that answers, with what it has used up of the carrier.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use srv6d_command::{Failure, output};
use srv6d_probe::{Answer, Hop, Kind, Known, Payload, Probe, Ran, RawNetwork, SILENT_HOPS, Trace, Used, trace};
use srv6d_text::escaped;

use super::{Along, Prepared, Quoted, failed, milliseconds, quoted, rounded, segments, time, watch_ctrl_c};

/// Arguments of `srv6d traceroute`.
#[derive(Debug, Args)]
pub struct TracerouteArguments {
    #[command(flatten)]
    along: Along,
    /// Send UDP datagrams to port 33434 in place of echo requests
    #[arg(long)]
    udp: bool,
    /// Largest number of hops
    #[arg(long, value_name = "NUMBER", default_value_t = 30, value_parser = clap::value_parser!(u8).range(1..))]
    max_hops: u8,
    /// Number of probes for each hop
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=10))]
    probes: u8,
    /// Longest time to wait for the answers of a hop, e.g. 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    timeout: Duration,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    segments: Vec<String>,
    to: Option<String>,
    source: String,
    block: String,
    hops: Vec<HopReport>,
    end: &'static str,
}

/// One hop.
#[derive(Debug, Serialize)]
struct HopReport {
    hop: u8,
    answers: Vec<Line>,
    /// Number of probes without an answer.
    silent: usize,
}

/// The same answer to one or more probes of a hop.
#[derive(Debug, Serialize)]
struct Line {
    address: String,
    node: Option<String>,
    answer: String,
    has_arrived: bool,
    #[serde(flatten)]
    quoted: Option<Quoted>,
    sids: Vec<SidReport>,
    /// Number of SIDs that are used up then. `None`: the destination is none of this carrier.
    used: Option<usize>,
    rtt_ms: Vec<f64>,
}

/// A SID that was used up.
#[derive(Debug, Serialize)]
struct SidReport {
    sid: String,
    behavior: Option<String>,
    /// Whether the node is known to have it. Otherwise it was used up there, or on the way there.
    here: bool,
}

/// Runs a traceroute. The exit status is 1 if no probe has arrived at the end.
pub fn traceroute(arguments: &TracerouteArguments, socket: &Path) -> Result<(), Failure> {
    let payload = if arguments.udp { Payload::Udp } else { Payload::Echo };
    let Prepared { probe, known } = arguments.along.prepare(payload, socket)?;
    let mut network = RawNetwork::open(arguments.along.interface.as_deref()).map_err(|why| failed(&why))?;
    let settings = Trace { max_hops: arguments.max_hops, probes: arguments.probes, timeout: arguments.timeout };
    let (is_stopped, json) = (watch_ctrl_c()?, arguments.along.json);
    let mut followed = Followed { probe: &probe, known: &known, used: 0, hops: Vec::new() };
    if !json {
        output::print(&heading(&probe, arguments.max_hops))?;
    }
    let mut printed = Ok(());
    let ran = trace(&probe, settings, &mut network, is_stopped, |hop| {
        let report = followed.hop(hop);
        if !json && printed.is_ok() {
            printed = output::print(&text(&report));
        }
        followed.hops.push(report);
    });
    let ran = ran.map_err(|why| failed(&why))?;
    printed?;
    let has_arrived = followed.has_arrived();
    if json {
        output::print_json(&followed.report(ran))?;
    } else if let Some(why) = end(ran, arguments.max_hops) {
        output::print(&format!("{why}\n"))?;
    }
    if has_arrived { Ok(()) } else { Err(Failure::silent()) }
}

fn heading(probe: &Probe, max_hops: u8) -> String {
    let to = probe.to.map_or_else(String::new, |to| format!(" to {to}"));
    format!(
        "traceroute along {}{to}, from {}, {max_hops} hops at most\n{:<4}{:<28}{:<11}{:<12}{:<10}{:<32}RTT [ms]\n",
        segments(probe),
        probe.source,
        "HOP",
        "ADDRESS",
        "NODE",
        "SID",
        "BEHAVIOR",
        "DESTINATION THERE"
    )
}

const fn end_name(ran: Ran) -> &'static str {
    match ran {
        Ran::Ended => "ended",
        Ran::Silent => "silent",
        Ran::TooFar => "too_far",
        Ran::Stopped => "stopped",
    }
}

fn end(ran: Ran, max_hops: u8) -> Option<String> {
    match ran {
        Ran::Ended => None,
        Ran::Silent => Some(format!(
            "{SILENT_HOPS} hops in a row are silent: a node drops the probes, or their answers find no way back\n\
             fix: a node may know other sources only: see --source; to a host behind the last SID: see --to"
        )),
        Ran::TooFar => Some(format!("not arrived after {max_hops} hops: see --max-hops")),
        Ran::Stopped => Some("stopped".to_owned()),
    }
}

/// A traceroute, as far as it has come.
struct Followed<'p> {
    probe: &'p Probe,
    known: &'p Known,
    /// Number of SIDs that were used up so far.
    used: usize,
    hops: Vec<HopReport>,
}

impl Followed<'_> {
    /// Describes the answers of a hop, equal ones together.
    fn hop(&mut self, hop: &Hop) -> HopReport {
        let mut lines: Vec<(Answer, Line)> = Vec::new();
        for (answer, time) in hop.answers.iter().flatten() {
            let time = rounded(milliseconds(*time));
            let is_same = |other: &Answer| Answer { number: 0, ..*other } == Answer { number: 0, ..*answer };
            match lines.iter_mut().find(|(other, _)| is_same(other)) {
                Some((_, line)) => line.rtt_ms.push(time),
                None => lines.push((*answer, self.line(answer, time))),
            }
        }
        self.used = lines.iter().filter_map(|(_, line)| line.used).fold(self.used, usize::max);
        let answered: usize = lines.iter().map(|(_, line)| line.rtt_ms.len()).sum();
        let answers = lines.into_iter().map(|(_, line)| line).collect();
        HopReport { hop: hop.number, answers, silent: hop.answers.len() - answered }
    }

    fn line(&self, answer: &Answer, time: f64) -> Line {
        let way = &self.probe.way;
        let node = self.known.node(answer.from);
        let quoted_used = match answer.quoted {
            Some(state) => way.used(state, self.used).or_else(|| way.used(state, 0)),
            // What arrived has nothing left.
            None => Some(way.len()),
        };
        let walked = node.zip(quoted_used).map(|(node, used)| match answer.quoted {
            Some(_) => node.uses(way, self.used.min(used), used),
            None => node.uses(way, self.used, self.used),
        });
        let (own, then) = walked.unwrap_or_default();
        let seen = then.max(quoted_used.unwrap_or(0));
        // Of what is gone, the node has the last ones; those in front of them were used up on the way here.
        let before = seen.saturating_sub(own.len()).max(self.used);
        let before = self.known.names(way, self.used, before).into_iter().map(|used| sid(used, false));
        let sids = before.chain(own.into_iter().map(|used| sid(used, true))).collect();
        Line {
            address: answer.from.to_string(),
            node: node.map(|node| node.name.clone()),
            answer: answer.kind.text(),
            has_arrived: answer.kind.is_arrival(),
            quoted: quoted(answer),
            sids,
            used: quoted_used.map(|_| seen),
            rtt_ms: vec![time],
        }
    }

    fn has_arrived(&self) -> bool {
        self.hops.iter().flat_map(|hop| &hop.answers).any(|line| line.has_arrived)
    }

    fn report(self, ran: Ran) -> Report {
        Report {
            segments: self.probe.way.segments().iter().map(ToString::to_string).collect(),
            to: self.probe.to.map(|to| to.to_string()),
            source: self.probe.source.to_string(),
            block: self.probe.way.block().to_string(),
            hops: self.hops,
            end: end_name(ran),
        }
    }
}

fn sid(used: Used, here: bool) -> SidReport {
    SidReport { sid: used.sid, behavior: used.behavior, here }
}

/// Returns the text of a hop: a line for each answer, and one for silence.
fn text(hop: &HopReport) -> String {
    let mut text = String::new();
    let mut number = hop.hop.to_string();
    for line in &hop.answers {
        let (here, before): (Vec<&SidReport>, Vec<&SidReport>) = line.sids.iter().partition(|sid| sid.here);
        let names = |sids: &[&SidReport]| sids.iter().map(|sid| sid.sid.as_str()).collect::<Vec<_>>().join(",");
        let (sids, behavior) = match (here.is_empty(), before.is_empty()) {
            (false, _) => (names(&here), here.last().and_then(|sid| sid.behavior.clone()).unwrap_or_default()),
            (true, false) => {
                let behavior = before.last().and_then(|sid| sid.behavior.clone());
                (names(&before), behavior.unwrap_or_else(|| "by here".to_owned()))
            }
            (true, true) => ("-".to_owned(), "-".to_owned()),
        };
        let there = line.quoted.as_ref().map_or_else(|| "-".to_owned(), |quoted| quoted.destination.clone());
        let times = line.rtt_ms.iter().map(|time| format!("{time:.3}")).collect::<Vec<_>>().join(" ");
        let end = if line.answer == Kind::TimeExceeded.text() { String::new() } else { format!("  {}", line.answer) };
        let node = escaped(line.node.as_deref().unwrap_or("-"));
        let address = &line.address;
        let row = format!("{number:<4}{address:<27} {node:<10} {sids:<11} {behavior:<9} {there:<31} {times}{end}\n");
        text.push_str(&row);
        number.clear();
    }
    if hop.answers.is_empty() {
        let silence = format!("{number:<4}{}\n", vec!["*"; hop.silent].join(" "));
        text.push_str(&silence);
    }
    text
}
