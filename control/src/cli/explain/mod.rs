//! `srv6d explain`: what the tables in force do with a packet.

mod flow;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, ValueHint};

use srv6d_api::explain::{ExplainView, MAX_FRAME};
use srv6d_api::state::PortStatus;
use srv6d_api::{Request, Response, Topic, client};
use srv6d_command::{Failure, output};
use srv6d_show as show;

use super::ask::refused;
use flow::{Fields, Flow};

/// Length of a MAC address, of both addresses of a frame, and of an Ethernet header.
const ADDRESSES: usize = 12;

/// Arguments of `srv6d explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// Port that receives the packet
    #[arg(short, long, value_name = "PORT")]
    port: String,
    /// The packet: `from SOURCE to DESTINATION`, then `udp|tcp SPORT DPORT`, `icmp`, `proto NUMBER`, or
    /// `carrying from ... to ...`
    #[arg(value_name = "from SOURCE to DESTINATION ...", required_unless_present_any = ["hex", "pcap"])]
    words: Vec<String>,
    /// The packet as hexadecimal digits, from the Ethernet header on; spaces and colons may stand between them
    #[arg(long, value_name = "DIGITS", conflicts_with_all = ["words", "pcap"])]
    hex: Option<String>,
    /// File of a capture (pcap or pcapng, Ethernet) that has the packet
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "words")]
    pcap: Option<PathBuf>,
    /// Number of the packet in the capture, from 1
    #[arg(short, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), requires = "pcap")]
    number: u64,
    /// Length of the IP packet in bytes [default: no payload]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(28..=9216))]
    length: Option<u16>,
    /// Hop limit or TTL
    #[arg(long, value_name = "NUMBER", default_value_t = 64)]
    hop_limit: u8,
    /// Traffic class or TOS
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    traffic_class: u8,
    /// IPv6 flow label
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..1 << 20))]
    flow_label: u32,
    /// VLAN tag [default: that of the port]
    #[arg(long, value_name = "VID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    vlan: Option<u16>,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Asks the daemon and prints its answer.
pub fn explain(arguments: &ExplainArguments, socket: &Path) -> Result<(), Failure> {
    let frame = match (&arguments.hex, &arguments.pcap) {
        (Some(digits), _) => digits.chars().filter(|digit| !digit.is_ascii_whitespace() && *digit != ':').collect(),
        (None, Some(file)) => show::packet::hex(&from_capture(file, arguments.number)?),
        (None, None) => show::packet::hex(&made(arguments, socket)?),
    };
    let request = Request::Explain { port: arguments.port.clone(), frame };
    match client::ask(socket, &request)? {
        Response::Explained(mut view) => {
            view.kernel_route = Some(&*view).filter(|view| view.verdict.verdict == "kernel").and_then(kernel_route);
            if arguments.json {
                output::print_json(&view)
            } else {
                output::print(&show::render(&Response::Explained(view)))
            }
        }
        Response::Refused(refusal) => Err(refused(&refusal)),
        _ => Err(Failure::failed("error: the daemon gave another answer")),
    }
}

/// Returns a packet of a capture in a file: pcap or pcapng, of Ethernet.
fn from_capture(file: &Path, number: u64) -> Result<Vec<u8>, Failure> {
    let refused = |why: String| Failure::invalid(format!("error: {}: {why}", file.display()));
    let opened = File::open(file).map_err(|error| refused(format!("cannot be read: {error}")))?;
    let found = srv6d_pcap::nth(BufReader::new(opened), number).map_err(|why| refused(why.to_string()))?;
    let packet = found.ok_or_else(|| refused(format!("the capture has fewer than {number} packets")))?;
    let (captured, length) = (packet.bytes.len(), packet.length);
    if captured < length {
        return Err(refused(format!("packet {number} was cut to {captured} of {length} bytes: capture it whole")));
    }
    if captured > MAX_FRAME {
        return Err(refused(format!("packet {number} has {captured} bytes, and a port takes {MAX_FRAME} at most")));
    }
    Ok(packet.bytes)
}

/// Makes the frame of a packet that is given in words: addressed to the port, with its VLAN tag.
fn made(arguments: &ExplainArguments, socket: &Path) -> Result<Vec<u8>, Failure> {
    let flow = Flow::parse(&arguments.words).map_err(|why| {
        let fix = "fix: srv6d explain --port PORT from SOURCE to DESTINATION udp 1000 2000";
        Failure::invalid(format!("error: {why}\n{fix}"))
    })?;
    let port = port(&arguments.port, socket)?;
    let fields = Fields {
        length: arguments.length.map(usize::from),
        hop_limit: arguments.hop_limit,
        traffic_class: arguments.traffic_class,
        flow_label: arguments.flow_label,
    };
    let packet = flow.packet(&fields).map_err(|why| Failure::invalid(format!("error: {why}")))?;
    let mut frame = mac_of(&port).to_vec();
    frame.extend([0x02, 0, 0, 0, 0, 0x01]);
    if let Some(vid) = arguments.vlan.or(port.vlan) {
        frame.extend([0x81, 0x00]);
        frame.extend(vid.to_be_bytes());
    }
    frame.extend(if flow.source.is_ipv6() { [0x86, 0xdd] } else { [0x08, 0x00] });
    frame.extend(packet);
    Ok(frame)
}

/// Returns the MAC address of a port. A port that is not attached gets none of its own, which the daemon notices.
fn mac_of(port: &PortStatus) -> [u8; ADDRESSES / 2] {
    let mut mac = [0; ADDRESSES / 2];
    let digits = port.mac.iter().flat_map(|text| text.split(':'));
    for (byte, digits) in mac.iter_mut().zip(digits) {
        *byte = u8::from_str_radix(digits, 16).unwrap_or_default();
    }
    mac
}

fn port(name: &str, socket: &Path) -> Result<PortStatus, Failure> {
    match client::ask(socket, &Request::Show { topic: Topic::Ports })? {
        Response::Ports(ports) => {
            let names: Vec<String> = ports.iter().map(|port| port.name.clone()).collect();
            ports.into_iter().find(|port| port.name == name).ok_or_else(|| {
                Failure::failed(format!("error: {name} is no port\nfix: --port with one of {}", names.join(", ")))
            })
        }
        Response::Refused(refusal) => Err(refused(&refusal)),
        _ => Err(Failure::failed("error: the daemon gave another answer")),
    }
}

/// Asks the kernel where it would send the packet that is handed to it. Returns `None` if `ip` cannot be run here.
fn kernel_route(view: &ExplainView) -> Option<String> {
    let (source, destination) = show::packet::addresses(&show::packet::bytes_of(&view.after))?;
    let family = if destination.is_ipv6() { "-6" } else { "-4" };
    let mut command = Command::new("ip");
    command.args([family, "route", "get", &destination.to_string()]);
    if !source.is_unspecified() {
        command.args(["from", &source.to_string()]);
    }
    command.args(["iif", view.verdict.port.as_deref()?]);
    let answer = command.stdin(Stdio::null()).output().ok()?;
    let said = if answer.status.success() { answer.stdout } else { answer.stderr };
    let text = String::from_utf8_lossy(&said).split_whitespace().collect::<Vec<_>>().join(" ");
    Some(text).filter(|text| !text.is_empty())
}
