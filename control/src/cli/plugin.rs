//! `srv6d run --plugin-environment`: the variables of Jalapeno's plugin for `PyTorch`, turned into a configuration file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use srv6d_controller::jalapeno::environment::{self as variables, Environment};

use super::check::environment;
use super::output::Failure;
use crate::daemon;

/// Writes the configuration beside the socket and names it, so that it can be read, changed and reloaded.
pub fn write(socket: &Path) -> Result<PathBuf, Failure> {
    let text = configuration()?;
    let directory = socket.parent().unwrap_or(Path::new("/run/srv6d"));
    let file = directory.join("plugin.toml");
    let written = fs::create_dir_all(directory).and_then(|()| fs::write(&file, text));
    written.map_err(|why| Failure::failed(format!("error: cannot write {}: {why}", file.display())))?;
    eprintln!("configuration: {}", file.display());
    Ok(file)
}

/// The configuration that the environment stands for.
pub fn configuration() -> Result<String, Failure> {
    let all: BTreeMap<String, String> = std::env::vars().collect();
    let read = variables::read(&all).map_err(|why| Failure::invalid(format!("error: {why}")))?;
    for note in &read.notes {
        eprintln!("note: {note}");
    }
    let shown = environment();
    let addresses = shown.device(&read.interface).map(|device| device.addresses.clone()).unwrap_or_default();
    let source =
        addresses.iter().map(IpNet::addr).find(|ip| matches!(ip, IpAddr::V6(v6) if !v6.is_unicast_link_local()));
    let Some(source) = source else {
        let what = format!("error: BACKEND_INTERFACE: {} has no global IPv6 address", read.interface);
        return Err(Failure::failed(format!(
            "{what}\nfix: ip -6 address add fcbb:0:800::10/64 dev {}",
            read.interface
        )));
    };
    let gateway = match read.gateway {
        Some(gateway) => Some(gateway),
        None => daemon::gateway(IpAddr::V6(read.block.network())).map_err(Failure::from)?,
    };
    let Some(gateway) = gateway else {
        let what = format!("error: no route leads to the block {}", read.block);
        return Err(Failure::failed(format!("{what}\nfix: set BACKEND_GATEWAY to the leaf's address")));
    };
    Ok(text(&read, source, gateway))
}

/// The same as the plugin would program, with the carrier rebuilt and really reduced.
fn text(read: &Environment, source: IpAddr, gateway: IpAddr) -> String {
    let mut text = String::new();
    let interface = &read.interface;
    let _ = writeln!(text, "# Made of the environment: JALAPENO_API_ENDPOINT and its companions.\n");
    let _ = writeln!(text, "[node]\nsource = \"{source}\"\n\n[[block]]\nprefix = \"{}\"\n", read.block);
    let _ = writeln!(text, "[[port]]\nname = \"{interface}\"\n");
    let _ = writeln!(text, "[[route]]\nprefix = \"{}\"\nvia = \"{gateway}\"\nport = \"{interface}\"\n", read.block);
    let _ = writeln!(text, "[jalapeno]\nendpoint = \"{}\"\ngraph = \"{}\"", read.endpoint, read.graph);
    let _ = writeln!(text, "source = \"{}\"\npeers = {:?}", read.source, read.peers);
    // What the plugin asks for: one allocation per peer.
    let _ = writeln!(text, "path = \"load\"");
    if let Some(function) = read.function {
        // By convention of the plugin's fabrics fe04 is uDT4, and fe06 uDT6.
        let family = if function == 0xfe04 { 4 } else { 6 };
        let _ = writeln!(text, "function_v{family} = \"{function:x}\"");
    }
    if read.full_srh {
        let _ = writeln!(text, "mode = \"encap\"");
    }
    if read.table != 254 {
        let _ = writeln!(text, "table = {}", read.table);
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::config;

    #[test]
    fn what_is_made_of_the_environment_is_a_configuration() {
        let variables = [
            ("JALAPENO_API_ENDPOINT", "http://198.18.133.104:30800/api/v1"),
            ("TOPOLOGY_COLLECTION", "fabric_graph"),
            ("BACKEND_INTERFACE", "net1"),
            ("HOSTS", "srv6-pytorch-0,srv6-pytorch-1"),
            ("RANK", "0"),
            ("DEST_FUNCTION", "fe06"),
            ("SRV6_ENCAP_MODE", "encap"),
        ];
        let read = variables::read(&variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()).unwrap();
        let (source, gateway) = ("fcbb:0:800::10".parse().unwrap(), "fcbb:0:800::1".parse().unwrap());
        let text = |read: &Environment| super::text(read, source, gateway);
        let for_v4 =
            config::parse(&text(&Environment { function: Some(0xfe04), ..read.clone() }), "plugin.toml").unwrap();
        let jalapeno = for_v4.jalapeno.unwrap();
        assert_eq!((jalapeno.function_v4.unwrap().get_ref().0, jalapeno.function_v6), (0xfe04, None));
        let text = text(&read);
        let config = config::parse(&text, "plugin.toml").unwrap();
        let plan = crate::plan::plan(&config, &crate::plan::Environment::default()).unwrap();
        assert_eq!(plan.desired.routes.iter().map(|route| route.prefix.to_string()).collect::<Vec<_>>(), ["fcbb::/32"]);
        let jalapeno = config.jalapeno.unwrap();
        assert_eq!(jalapeno.source.get_ref().0, "hosts/srv6-pytorch-0");
        assert_eq!(jalapeno.function_v6.unwrap().get_ref().0, 0xfe06);
    }
}
