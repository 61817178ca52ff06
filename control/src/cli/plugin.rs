//! `srv6d run --plugin-environment`: makes a configuration file from the variables of Jalapeno's plugin for `PyTorch`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::{IpNet, Ipv6Net};
use srv6d_controller::Failure as NoAnswer;
use srv6d_controller::jalapeno::environment::{self as variables, Environment, Peers};
use srv6d_controller::jalapeno::{Blocks, Discovery, Settings};
use srv6d_text::escaped;
use tokio::time::{Instant, sleep};

use super::check::environment;
use srv6d_command::Failure;
use srv6d_daemon as daemon;

/// Longest time until the API must be available: a pod may start before it.
const PATIENCE: Duration = Duration::from_mins(1);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_secs(2);

/// Writes the configuration beside the socket and prints its path, so that it can be read, changed and reloaded.
pub fn write(socket: &Path) -> Result<PathBuf, Failure> {
    let text = configuration(socket)?;
    let directory = directory(socket);
    let file = directory.join(name(socket, "plugin", "toml"));
    let written = fs::create_dir_all(directory).and_then(|()| srv6d_text::replace_file(&file, text.as_bytes()));
    written.map_err(|why| Failure::failed(format!("error: cannot write {}: {why}", file.display())))?;
    eprintln!("configuration: {}", file.display());
    Ok(file)
}

/// Returns the directory of the configuration and of the booked paths.
fn directory(socket: &Path) -> &Path {
    socket.parent().unwrap_or(Path::new("/run/srv6d"))
}

/// Returns the name of a file of the daemon with this socket. Daemons with other sockets in the same directory have files of
/// their own.
fn name(socket: &Path, what: &str, extension: &str) -> String {
    match socket.file_stem().and_then(|stem| stem.to_str()) {
        None | Some("srv6d") => format!("{what}.{extension}"),
        Some(stem) => format!("{what}-{stem}.{extension}"),
    }
}

/// Returns the configuration that the environment describes. The API is asked for what is missing in it, without
/// booking.
pub fn configuration(socket: &Path) -> Result<String, Failure> {
    let all: BTreeMap<String, String> = std::env::vars().collect();
    let read = variables::read(&all).map_err(|why| Failure::invalid(format!("error: {why}")))?;
    for note in &read.notes {
        eprintln!("note: {}", escaped(note));
    }
    let shown = environment();
    let Some(device) = shown.device(&read.interface) else {
        let names: Vec<&str> = shown.devices.iter().map(|device| device.name.as_str()).collect();
        return Err(Failure::failed(format!(
            "error: BACKEND_INTERFACE: there is no device {}\nfix: set it to one of {}",
            escaped(&read.interface),
            names.join(", ")
        )));
    };
    let addresses = device.addresses.clone();
    let source =
        addresses.iter().map(IpNet::addr).find(|ip| matches!(ip, IpAddr::V6(v6) if !v6.is_unicast_link_local()));
    let Some(source) = source else {
        let what = format!("error: BACKEND_INTERFACE: {} has no global IPv6 address", device.name);
        return Err(Failure::failed(format!("{what}\nfix: ip -6 address add fcbb:0:800::10/64 dev {}", device.name)));
    };
    let fabric = Fabric::ask(&read)?;
    let gateway = match (read.gateway, fabric.blocks.first()) {
        (Some(gateway), _) => Some(IpAddr::V6(gateway)),
        (None, Some(block)) => {
            let first = fabric.sid.unwrap_or(block.network());
            daemon::gateway(IpAddr::V6(first)).map_err(Failure::from)?
        }
        (None, None) => None,
    };
    let Some(gateway) = gateway else {
        let blocks: Vec<String> = fabric.blocks.iter().map(ToString::to_string).collect();
        let first = fabric.sid.map(|sid| format!(", and none to {sid}")).unwrap_or_default();
        let what = format!("error: no route leads to the block {}{first}", blocks.join(", "));
        return Err(Failure::failed(format!("{what}\nfix: set BACKEND_GATEWAY to the leaf's address")));
    };
    let state = directory(socket).join(name(socket, "plugin-bookings", "json"));
    Ok(text(&read, &fabric, (source, gateway), &state))
}

/// Answers of the API, which are used in addition to the environment.
#[derive(Clone, Debug)]
struct Fabric {
    /// Ids of the other hosts of the job.
    peers: Vec<String>,
    /// Blocks of the fabric's SIDs; never empty.
    blocks: BTreeSet<Ipv6Net>,
    /// A SID that the paths of this host begin with, if the API was asked. A fabric may announce its locators and no block.
    sid: Option<Ipv6Addr>,
}

impl Fabric {
    fn ask(read: &Environment) -> Result<Self, Failure> {
        if let (Peers::Listed(peers), Some(block)) = (&read.peers, read.block) {
            return Ok(Self { peers: peers.clone(), blocks: BTreeSet::from([block]), sid: None });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|why| Failure::failed(format!("error: cannot start: {why}")))?;
        runtime.block_on(Self::patiently(read))
    }

    /// Asks the API, and repeats that while it does not answer.
    async fn patiently(read: &Environment) -> Result<Self, Failure> {
        let end = Instant::now() + PATIENCE;
        let mut said = false;
        loop {
            let why = match Self::once(read).await? {
                Ok(fabric) => return Ok(fabric),
                Err(why) => why,
            };
            if Instant::now() >= end || !why.is_of_the_controller() {
                let fix = "check JALAPENO_API_ENDPOINT and TOPOLOGY_COLLECTION, or set HOSTS and SRV6_USID_BLOCK";
                return Err(Failure::failed(format!(
                    "error: the API does not say which block is in use: {why}\nfix: {fix}"
                )));
            }
            if !std::mem::replace(&mut said, true) {
                eprintln!("waiting for the API: {}", escaped(&why.to_string()));
            }
            sleep(PAUSE).await;
        }
    }

    async fn once(read: &Environment) -> Result<Result<Self, NoAnswer>, Failure> {
        let mut settings = Settings::new(&read.endpoint, &read.graph, &read.source);
        settings.peers = match &read.peers {
            Peers::Listed(peers) => peers.clone(),
            known @ Peers::Known { .. } => match keys(&settings).await {
                Ok(keys) => {
                    known.among(&read.source, &keys).map_err(|why| Failure::invalid(format!("error: {why}")))?
                }
                Err(why) => return Ok(Err(why)),
            },
        };
        let (blocks, sid) = match read.block {
            Some(block) => (BTreeSet::from([block]), None),
            None => match blocks(&settings).await {
                Ok(found) => (found.blocks, found.first),
                Err(why) => return Ok(Err(why)),
            },
        };
        Ok(Ok(Self { peers: settings.peers, blocks, sid }))
    }
}

async fn keys(settings: &Settings) -> Result<Vec<String>, NoAnswer> {
    let collection = settings.source.split_once('/').map_or("hosts", |(collection, _)| collection);
    Discovery::new(settings)?.keys(collection).await
}

async fn blocks(settings: &Settings) -> Result<Blocks, NoAnswer> {
    Discovery::new(settings)?.blocks().await
}

/// Returns a configuration with the same effect as the plugin's, except that the carrier is rebuilt and really reduced.
fn text(read: &Environment, fabric: &Fabric, (source, gateway): (IpAddr, IpAddr), state: &Path) -> String {
    let mut text = String::new();
    let interface = &read.interface;
    let _ = writeln!(text, "# Made of the environment: JALAPENO_API_ENDPOINT and its companions.\n");
    let _ = writeln!(text, "[node]\nsource = \"{source}\"\n");
    let _ = writeln!(text, "[[port]]\nname = \"{interface}\"\n");
    for block in &fabric.blocks {
        let _ = writeln!(text, "[[block]]\nprefix = \"{block}\"\n");
        let _ = writeln!(text, "[[route]]\nprefix = \"{block}\"\nvia = \"{gateway}\"\nport = \"{interface}\"\n");
    }
    let _ = writeln!(text, "[jalapeno]\nendpoint = \"{}\"\ngraph = \"{}\"", read.endpoint, read.graph);
    let _ = writeln!(text, "source = \"{}\"\npeers = {:?}", read.source, fabric.peers);
    // With a state file, a restart does not book again.
    let _ = writeln!(text, "state = {:?}", state.display().to_string());
    // The plugin also asks for one allocation per peer.
    let _ = writeln!(text, "path = \"load\"");
    if let Some(function) = read.function {
        // By convention of the plugin's fabrics fe04 is a uDT4 and fe06 a uDT6.
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
    use srv6d_config as config;

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
        let addresses = ("2001:db8:1000::2".parse().unwrap(), "2001:db8:1000::1".parse().unwrap());
        let peers = vec!["hosts/srv6-pytorch-1".to_owned()];
        let fabric = Fabric { peers, blocks: BTreeSet::from(["fc00::/32".parse().unwrap()]), sid: None };
        let text = |read: &Environment| super::text(read, &fabric, addresses, Path::new("/run/srv6d/bookings.json"));
        let for_v4 =
            config::parse(&text(&Environment { function: Some(0xfe04), ..read.clone() }), "plugin.toml").unwrap();
        let jalapeno = for_v4.jalapeno.unwrap();
        assert_eq!((jalapeno.function_v4.unwrap().get_ref().0, jalapeno.function_v6), (0xfe04, None));
        let text = text(&read);
        let config = config::parse(&text, "plugin.toml").unwrap();
        let plan = srv6d_plan::plan(&config, &srv6d_plan::Environment::default()).unwrap();
        assert_eq!(plan.desired.routes.iter().map(|route| route.prefix.to_string()).collect::<Vec<_>>(), ["fc00::/32"]);
        assert_eq!(plan.desired.blocks.first().unwrap().prefix.to_string(), "fc00::/32");
        let jalapeno = config.jalapeno.unwrap();
        assert_eq!(jalapeno.source.get_ref().0, "hosts/srv6-pytorch-0");
        assert_eq!(jalapeno.state.unwrap().get_ref(), Path::new("/run/srv6d/bookings.json"));
        assert_eq!(jalapeno.function_v6.unwrap().get_ref().0, 0xfe06);
    }
}
