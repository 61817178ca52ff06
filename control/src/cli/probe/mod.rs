//! `srv6d ping` and `srv6d traceroute`: probes along a carrier.

mod known;
mod ping;
mod traceroute;

use std::hash::BuildHasher as _;
use std::hash::RandomState;
use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use ipnet::Ipv6Net;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use srv6d_command::{Failure, stop_flag};
use srv6d_probe::{Answer, Payload, Probe, Way, source_towards};

pub use ping::{PingArguments, ping};
pub use traceroute::{TracerouteArguments, traceroute};

/// Length of a block in bits, if nobody knows the block.
const BLOCK_BITS: u8 = 32;

/// Arguments about the way of the probes.
#[derive(Debug, Args)]
pub struct Along {
    /// Carriers and SIDs in the order in which they are visited, the first one in the destination address
    #[arg(value_name = "CARRIER", required = true, num_args = 1..=8)]
    segments: Vec<Ipv6Addr>,
    /// Address that the last SID leads to: probes have an inner header with this destination, which a uDT6 forwards
    #[arg(long, value_name = "ADDRESS")]
    to: Option<Ipv6Addr>,
    /// Source address [default: the one that the kernel chooses]
    #[arg(long, value_name = "ADDRESS")]
    source: Option<Ipv6Addr>,
    /// Interface that probes leave by [default: that of the kernel's route]
    #[arg(long, value_name = "DEVICE")]
    interface: Option<String>,
    /// Block of the uSIDs [default: that of the lab or of the srv6d here, else the first 32 bits of the first CARRIER]
    #[arg(long, value_name = "PREFIX")]
    block: Option<Ipv6Net>,
    /// Length of a uSID in bits
    #[arg(long, value_name = "BITS", default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=96))]
    usid_bits: u8,
    /// Length of the payload in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 56, value_parser = clap::value_parser!(u16).range(12..=1024))]
    size: u16,
    /// Flow label: another one may take another of several equal ways
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..1 << 20))]
    flow_label: u32,
    /// Lab whose nodes and SIDs are named; `srv6d lab exec` sets it
    #[arg(long, value_name = "NAME", env = "SRV6D_LAB")]
    lab: Option<String>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Probes, and what is known of the nodes on their way.
struct Prepared {
    probe: Probe,
    known: srv6d_probe::Known,
}

impl Along {
    /// Makes the probes, and asks lab and daemon what they know.
    fn prepare(&self, payload: Payload, socket: &Path) -> Result<Prepared, Failure> {
        let first = self.segments.first().copied().unwrap_or(Ipv6Addr::UNSPECIFIED);
        let (mut known, block_of_lab) = known::of_lab(self.lab.as_deref());
        let block_of_daemon = known::of_daemon(socket, first, self.source, &mut known);
        let block = self.block.or(block_of_lab.filter(|block| block.contains(&first))).or(block_of_daemon);
        let block = match block {
            Some(block) => block.trunc(),
            None => Ipv6Net::new(first, BLOCK_BITS).map_err(|why| wrong(&why))?.trunc(),
        };
        let way = Way::new(self.segments.clone(), block, self.usid_bits).map_err(|why| wrong(&why))?;
        let source = match self.source {
            Some(source) => source,
            None => source_towards(first, self.interface.as_deref()).map_err(|why| failed(&why))?,
        };
        let (to, length, flow_label) = (self.to, self.size.into(), self.flow_label);
        // The keys of this hasher are the operating system's random numbers.
        let token = RandomState::new().hash_one(std::process::id()).to_be_bytes();
        let ends = known.end(&way).map_or_else(|| way.ends(), |end| vec![end]);
        Ok(Prepared { probe: Probe { way, source, to, ends, payload, length, flow_label, token }, known })
    }
}

/// Returns a function that says whether Ctrl-C was pressed.
fn watch_ctrl_c() -> Result<impl Fn() -> bool, Failure> {
    let flag = stop_flag(&[SIGINT, SIGTERM])?;
    Ok(move || flag.load(Ordering::Relaxed))
}

fn failed(why: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("error: {why}"))
}

fn wrong(why: &dyn std::fmt::Display) -> Failure {
    let fix = "fix: srv6d traceroute fcbb:0:1004:1001:1006:fe06::";
    Failure::invalid(format!("error: {why}\n{fix}"))
}

/// Parses a time between 1 ms and 1 minute.
fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|why| why.to_string())?;
    let fits = (Duration::from_millis(1)..=Duration::from_mins(1)).contains(&time);
    fits.then_some(time).ok_or_else(|| "it is 1ms to 1m".to_owned())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Rounds milliseconds for JSON.
fn rounded(milliseconds: f64) -> f64 {
    (milliseconds * 1e3).round() / 1e3
}

/// A destination as an answer quotes it.
#[derive(Debug, Serialize)]
struct Quoted {
    destination: String,
    segments_left: u8,
}

fn quoted(answer: &Answer) -> Option<Quoted> {
    let state = answer.quoted?;
    Some(Quoted { destination: state.destination.to_string(), segments_left: state.segments_left })
}

/// Returns the segments as text.
fn segments(probe: &Probe) -> String {
    let segments = probe.way.segments().iter().map(Ipv6Addr::to_string);
    segments.collect::<Vec<_>>().join(" ")
}
