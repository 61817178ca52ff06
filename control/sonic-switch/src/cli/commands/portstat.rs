//! `portstat`: shows packets and bytes of each port.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use srv6d_sonic::{Port, Switch};
use srv6d_sonic_cli::counters::Sample;
use srv6d_sonic_cli::tables::{PortCounters, counters, state_letter};

use super::node::Node;
use super::{stored, tree};
use srv6d_api::state::PortStatus;
use srv6d_command::{Failure, output};

const COMMAND: &str = "portstat";

/// Time between the two samples from which a rate is calculated.
const WINDOW: Duration = Duration::from_millis(500);

/// Names of a port's counters, in the order of a sample.
const NAMES: [&str; 8] = [
    "rx_packets",
    "rx_errors",
    "rx_dropped",
    "rx_fifo_errors",
    "tx_packets",
    "tx_errors",
    "tx_dropped",
    "tx_fifo_errors",
];
const RX_DROPPED: usize = 2;
const TX_DROPPED: usize = 6;

/// Carries out `portstat [-i PORT[,PORT]] [-c]`.
pub fn portstat(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let mut ports = None;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-c" | "--clear" => return clear(node),
            "-i" | "--interface" => ports = arguments.next().map(String::as_str),
            // The option has no effect, because every counter is shown anyway.
            "-a" | "--all" => {}
            "-h" | "--help" => return output::print("Usage: portstat [-i PORT[,PORT]...] [-c]\n"),
            other => return Err(tree::wrong(COMMAND, &format!("no such option: {other}"))),
        }
    }
    let only: Option<Vec<&str>> = ports.map(|names| names.split(',').collect());
    let switch = node.switch()?;
    let wanted = |port: &&Port| port.present && only.as_ref().is_none_or(|only| only.contains(&port.name.as_str()));
    let ports: Vec<&Port> = switch.ports.iter().filter(wanted).collect();
    let bytes = |port: &Port| [statistic(port, "rx_bytes"), statistic(port, "tx_bytes")];
    let (before, since) = (ports.iter().map(|port| bytes(port)).collect::<Vec<_>>(), Instant::now());
    sleep(WINDOW);
    let seconds = since.elapsed().as_secs_f64();
    let (shown, cleared) = stored::uncleared(node, COMMAND, sample(node, &switch));
    let rows = ports.iter().zip(before).map(|(port, before)| {
        let now = bytes(port);
        let rate = |index: usize| {
            let at = |sample: &[u64; 2]| sample.get(index).copied().unwrap_or_default();
            #[allow(clippy::cast_precision_loss, reason = "bytes of half a second")]
            let bytes = at(&now).saturating_sub(at(&before)) as f64;
            bytes / seconds
        };
        row(port, shown.get(&port.name).map_or(&[], Vec::as_slice), [rate(0), rate(1)])
    });
    let since = cleared.map(|time| format!("Last cached time was {time}\n")).unwrap_or_default();
    output::print(&format!("{since}{}", counters(&rows.collect::<Vec<_>>())))
}

/// Carries out `sonic-clear counters`.
pub fn clear(node: &Node) -> Result<(), Failure> {
    stored::clear(node, COMMAND, sample(node, &node.switch()?))?;
    output::print("Cleared counters\n")
}

fn row(port: &Port, values: &[u64], [rx_rate, tx_rate]: [f64; 2]) -> PortCounters {
    let value = |index: usize| values.get(index).copied().unwrap_or_default();
    PortCounters {
        name: port.name.clone(),
        state: state_letter(port.admin_up, oper_up(port)).to_owned(),
        speed: port.speed,
        rx_ok: value(0),
        rx_rate,
        rx_errors: value(1),
        rx_drops: value(RX_DROPPED),
        rx_overruns: value(3),
        tx_ok: value(4),
        tx_rate,
        tx_errors: value(5),
        tx_drops: value(TX_DROPPED),
        tx_overruns: value(7),
    }
}

/// Reads the kernel's counters, which include the packets that srv6d takes, and adds the packets that srv6d has
/// dropped.
fn sample(node: &Node, switch: &Switch) -> Sample {
    let taken = node.ports().unwrap_or_default();
    let values = |port: &Port| {
        let mut values: Vec<u64> = NAMES.iter().map(|name| statistic(port, name)).collect();
        let of_port = |row: &&PortStatus| {
            row.vlan.is_none() && (row.device == port.name || Some(&row.device) == port.wire.as_ref())
        };
        if let Some(row) = taken.iter().find(of_port) {
            for (index, lost) in [(RX_DROPPED, row.rx_refused + row.rx_lost), (TX_DROPPED, row.tx_lost)] {
                values.iter_mut().skip(index).take(1).for_each(|value| *value += lost);
            }
        }
        (port.name.clone(), values)
    };
    switch.ports.iter().filter(|port| port.present).map(values).collect()
}

/// Returns the interface of a port, under whichever of its two names it exists.
pub fn interface(port: &Port) -> Option<&str> {
    let exists = |name: &&str| Path::new("/sys/class/net").join(name).exists();
    [Some(port.name.as_str()), port.wire.as_deref()].into_iter().flatten().find(exists)
}

fn statistic(port: &Port, name: &str) -> u64 {
    let read = |interface| fs::read_to_string(format!("/sys/class/net/{interface}/statistics/{name}")).ok();
    interface(port).and_then(read).and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

/// Whether a port has a carrier. False for an interface that is administratively down, because the kernel does not
/// tell.
pub fn oper_up(port: &Port) -> bool {
    interface(port).is_some_and(is_up)
}

/// Whether an interface is up and has a carrier.
pub fn is_up(interface: &str) -> bool {
    fs::read_to_string(format!("/sys/class/net/{interface}/carrier")).is_ok_and(|text| text.trim() == "1")
}

/// Whether an interface is administratively up.
pub fn is_admin_up(interface: &str) -> bool {
    const IFF_UP: u32 = 1;
    let flags = fs::read_to_string(format!("/sys/class/net/{interface}/flags")).unwrap_or_default();
    u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).is_ok_and(|flags| flags & IFF_UP != 0)
}
