//! Exports cases as files for other tools: `config.toml`, `in-PORT.pcap`, `out-PORT.pcap`, `expect.json`.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::build::Rule;
use crate::case::{Case, Event};
use crate::decode::{hex, mac};

/// Header of a classic pcap file: time stamps in microseconds, link type Ethernet.
const PCAP_HEADER: [u8; 24] =
    [0xa1, 0xb2, 0xc3, 0xd4, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 1];

/// Writes one case into `directory/ID`.
///
/// # Errors
/// If the directory or a file in it cannot be written.
pub fn export(case: &Case, directory: &Path) -> io::Result<()> {
    let directory = directory.join(&case.id);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("config.toml"), &case.setup.config)?;
    for port in &case.setup.ports {
        let steps = case.steps.iter();
        let inputs = steps.flat_map(|step| step.inputs.iter().map(|input| (step.at_ms, input)));
        let arrived = inputs.filter(|(_, input)| input.port == port.name);
        write_pcap(
            &directory.join(format!("in-{}.pcap", port.name)),
            arrived.map(|(at, input)| (at, input.built.bytes.as_slice())),
        )?;
        let expected = case.steps.iter().flat_map(|step| {
            let here = step.outputs.iter().filter_map(|out| out.candidates.iter().find(|(name, _)| *name == port.name));
            here.map(|(_, built)| (step.at_ms, built.bytes.as_slice()))
        });
        write_pcap(&directory.join(format!("out-{}.pcap", port.name)), expected)?;
    }
    fs::write(directory.join("expect.json"), serde_json::to_string_pretty(&expectation(case))? + "\n")
}

fn write_pcap<'f>(path: &Path, frames: impl Iterator<Item = (u64, &'f [u8])>) -> io::Result<()> {
    let mut file = PCAP_HEADER.to_vec();
    let mut count = 0;
    for (at_ms, frame) in frames {
        count += 1;
        let word = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes();
        let len = word(frame.len() as u64);
        for field in [word(at_ms / 1000), word(at_ms % 1000 * 1000), len, len] {
            file.extend(field);
        }
        file.extend(frame);
    }
    if count == 0 { Ok(()) } else { fs::write(path, file) }
}

/// Returns everything in a case that the other files lack, and the frames again in hexadecimal.
pub fn expectation(case: &Case) -> Value {
    let rule = |rule: &Rule| match rule {
        Rule::Ignore { at, mask } => json!({ "ignore": { "at": at, "mask": hex(mask) } }),
        Rule::FlowLabel { at } => json!({ "flow_label_not_zero": { "at": at } }),
        Rule::Ipv4Checksum { at } => json!({ "ipv4_checksum_valid": { "at": at } }),
    };
    let event = |event: &Event| match event {
        Event::Neighbor(neighbor) => {
            json!({ "neighbor": neighbor.address, "port": neighbor.port, "mac": neighbor.mac.map(mac) })
        }
        Event::Link { port, up } => json!({ "link": port, "up": up }),
    };
    let steps: Vec<Value> = case.steps.iter().map(|step| {
        let inputs = step.inputs.iter().map(|input| json!({ "port": input.port, "frame": hex(&input.built.bytes), "layers": input.text }));
        let outputs = step.outputs.iter().map(|out| {
            let any_of = out.candidates.iter().map(|(port, built)| {
                json!({ "port": port, "frame": hex(&built.bytes), "rules": built.rules.iter().map(rule).collect::<Vec<_>>() })
            });
            json!({ "layers": out.text, "any_of": any_of.collect::<Vec<_>>() })
        });
        json!({
            "at_ms": step.at_ms,
            "events": step.events.iter().map(event).collect::<Vec<_>>(),
            "in": inputs.collect::<Vec<_>>(),
            "out": outputs.collect::<Vec<_>>(),
        })
    }).collect();
    let ports = case.setup.ports.iter().map(|port| {
        json!({
            "name": port.name, "mac": mac(port.mac), "peer": mac(port.peer), "mtu": port.mtu, "up": port.up,
            "addresses": port.addresses, "kernel": port.kernel, "vlan": port.vlan,
        })
    });
    let neighbors = case.setup.neighbors.iter().map(|neighbor| {
        json!({
            "port": neighbor.port, "address": neighbor.address, "mac": neighbor.mac.map(mac),
        })
    });
    json!({
        "id": case.id, "row": case.row, "title": case.title, "clause": case.clause, "priority": case.priority,
        "linux": case.linux.to_string(), "note": case.note, "refused": case.refused, "counters": case.counters,
        "properties": case.properties, "ports": ports.collect::<Vec<_>>(), "addresses": case.setup.addresses,
        "neighbors": neighbors.collect::<Vec<_>>(), "iproute2": case.setup.linux, "steps": steps,
    })
}
