//! `config`: changes, loads and saves the running configuration.

use std::path::PathBuf;

use srv6d_sonic_cli::config_db::{
    AddressChange, ConfigDb, Refused, add_vrf, bind_vrf, change_address, delete_vrf, set_admin, set_hostname,
    unbind_vrf,
};

use super::node::{Node, Running, write};
use super::tree::{argument, choose, not_here, nothing_more, wrong};
use super::{cfggen, frr};
use crate::run::stored_files;
use srv6d_command::{Failure, output};

/// Path of CONFIG_DB in SONiC.
const CONFIG_DB: &str = "/etc/sonic/config_db.json";

/// Further commands of SONiC's `config`: their first words, and why they cannot be used here.
const NOT_HERE: [(&[&str], &str); 8] = [
    (&["apply-patch"], "JSON patches are not taken; use `config load FILE -y`, or `sonic-db-cli CONFIG_DB HSET`"),
    (&["replace"], "use `config reload FILE -y`"),
    (&["rollback"], "there are no checkpoints of CONFIG_DB; `srv6d rollback` returns to an earlier generation"),
    (&["checkpoint"], "there are no checkpoints of CONFIG_DB; `config save FILE -y` keeps it"),
    (&["vlan"], "srv6d has no VLANs of a bridge, and answers no ARP for others"),
    (&["portchannel"], "srv6d has no PortChannels"),
    (&["qos"], "srv6d has no QoS of SONiC"),
    (&["acl"], "srv6d has no ACL tables of SONiC; docs/security.md says what a port may be refused"),
];

/// Carries out `config ...`.
pub fn config(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    const WORDS: [&str; 6] = ["hostname", "interface", "load", "reload", "save", "vrf"];
    if let Some(refusal) = not_here("config", arguments, &NOT_HERE) {
        return Err(refusal);
    }
    let (word, rest) = choose("config", arguments, &WORDS)?;
    match word {
        "hostname" => {
            let (name, rest) = argument("config hostname", "new_hostname", rest)?;
            nothing_more("config hostname", rest)?;
            change(node, "config hostname", |running| set_hostname(&mut running.config_db, name))
        }
        "interface" => interface(node, rest),
        "load" => load(node, &files(rest)),
        "reload" => reload_files(node, files(rest).first().copied()),
        "save" => save(node, &files(rest)),
        _ => vrf(node, rest),
    }
}

fn change(node: &Node, path: &str, edit: impl FnOnce(&mut Running) -> Result<(), Refused>) -> Result<(), Failure> {
    node.change(|running| edit(running).map_err(|why| wrong(path, &why.to_string())))
}

/// Carries out `config interface startup|shutdown NAME`, `... ip add|remove NAME ADDRESS` and
/// `... vrf bind|unbind NAME [VRF]`.
fn interface(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let path = "config interface";
    let (word, rest) = choose(path, arguments, &["ip", "shutdown", "startup", "vrf"])?;
    match word {
        "ip" => address(node, rest),
        "vrf" => binding(node, rest),
        _ => {
            let (name, rest) = argument(path, "interface_name", rest)?;
            nothing_more(path, rest)?;
            change(node, path, |running| set_admin(&mut running.config_db, &running.switch, name, word == "startup"))
        }
    }
}

fn address(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let path = "config interface ip";
    let (word, rest) = choose(path, arguments, &["add", "remove"])?;
    let (name, rest) = argument(path, "interface_name", rest)?;
    let (address, rest) = argument(path, "ip_addr", rest)?;
    nothing_more(path, rest)?;
    let what = if word == "add" { AddressChange::Add } else { AddressChange::Remove };
    change(node, path, |running| change_address(&mut running.config_db, &running.switch, name, address, what))
}

fn binding(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let path = "config interface vrf";
    let (word, rest) = choose(path, arguments, &["bind", "unbind"])?;
    let (name, rest) = argument(path, "interface_name", rest)?;
    if word == "unbind" {
        // SONiC accepts the name of the VRF here, although it does not need it.
        nothing_more(path, rest.get(1..).unwrap_or_default())?;
        return change(node, path, |running| unbind_vrf(&mut running.config_db, &running.switch, name));
    }
    let (vrf, rest) = argument(path, "vrf_name", rest)?;
    nothing_more(path, rest)?;
    change(node, path, |running| bind_vrf(&mut running.config_db, &running.switch, name, vrf))
}

fn vrf(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let path = "config vrf";
    let (word, rest) = choose(path, arguments, &["add", "del"])?;
    let (name, rest) = argument(path, "vrf_name", rest)?;
    nothing_more(path, rest)?;
    change(node, path, |running| {
        if word == "add" { add_vrf(&mut running.config_db, name) } else { delete_vrf(&mut running.config_db, name) }
    })
}

/// Returns the arguments that are no options. `-y`, `-f` and similar options answer questions that are not asked here.
fn files(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).filter(|argument| !argument.starts_with('-')).collect()
}

/// Carries out `config load [FILE] -y`: the file is added to the running configuration, row by row.
fn load(node: &Node, files: &[&str]) -> Result<(), Failure> {
    let file = files.first().map_or_else(|| node.places.path(CONFIG_DB), PathBuf::from);
    let loaded = cfggen::read(&file.display().to_string())?;
    node.change(|running| {
        running.config_db.merge(loaded);
        Ok(())
    })
}

/// Carries out `config reload [FILE] -y -f`: the file replaces the running configuration. Forwarding by entries that
/// are the same in both continues without interruption.
pub fn reload_files(node: &Node, file: Option<&str>) -> Result<(), Failure> {
    let (stored, frr) = stored_files(&node.places).map_err(|why| Failure::failed(format!("Error: {why}")))?;
    let usual = node.places.path(CONFIG_DB);
    let config_db = match file {
        Some(file) => Some(cfggen::read(file)?),
        None if usual.exists() => Some(cfggen::read(&usual.display().to_string())?),
        None => stored
            .map(|text| ConfigDb::parse(&text))
            .transpose()
            .map_err(|why| Failure::invalid(format!("Error: the stored CONFIG_DB: {why}")))?,
    };
    node.change(|running| {
        if let Some(config_db) = config_db {
            running.config_db = config_db;
        }
        if let Some(frr) = frr.filter(|_| file.is_none()) {
            running.frr = frr;
        }
        Ok(())
    })
}

/// Carries out `config save -y [FILE]`.
fn save(node: &Node, files: &[&str]) -> Result<(), Failure> {
    let running = node.running()?;
    let file = files.first().map_or_else(|| node.places.path(CONFIG_DB), PathBuf::from);
    let text = running.config_db.to_text();
    // This copy is written first, so that the daemon recognises the file that appears as its own.
    write(&node.places.saved_config_db(), &text)?;
    write(&file, &text)?;
    // This saves what vtysh has changed. If FRR runs, its configuration file belongs to FRR.
    let (_, stored) = stored_files(&node.places).map_err(|why| Failure::failed(format!("Error: {why}")))?;
    if files.is_empty() && frr::vtysh(node).is_none() && stored.unwrap_or_default() != running.frr {
        save_frr(node, &running.frr)?;
    }
    output::print(&format!("Running command: sonic-cfggen -d --print-data > {}\n", node.places.shown(&file)))
}

/// Carries out `write memory`: writes FRR's file where SONiC's images look for it.
pub fn save_frr(node: &Node, text: &str) -> Result<String, Failure> {
    const CHOICES: [&str; 2] = ["/etc/sonic/frr", "/etc/frr"];
    let choices = CHOICES.map(|directory| node.places.path(directory));
    let directory = choices.iter().find(|directory| directory.is_dir()).unwrap_or(&choices[0]);
    let file = directory.join("frr.conf");
    write(&node.places.saved_frr(), text)?;
    write(&file, text)?;
    Ok(node.places.shown(&file))
}
