//! `srv6d ping`: a line for each answer, and a summary.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use srv6d_command::{Failure, output};
use srv6d_probe::{Answer, Echo, Kind, Known, Payload, Ping, RawNetwork, Statistics};
use srv6d_text::escaped;

use super::{Along, Prepared, failed, milliseconds, rounded, segments, time, watch_ctrl_c};

/// Arguments of `srv6d ping`.
#[derive(Debug, Args)]
pub struct PingArguments {
    #[command(flatten)]
    along: Along,
    /// Number of probes [default: until Ctrl-C]
    #[arg(short, long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Time between two probes, e.g. 10ms
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = time)]
    interval: Duration,
    /// Longest time to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    timeout: Duration,
    /// Hop limit of the probes
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u8).range(1..))]
    hop_limit: u8,
    /// Print the summary only
    #[arg(short, long)]
    quiet: bool,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    segments: Vec<String>,
    to: Option<String>,
    source: String,
    sent: u32,
    received: u32,
    errors: u32,
    lost: u32,
    loss_percent: f64,
    rtt_ms: Option<RoundTrips>,
}

/// Round-trip times in milliseconds.
#[derive(Debug, Serialize)]
struct RoundTrips {
    min: f64,
    avg: f64,
    max: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
}

/// Runs a ping until its last probe or Ctrl-C. The exit status is 1 if no probe has arrived.
pub fn ping(arguments: &PingArguments, socket: &Path) -> Result<(), Failure> {
    let Prepared { probe, known } = arguments.along.prepare(Payload::Echo, socket)?;
    let mut network = RawNetwork::open(arguments.along.interface.as_deref()).map_err(|why| failed(&why))?;
    let PingArguments { count, interval, timeout, hop_limit, .. } = *arguments;
    let settings = Ping { count, interval, timeout, hop_limit };
    let (is_stopped, is_silent) = (watch_ctrl_c()?, arguments.quiet || arguments.along.json);
    let to = probe.to.map_or_else(String::new, |to| format!(" to {to}"));
    if !arguments.along.json {
        output::print(&format!("ping along {}{to}, from {}\n", segments(&probe), probe.source))?;
    }
    let mut printed = Ok(());
    let statistics = srv6d_probe::ping(&probe, settings, &mut network, is_stopped, |echo| {
        if !is_silent && printed.is_ok() {
            printed = output::print(&line(&known, echo));
        }
    });
    let statistics = statistics.map_err(|why| failed(&why))?;
    printed?;
    if arguments.along.json {
        output::print_json(&Report {
            segments: probe.way.segments().iter().map(ToString::to_string).collect(),
            to: probe.to.map(|to| to.to_string()),
            source: probe.source.to_string(),
            sent: statistics.sent,
            received: statistics.received,
            errors: statistics.errors,
            lost: statistics.lost(),
            loss_percent: rounded(loss(&statistics)),
            rtt_ms: round_trips(&statistics),
        })?;
    } else {
        output::print(&summary(&statistics))?;
    }
    if statistics.received > 0 { Ok(()) } else { Err(Failure::silent()) }
}

fn line(known: &Known, echo: Echo) -> String {
    let (answer, time) = match echo {
        Echo::Silent(number) => return format!("{number}: no answer\n"),
        Echo::Answered(answer, time) => (answer, milliseconds(time)),
    };
    let Answer { number, from, kind, quoted } = answer;
    let node = known.node(from).map_or_else(String::new, |node| format!(" ({})", escaped(&node.name)));
    let kind = if kind == Kind::EchoReply { String::new() } else { format!(": {}", kind.text()) };
    let there = quoted.map_or_else(String::new, |state| format!(", destination there {}", state.destination));
    format!("{number}: {from}{node}{kind}, {time:.3} ms{there}\n")
}

fn summary(statistics: &Statistics) -> String {
    let Statistics { sent, received, errors, .. } = statistics;
    let errors = if *errors == 0 { String::new() } else { format!(", {errors} errors") };
    let mut text = format!("{sent} sent, {received} received{errors}, {:.1} % lost\n", loss(statistics));
    if let Some([min, average, max]) = statistics.extremes().map(|times| times.map(|time| time / 1e6)) {
        let times = format!("round trip min/avg/max {min:.3}/{average:.3}/{max:.3} ms\n");
        text.push_str(&times);
    }
    text
}

/// Returns the loss in percent of the probes whose fate is known.
fn loss(statistics: &Statistics) -> f64 {
    let known = statistics.sent.saturating_sub(statistics.waiting).max(1);
    100.0 * f64::from(statistics.lost()) / f64::from(known)
}

fn round_trips(statistics: &Statistics) -> Option<RoundTrips> {
    let [min, avg, max] = statistics.extremes()?.map(|time| rounded(time / 1e6));
    #[expect(clippy::cast_precision_loss, reason = "an hour in nanoseconds fits")]
    let [p50, p90, p99, p999] =
        [50.0, 90.0, 99.0, 99.9].map(|percent| rounded(statistics.percentile(percent) as f64 / 1e6));
    Some(RoundTrips { min, avg, max, p50, p90, p99, p999 })
}
