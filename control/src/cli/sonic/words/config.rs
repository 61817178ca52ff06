//! `config`: changes of the running configuration, and what is loaded into it and saved of it.

use std::path::PathBuf;

use srv6d_sonic_cli::config_db::{
    AddressChange, ConfigDb, Refused, add_vrf, bind_vrf, change_address, delete_vrf, set_admin, set_hostname,
    unbind_vrf,
};

use super::node::{Node, Running, write};
use super::tree::{argument, choose, not_here, nothing_more, wrong};
use super::{cfggen, frr};
use crate::cli::output::{self, Failure};
use crate::sonic::run::stored_files;

/// Where SONiC keeps CONFIG_DB.
const CONFIG_DB: &str = "/etc/sonic/config_db.json";

/// What SONiC's `config` also knows: the first words, and why nothing can be configured with them here.
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

/// `config ...`
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

/// `config interface startup|shutdown NAME`, `... ip add|remove NAME ADDRESS`, `... vrf bind|unbind NAME [VRF]`
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
        // SONiC takes the name of the VRF, and does not need it.
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

/// What is no option. `-y`, `-f` and their like answer questions that are not asked here.
fn files(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).filter(|argument| !argument.starts_with('-')).collect()
}

/// `config load [FILE] -y`: laid over what is there, row by row.
fn load(node: &Node, files: &[&str]) -> Result<(), Failure> {
    let file = files.first().map_or_else(|| node.places.path(CONFIG_DB), PathBuf::from);
    let loaded = cfggen::read(&file.display().to_string())?;
    node.change(|running| {
        running.config_db.merge(loaded);
        Ok(())
    })
}

/// `config reload [FILE] -y -f`: the file in the place of what is there. What both say goes on undisturbed.
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

/// `config save -y [FILE]`
fn save(node: &Node, files: &[&str]) -> Result<(), Failure> {
    let running = node.running()?;
    let file = files.first().map_or_else(|| node.places.path(CONFIG_DB), PathBuf::from);
    let text = running.config_db.to_text();
    // First, so that the daemon takes what appears for what it is.
    write(&node.places.saved_config_db(), &text)?;
    write(&file, &text)?;
    // What vtysh has changed. Where FRR runs its file is its own.
    let (_, stored) = stored_files(&node.places).map_err(|why| Failure::failed(format!("Error: {why}")))?;
    if files.is_empty() && frr::vtysh(node).is_none() && stored.unwrap_or_default() != running.frr {
        save_frr(node, &running.frr)?;
    }
    output::print(&format!("Running command: sonic-cfggen -d --print-data > {}\n", node.places.shown(&file)))
}

/// `write memory`: FRR's file, where SONiC's images look for it.
pub fn save_frr(node: &Node, text: &str) -> Result<String, Failure> {
    const CHOICES: [&str; 2] = ["/etc/sonic/frr", "/etc/frr"];
    let choices = CHOICES.map(|directory| node.places.path(directory));
    let directory = choices.iter().find(|directory| directory.is_dir()).unwrap_or(&choices[0]);
    let file = directory.join("frr.conf");
    write(&node.places.saved_frr(), text)?;
    write(&file, text)?;
    Ok(node.places.shown(&file))
}
