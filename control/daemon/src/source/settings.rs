//! Converts tables of the configuration to the settings of controllers' tasks.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use ipnet::Ipv6Net;
use srv6d_addresses::TableId;
use srv6d_controller::{Allowed, MAX_ANSWER, jalapeno, syd};
use toml::Spanned;

use srv6d_config::{Criterion, Disjointness, Jalapeno, Optional, RequestSettings, Sharing, SteerMode, Steering, Syd};

const INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(3);
const CONCURRENCY: u16 = 8;
/// Number of paths that are requested of a kind that gives several.
const LIMIT: u16 = 4;
const LEASE: Duration = Duration::from_mins(1);
/// Name of the graph of the reference lab.
const GRAPH: &str = "fabric_graph";

#[expect(clippy::ref_option, reason = "as the fields of the schema are")]
fn or<T: Clone>(value: &Optional<T>, default: T) -> T {
    value.as_ref().map_or(default, |value| value.get_ref().clone())
}

/// The common properties of the prefixes of a controller's peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steer {
    /// Table of the prefixes.
    pub table: u32,
    /// Whether H.Encaps is used instead of H.Encaps.Red.
    pub full_srh: bool,
    /// Explicit next hop.
    pub via: Option<IpAddr>,
    /// Port of the explicit next hop.
    pub port: Option<String>,
}

impl Steer {
    /// Reads the keys of a table.
    pub fn of(steering: &Steering) -> Self {
        Self {
            table: or(&steering.table, TableId::MAIN).0,
            full_srh: or(&steering.mode, SteerMode::EncapRed) == SteerMode::Encap,
            via: steering.via.as_ref().map(|via| *via.get_ref()),
            port: steering.port.as_ref().map(|port| port.get_ref().clone()),
        }
    }
}

/// Returns the largest number of bytes of answers that are held at a time.
fn max_answer(asking: &RequestSettings) -> usize {
    asking.max_answer.as_ref().map_or(MAX_ANSWER, |mebibytes| usize::from(*mebibytes.get_ref()) * 1024 * 1024)
}

/// Returns the certificates that the configuration names.
fn ca(asking: &RequestSettings, read: impl Fn(&Path) -> io::Result<String>) -> Result<Option<String>, String> {
    let file = asking.ca_file.as_ref().map(Spanned::get_ref);
    file.map(|file| text_of("ca_file", file, read)).transpose()
}

/// Returns the text of a file that the configuration names.
fn text_of(what: &str, file: &Path, read: impl Fn(&Path) -> io::Result<String>) -> Result<String, String> {
    let name = file.display();
    let fix = "name a file that srv6d may read, with at most 16 MiB of text";
    read(file).map_err(|why| format!("cannot read the {what} {name}: {why}; {fix}, and `srv6d reload`"))
}

/// Converts `[jalapeno]`. Carriers must lie in `blocks` if there are any. `read` reads the job file and certificates.
///
/// # Errors
/// Returns an error if a file cannot be read, or the job file is invalid.
pub fn jalapeno_settings(
    table: &Jalapeno,
    blocks: Vec<Ipv6Net>,
    read: impl Fn(&Path) -> io::Result<String>,
) -> Result<jalapeno::Settings, String> {
    let limit = or(&table.limit, LIMIT);
    let kind = match or(&table.path, Criterion::Shortest) {
        Criterion::Shortest => jalapeno::Criterion::Shortest,
        Criterion::Latency => jalapeno::Criterion::Latency,
        Criterion::Utilization => jalapeno::Criterion::Utilization,
        Criterion::Load => jalapeno::Criterion::Load,
        Criterion::Sovereignty => jalapeno::Criterion::Sovereignty {
            excluded: table.excluded_countries.iter().map(|country| country.get_ref().clone()).collect(),
        },
        Criterion::BestPaths => jalapeno::Criterion::BestPaths { limit },
        Criterion::NextBestPath => jalapeno::Criterion::NextBestPath { limit },
        Criterion::Placed => jalapeno::Criterion::Placed,
    };
    let mut peers: Vec<String> = table.peers.iter().map(|peer| peer.get_ref().0.clone()).collect();
    if let Some(file) = &table.job {
        let file = file.get_ref();
        let text = text_of("job file", file, &read)?;
        peers.extend(jalapeno::read_job(&text).map_err(|why| format!("{}: {why}", file.display()))?);
    }
    let RequestSettings { interval, timeout, concurrency, .. } = &table.asking;
    let ca = ca(&table.asking, &read)?;
    Ok(jalapeno::Settings {
        endpoint: table.endpoint.get_ref().0.clone(),
        graph: or(&table.graph, GRAPH.to_owned()),
        source: table.source.get_ref().0.clone(),
        peers,
        kind,
        algo: or(&table.algo, 0),
        strict: or(&table.strict, false),
        function_v6: table.function_v6.as_ref().map(|function| function.get_ref().0),
        function_v4: table.function_v4.as_ref().map(|function| function.get_ref().0),
        ca,
        interval: or(interval, INTERVAL),
        timeout: or(timeout, TIMEOUT),
        max_answer: max_answer(&table.asking),
        allowed: Allowed { prefixes: table.allowed_prefixes.iter().map(|prefix| *prefix.get_ref()).collect(), blocks },
        concurrency: usize::from(or(concurrency, CONCURRENCY)),
        state: table.state.as_ref().map(|state| state.get_ref().clone()),
    })
}

/// Converts `[syd]`. Carriers must lie in `blocks` if there are any. `node` is this node's name, and `read` reads
/// certificates.
///
/// # Errors
/// Returns an error if the certificates cannot be read.
pub fn syd_settings(
    table: &Syd,
    blocks: Vec<Ipv6Net>,
    node: &str,
    read: impl Fn(&Path) -> io::Result<String>,
) -> Result<syd::Settings, String> {
    let optional = |text: &Optional<String>| text.as_ref().map(|text| text.get_ref().clone());
    let RequestSettings { interval, timeout, .. } = &table.asking;
    Ok(syd::Settings {
        endpoint: table.endpoint.get_ref().0.clone(),
        topology: table.topology.get_ref().clone(),
        workload: or(&table.workload, format!("srv6d-{node}")),
        node: table.node.get_ref().clone(),
        peers: table
            .peers
            .iter()
            .map(|peer| {
                let peer = peer.get_ref();
                (peer.node.get_ref().clone(), peer.prefixes.iter().map(|prefix| *prefix.get_ref()).collect())
            })
            .collect(),
        disjointness: or(&table.disjointness, Disjointness::None).keyword().to_owned(),
        sharing: or(&table.sharing, Sharing::Exclusive).keyword().to_owned(),
        tenant: optional(&table.tenant),
        policy: optional(&table.policy),
        algo: table.algo.as_ref().map(|algo| *algo.get_ref()),
        lease: or(&table.lease, LEASE),
        ca: ca(&table.asking, read)?,
        interval: or(interval, INTERVAL),
        timeout: or(timeout, TIMEOUT),
        max_answer: max_answer(&table.asking),
        // The prefixes are in the configuration.
        allowed: Allowed { blocks, ..Allowed::default() },
        only_look: false,
    })
}
