//! Describes a scenario as text, in a notation close to that of the conformance pack.

use std::fmt::Write as _;

use srv6d_pack::decode;
use srv6d_srv6::desired::{Behavior, Desired, Hop, LocalSid, Port, RouteAction};

/// Describes the state, one line per entry.
pub fn state(desired: &Desired) -> String {
    let mut text = String::new();
    let defaults = Desired::default();
    if desired.policy != defaults.policy {
        let _ = writeln!(text, "# {:?}", desired.policy);
    }
    if desired.tunnel != defaults.tunnel {
        let _ = writeln!(text, "# {:?}", desired.tunnel);
    }
    let _ = writeln!(text, "# own veth: {:?}", desired.host.map(|host| host.port));
    for (index, port) in desired.ports.iter().enumerate() {
        let _ = writeln!(text, "port = {}", port_text(index, port));
    }
    for ((port, address), mac) in &desired.neighbors {
        let _ = writeln!(text, "neighbor = {{ port = {}, address = \"{address}\", mac = \"{mac}\" }}", port.0);
    }
    for block in &desired.blocks {
        let _ = writeln!(text, "block = {{ prefix = \"{}\", unknown = {:?} }}", block.prefix, block.unknown);
    }
    for (table, address) in &desired.local_addresses {
        let _ = writeln!(text, "address = {{ table = {}, address = \"{address}\" }}", table.0);
    }
    for sid in &desired.sids {
        let _ = writeln!(text, "sid = {}", sid_text(sid));
    }
    for steer in &desired.steers {
        let _ = writeln!(text, "steer = {{ table = {}, prefix = \"{}\" }}", steer.table.0, steer.prefix);
        for path in &steer.paths {
            let mode = if path.full_srh { "encap" } else { "encap.red" };
            let segments: Vec<String> = path.segments.addresses().iter().map(ToString::to_string).collect();
            let (source, via) = (path.source, hops_text(&path.via));
            let _ =
                writeln!(text, "    path = {{ segments = {segments:?}, {mode}, source = {source:?}, via = {via} }}");
        }
    }
    for route in &desired.routes {
        let action = match &route.action {
            RouteAction::Via(hops) => hops_text(hops),
            other => format!("{other:?}"),
        };
        let _ = writeln!(text, "route = {{ table = {}, prefix = \"{}\", {action} }}", route.table.0, route.prefix);
    }
    text
}

/// Describes the frame, layer by layer, and in hexadecimal.
pub fn input(desired: &Desired, port: u16, frame: &[u8]) -> String {
    let name = desired.ports.get(usize::from(port)).map_or("?", |port| port.name.as_str());
    let mut text = format!("in = [{{ port = {name:?}, frame = [ # {} bytes\n", frame.len());
    for line in decode(frame) {
        let _ = writeln!(text, "    {line:?},");
    }
    text + "] }]\nhex = \"" + &hex(frame) + "\"\n"
}

/// Formats bytes in hexadecimal; a long run of one byte is written as `(41 x 1400)`.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for run in bytes.chunk_by(|one, next| one == next) {
        let byte = run.first().copied().unwrap_or_default();
        if run.len() > 40 {
            let _ = write!(text, "({byte:02x} x {})", run.len());
        } else {
            text.extend(run.iter().map(|byte| format!("{byte:02x}")));
        }
    }
    text
}

fn port_text(index: usize, port: &Port) -> String {
    let mut text = format!("{{ name = {:?}, index = {index}, mac = \"{}\", mtu = {}", port.name, port.mac, port.mtu);
    if let Some(vid) = port.vlan {
        let _ = write!(text, ", device = {}, vlan = {vid}", port.device);
    }
    let _ = write!(text, ", table = {}, role = {:?}, up = {}", port.table.0, port.role, port.up);
    let _ = write!(text, ", source = {:?}, icmp = {:?} {:?}", port.source, port.icmp_source_v6, port.icmp_source_v4);
    if !port.allowed_sources.is_empty() || !port.allowed_carriers.is_empty() {
        let _ = write!(text, ", allowed = {:?} {:?}", port.allowed_sources, port.allowed_carriers);
    }
    if port.fill_checksum {
        text += ", checksum = \"fill\"";
    }
    text + " }"
}

fn hops_text(hops: &[Hop]) -> String {
    let hop = |hop: &Hop| match hop.via {
        Some(via) => format!("{via} port {}", hop.port.0),
        None => format!("on link of port {}", hop.port.0),
    };
    let hops: Vec<String> = hops.iter().map(hop).collect();
    format!("via [{}]", hops.join(", "))
}

fn sid_text(sid: &LocalSid) -> String {
    let behavior = match &sid.behavior {
        Behavior::End { csid, dscp } => format!("End {csid:?} dscp {dscp:?}"),
        Behavior::EndX { csid, via, backup } => {
            format!("End.X {csid:?} {} backup {}", hops_text(via), hops_text(backup))
        }
        Behavior::EndDt { family, table, dscp } => format!("End.DT {family:?} table {} dscp {dscp:?}", table.0),
        Behavior::EndDx { family, via } => format!("End.DX {family:?} {}", hops_text(via)),
    };
    format!("{{ sid = \"{}\", {behavior}, {:?} }}", sid.prefix, sid.flavors)
}
