//! The environment variables of the SRv6 plugin for `PyTorch`. A user of the plugin can start srv6d in its place and
//! change nothing else.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use super::job::id_of;

/// Settings that the plugin's variables contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// `JALAPENO_API_ENDPOINT`.
    pub endpoint: String,
    /// `TOPOLOGY_COLLECTION`, default `fabric_graph` as in the plugin's documentation (its code has
    /// `network_topology`).
    pub graph: String,
    /// `BACKEND_INTERFACE`, default `eth1`.
    pub interface: String,
    /// Id of this host: `HOSTNAME`, else the entry of `HOSTS` at index `RANK`, else `HOSTNAME_PREFIX` and rank.
    pub source: String,
    /// The other hosts of the job.
    pub peers: Peers,
    /// `DEST_FUNCTION`.
    pub function: Option<u16>,
    /// Whether `SRV6_ENCAP_MODE` is `encap`.
    pub full_srh: bool,
    /// `ROUTE_TABLE_ID`, default 254.
    pub table: u32,
    /// `BACKEND_GATEWAY`.
    pub gateway: Option<Ipv6Addr>,
    /// `SRV6_USID_BLOCK`; if it is not set, the block is discovered through the API.
    pub block: Option<Ipv6Net>,
    /// Variables that were interpreted in another way than the plugin's documentation says.
    pub notes: Vec<String>,
}

/// The other hosts of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Ids of the hosts that `HOSTS` lists.
    Listed(Vec<String>),
    /// `HOSTS` is not set. The plugin learns the names from the other ranks, srv6d from the API's hosts.
    Known {
        /// Lists of the names of all hosts of the job, if they are named by their ranks like this one. The most likely
        /// list comes first.
        candidates: Vec<Vec<String>>,
        /// `WORLD_SIZE`.
        world: Option<usize>,
    },
}

impl Peers {
    /// Returns the ids of the other hosts. `keys` are the hosts that the API knows.
    ///
    /// # Errors
    /// If they cannot be told from hosts outside of the job, or if there are none.
    pub fn among(&self, own: &str, keys: &[String]) -> Result<Vec<String>, EnvironmentError> {
        let Self::Known { candidates, world } = self else { return self.listed() };
        let is_known = |names: &&Vec<String>| names.len() > 1 && names.iter().all(|name| keys.contains(name));
        let all = match (candidates.iter().find(is_known), world) {
            (Some(names), _) => names.as_slice(),
            (None, Some(world)) if *world != keys.len() => {
                let what = format!("is not set, and the API has {} hosts, but WORLD_SIZE is {world}", keys.len());
                return Err(error("HOSTS", &what, "list every host of the job"));
            }
            (None, _) => keys,
        };
        let ids: Result<Vec<String>, _> = all.iter().map(|name| id_of(name)).collect();
        let mut ids = ids.map_err(|why| error("HOSTS", &why.to_string(), "list every host of the job"))?;
        if !ids.iter().any(|id| id == own) {
            let what = format!("is set so that this host is {own}, which the API does not know");
            return Err(error("HOSTNAME", &what, "set it to the key of this host's document"));
        }
        ids.retain(|id| id != own);
        if ids.is_empty() {
            return Err(error("HOSTS", "is not set, and the API has no other host", "list every host of the job"));
        }
        Ok(ids)
    }

    fn listed(&self) -> Result<Vec<String>, EnvironmentError> {
        match self {
            Self::Listed(ids) => Ok(ids.clone()),
            Self::Known { .. } => Err(error("HOSTS", "is not set", "list every host of the job")),
        }
    }
}

/// A variable that is missing or has an unusable value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {what}; {fix}")]
pub struct EnvironmentError {
    /// Name of the variable.
    pub variable: &'static str,
    /// What is wrong.
    pub what: String,
    /// Correction that the user can make.
    pub fix: &'static str,
}

/// Reads the variables of the plugin.
///
/// # Errors
/// The first variable that is missing or has an unusable value.
pub fn read(variables: &BTreeMap<String, String>) -> Result<Environment, EnvironmentError> {
    let said = Said(variables);
    let mut notes = Vec::new();
    let endpoint = said.endpoint()?;
    let graph = said.graph(&mut notes)?;
    let (source, peers) = said.job(&mut notes)?;
    let gateway = match said.text("BACKEND_GATEWAY").map(str::parse) {
        None => None,
        Some(Ok(gateway)) => Some(gateway),
        Some(Err(_)) => {
            return Err(error("BACKEND_GATEWAY", "is not an IPv6 address", "write the leaf's IPv6 address"));
        }
    };
    let (function, block) = (said.function()?, said.block()?);
    if said.text("ROUTE_PLATFORM").is_some_and(|platform| platform != "linux") {
        notes.push("ROUTE_PLATFORM: srv6d forwards itself, whatever the platform".to_owned());
    }
    Ok(Environment {
        endpoint: endpoint.to_owned(),
        graph: graph.to_owned(),
        interface: said.text("BACKEND_INTERFACE").unwrap_or("eth1").to_owned(),
        source,
        peers,
        function,
        full_srh: said.text("SRV6_ENCAP_MODE") == Some("encap"),
        table: said.table()?,
        gateway,
        block,
        notes,
    })
}

fn error(variable: &'static str, what: &str, fix: &'static str) -> EnvironmentError {
    EnvironmentError { variable, what: what.to_owned(), fix }
}

/// The variables. An empty variable counts as not set.
#[derive(Clone, Copy)]
struct Said<'v>(&'v BTreeMap<String, String>);

impl<'v> Said<'v> {
    fn text(self, name: &str) -> Option<&'v str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn number(self, variable: &'static str, usual: usize) -> Result<usize, EnvironmentError> {
        let Some(value) = self.text(variable) else { return Ok(usual) };
        value.parse().map_err(|_| error(variable, value, "write a number"))
    }

    /// Returns the address of the API.
    fn endpoint(self) -> Result<&'v str, EnvironmentError> {
        const VARIABLE: &str = "JALAPENO_API_ENDPOINT";
        const FIX: &str = "set it, e.g. to http://198.18.133.104:30800/api/v1";
        let endpoint = self.text(VARIABLE).ok_or_else(|| error(VARIABLE, "is not set", FIX))?;
        let is_http = ["http://", "https://"].iter().any(|scheme| endpoint.starts_with(scheme));
        if is_http { Ok(endpoint) } else { Err(error(VARIABLE, "begins with neither http:// nor https://", FIX)) }
    }

    /// Returns the name of the graph, which becomes a part of the path of each request.
    fn graph(self, notes: &mut Vec<String>) -> Result<&'v str, EnvironmentError> {
        let Some(graph) = self.text("TOPOLOGY_COLLECTION") else {
            notes.push("TOPOLOGY_COLLECTION is not set: fabric_graph".to_owned());
            return Ok("fabric_graph");
        };
        let is_plain = graph.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let fix = "write the name of the graph: letters, digits, _ and -";
        if is_plain { Ok(graph) } else { Err(error("TOPOLOGY_COLLECTION", "is no name of a graph", fix)) }
    }

    /// Returns the routing table of the steered prefixes.
    fn table(self) -> Result<u32, EnvironmentError> {
        const LOCAL: u32 = 255;
        match u32::try_from(self.number("ROUTE_TABLE_ID", 254)?) {
            Ok(table) if table != 0 && table != LOCAL => Ok(table),
            _ => Err(error("ROUTE_TABLE_ID", "is no table for routes", "write the number of a table, 254 for main")),
        }
    }

    /// Returns the id of this host, and the other hosts.
    fn job(self, notes: &mut Vec<String>) -> Result<(String, Peers), EnvironmentError> {
        let rank = self.number("RANK", 0)?;
        let prefix = self.text("HOSTNAME_PREFIX").unwrap_or("host");
        let hosts: Vec<&str> = self
            .text("HOSTS")
            .map(|hosts| hosts.split([',', ' ']).filter(|host| !host.is_empty()).collect())
            .unwrap_or_default();
        let id = |name: &str| id_of(name).map_err(|why| error("HOSTS", &why.to_string(), "write keys"));
        if hosts.is_empty() {
            let own = self.text("HOSTNAME").map_or_else(|| format!("{prefix}{rank:02}"), str::to_owned);
            return Ok((id(&own)?, self.unlisted(&own, rank)?));
        }
        if hosts.len() < 2 {
            return Err(error("HOSTS", "names no other host", "list every host of the job, or set WORLD_SIZE"));
        }
        // `host01` and `hosts/host01` are one host, so ids are compared.
        let all: Vec<String> = hosts.iter().map(|host| id(host)).collect::<Result<_, _>>()?;
        let named = self.text("HOSTNAME").and_then(|name| id_of(name).ok()).filter(|name| all.contains(name));
        if let (None, None, Some(name), Some(first)) = (&named, self.text("RANK"), self.text("HOSTNAME"), hosts.first())
        {
            notes.push(format!("HOSTNAME {name} is none of the hosts and RANK is not set: this is {first}"));
        }
        let own = named.or_else(|| all.get(rank).cloned());
        let own =
            own.ok_or_else(|| error("RANK", "is beyond the last host", "set RANK, or HOSTNAME to one of HOSTS"))?;
        let peers = all.into_iter().filter(|host| *host != own).collect();
        Ok((own, Peers::Listed(peers)))
    }

    /// Returns the peers for a job without a list of hosts. If a host's name ends in its rank (`host00`, `pytorch-0`),
    /// the names of the others probably end in theirs.
    fn unlisted(self, own: &str, rank: usize) -> Result<Peers, EnvironmentError> {
        const MOST: usize = 1 << 17;
        let world = match self.number("WORLD_SIZE", 0)? {
            0 => None,
            world @ 1..=MOST => Some(world),
            world => return Err(error("WORLD_SIZE", &world.to_string(), "write the number of ranks")),
        };
        let stem = own.trim_end_matches(|c: char| c.is_ascii_digit());
        let width = own.len() - stem.len();
        let is_its_rank = own.get(stem.len()..).and_then(|digits| digits.parse().ok()) == Some(rank);
        let by_rank = |world: usize| (0..world).map(|rank| format!("{stem}{rank:0width$}")).collect();
        let candidates = world.filter(|_| is_its_rank).map(by_rank).into_iter().collect();
        Ok(Peers::Known { candidates, world })
    }

    fn function(self) -> Result<Option<u16>, EnvironmentError> {
        let Some(value) = self.text("DEST_FUNCTION") else { return Ok(None) };
        match u16::from_str_radix(value.trim_start_matches("0x"), 16) {
            Ok(function @ 1..) => Ok(Some(function)),
            _ => Err(error("DEST_FUNCTION", value, "write a uSID in hexadecimal, e.g. fe06")),
        }
    }

    fn block(self) -> Result<Option<Ipv6Net>, EnvironmentError> {
        match self.text("SRV6_USID_BLOCK").map(str::parse::<Ipv6Net>) {
            None => Ok(None),
            Some(Ok(block)) => Ok(Some(block.trunc())),
            Some(Err(_)) => Err(error("SRV6_USID_BLOCK", "is not a prefix", "write it as fcbb::/32")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_pod_of_the_plugin_is_understood() {
        let read = read(&variables(&[
            ("JALAPENO_API_ENDPOINT", "http://198.18.133.104:30800/api/v1"),
            ("TOPOLOGY_COLLECTION", "fabric_graph"),
            ("BACKEND_INTERFACE", "net1"),
            ("HOSTS", "srv6-pytorch-0,srv6-pytorch-1,srv6-pytorch-2"),
            ("RANK", "1"),
            ("WORLD_SIZE", "3"),
            ("DEST_FUNCTION", "fe06"),
            ("BACKEND_GATEWAY", "fcbb:0:800:1::1"),
            ("ROUTE_TABLE_ID", "254"),
        ]))
        .unwrap();
        assert_eq!(read.source, "hosts/srv6-pytorch-1");
        let peers = ["hosts/srv6-pytorch-0", "hosts/srv6-pytorch-2"].map(str::to_owned).to_vec();
        assert_eq!(read.peers, Peers::Listed(peers));
        assert_eq!(read.block, None, "the API says which one");
        assert_eq!((read.function, read.table, read.full_srh), (Some(0xfe06), 254, false));
        assert_eq!(read.gateway, Some("fcbb:0:800:1::1".parse().unwrap()));
        assert!(read.notes.is_empty());
    }

    #[test]
    fn without_a_list_the_peers_are_hosts_that_the_api_knows() {
        let read = |more: &[(&str, &str)]| {
            read(&variables(&[&[("JALAPENO_API_ENDPOINT", "http://[::1]:30800")], more].concat())).unwrap()
        };
        let keys = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let among = |more: &[(&str, &str)], known: &[&str]| {
            let read = read(more);
            let peers = read.peers.among(&read.source, &keys(known)).map_err(|why| why.to_string());
            peers.map(|peers| (read.source, peers.join(" ")))
        };
        let of = |own: &str, peers: &str| Ok((own.to_owned(), peers.to_owned()));
        let three = ["host00", "host01", "host02"];
        // The environment is that of demo/.env of the plugin, in a container.
        assert_eq!(among(&[("HOSTNAME", "host01")], &three), of("hosts/host01", "hosts/host00 hosts/host02"));
        // A job on some hosts of a fabric, which are named by their ranks.
        let two = [("RANK", "1"), ("WORLD_SIZE", "2")];
        assert_eq!(among(&two, &three), of("hosts/host01", "hosts/host00"));
        let set = [("HOSTNAME", "pytorch-0"), ("RANK", "0"), ("WORLD_SIZE", "2")];
        assert_eq!(among(&set, &["pytorch-0", "pytorch-1", "host00"]), of("hosts/pytorch-0", "hosts/pytorch-1"));
        // No name is invented.
        let why = among(&[("HOSTNAME", "a"), ("WORLD_SIZE", "2")], &["a", "b", "c"]).unwrap_err();
        assert!(why.starts_with("HOSTS: is not set, and the API has 3 hosts, but WORLD_SIZE is 2"), "{why}");
        assert!(among(&[("HOSTNAME", "x")], &three).unwrap_err().starts_with("HOSTNAME: "));
        assert!(among(&[("HOSTNAME", "host00")], &["host00"]).unwrap_err().contains("no other host"));
    }

    #[test]
    fn a_guess_is_said() {
        let read = |more: &[(&str, &str)]| {
            let known =
                [("JALAPENO_API_ENDPOINT", "http://[::1]:30800"), ("TOPOLOGY_COLLECTION", "g"), ("HOSTS", "a,b")];
            let read = read(&variables(&[&known, more].concat())).unwrap();
            (read.source, read.notes)
        };
        assert_eq!(read(&[("HOSTNAME", "b")]), ("hosts/b".to_owned(), vec![]));
        assert_eq!(read(&[("HOSTNAME", "pod-7"), ("RANK", "1")]), ("hosts/b".to_owned(), vec![]));
        let note = "HOSTNAME pod-7 is none of the hosts and RANK is not set: this is a".to_owned();
        assert_eq!(read(&[("HOSTNAME", "pod-7")]), ("hosts/a".to_owned(), vec![note]));
    }

    #[test]
    fn a_host_is_the_same_with_and_without_its_collection() {
        for (hosts, hostname) in [("hosts/host01,hosts/host00", "host00"), ("host01,host00", "hosts/host00")] {
            let endpoint = ("JALAPENO_API_ENDPOINT", "http://[::1]:30800");
            let read = read(&variables(&[endpoint, ("HOSTS", hosts), ("HOSTNAME", hostname)])).unwrap();
            assert_eq!(
                (read.source.as_str(), &read.peers),
                ("hosts/host00", &Peers::Listed(vec!["hosts/host01".into()]))
            );
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let endpoint = ("JALAPENO_API_ENDPOINT", "http://[::1]:30800");
        let why = |pairs: &[(&str, &str)]| read(&variables(pairs)).unwrap_err().variable;
        assert_eq!(why(&[]), "JALAPENO_API_ENDPOINT");
        assert_eq!(why(&[endpoint, ("HOSTS", "a")]), "HOSTS");
        assert_eq!(why(&[endpoint, ("HOSTS", "a,b"), ("RANK", "2")]), "RANK");
        assert_eq!(why(&[endpoint, ("HOSTS", "a,b"), ("DEST_FUNCTION", "zz")]), "DEST_FUNCTION");
        assert_eq!(why(&[endpoint, ("HOSTS", "a,b'")]), "HOSTS");
        for wrong in ["ftp://x", "host:30800", "x"] {
            assert_eq!(why(&[("JALAPENO_API_ENDPOINT", wrong)]), "JALAPENO_API_ENDPOINT", "{wrong}");
        }
        for (variable, wrong) in [
            ("TOPOLOGY_COLLECTION", "a?b"),
            ("TOPOLOGY_COLLECTION", "a/b#"),
            ("BACKEND_GATEWAY", "192.0.2.1"),
            ("ROUTE_TABLE_ID", "4294967296"),
            ("ROUTE_TABLE_ID", "255"),
            ("ROUTE_TABLE_ID", "0"),
        ] {
            assert_eq!(why(&[endpoint, ("HOSTS", "a,b"), (variable, wrong)]), variable, "{wrong}");
        }
    }
}
