//! The environment of the SRv6 plugin for `PyTorch`: whoever used it can start srv6d in its place and change nothing else.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::Ipv6Net;

use super::job::id_of;

/// What the plugin's variables say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// `JALAPENO_API_ENDPOINT`.
    pub endpoint: String,
    /// `TOPOLOGY_COLLECTION`; the plugin's text says `fabric_graph`, its code `network_topology`.
    pub graph: String,
    /// `BACKEND_INTERFACE`, default `eth1`.
    pub interface: String,
    /// This host's id: `HOSTNAME`, else the entry of `HOSTS` that `RANK` points at, else `HOSTNAME_PREFIX` and rank.
    pub source: String,
    /// The other hosts' ids.
    pub peers: Vec<String>,
    /// `DEST_FUNCTION`.
    pub function: Option<u16>,
    /// `SRV6_ENCAP_MODE` is `encap`.
    pub full_srh: bool,
    /// `ROUTE_TABLE_ID`, default 254.
    pub table: u32,
    /// `BACKEND_GATEWAY`.
    pub gateway: Option<IpAddr>,
    /// `SRV6_USID_BLOCK`, default `fcbb::/32`.
    pub block: Ipv6Net,
    /// What was read in another way than the plugin's documents say.
    pub notes: Vec<String>,
}

/// A variable that is missing or cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {what}; {fix}")]
pub struct EnvironmentError {
    /// Its name.
    pub variable: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub fix: &'static str,
}

/// Reads the variables.
///
/// # Errors
/// The first that is missing or cannot be used.
pub fn read(variables: &BTreeMap<String, String>) -> Result<Environment, EnvironmentError> {
    let said = Said(variables);
    let mut notes = Vec::new();
    let endpoint = said.text("JALAPENO_API_ENDPOINT").ok_or_else(|| {
        error("JALAPENO_API_ENDPOINT", "is not set", "set it, e.g. to http://198.18.133.104:30800/api/v1")
    })?;
    let graph = said.text("TOPOLOGY_COLLECTION").unwrap_or_else(|| {
        notes.push("TOPOLOGY_COLLECTION is not set: fabric_graph".to_owned());
        "fabric_graph"
    });
    let (source, peers) = said.job(&mut notes)?;
    let gateway = match said.text("BACKEND_GATEWAY").map(str::parse) {
        None => None,
        Some(Ok(gateway)) => Some(gateway),
        Some(Err(_)) => return Err(error("BACKEND_GATEWAY", "is not an address", "write the leaf's address")),
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
        table: u32::try_from(said.number("ROUTE_TABLE_ID", 254)?).unwrap_or(254),
        gateway,
        block,
        notes,
    })
}

fn error(variable: &'static str, what: &str, fix: &'static str) -> EnvironmentError {
    EnvironmentError { variable, what: what.to_owned(), fix }
}

/// The variables; empty ones are not set.
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

    /// Ids of this host and of the others.
    fn job(self, notes: &mut Vec<String>) -> Result<(String, Vec<String>), EnvironmentError> {
        let rank = self.number("RANK", 0)?;
        let prefix = self.text("HOSTNAME_PREFIX").unwrap_or("host");
        let hosts: Vec<&str> = self
            .text("HOSTS")
            .map(|hosts| hosts.split([',', ' ']).filter(|host| !host.is_empty()).collect())
            .unwrap_or_default();
        let world = self.number("WORLD_SIZE", hosts.len())?;
        let by_rank = |rank: usize| format!("{prefix}{rank:02}");
        let all: Vec<String> = match hosts.as_slice() {
            [] => (0..world).map(by_rank).collect(),
            listed => listed.iter().map(|host| (*host).to_owned()).collect(),
        };
        if all.len() < 2 {
            return Err(error("HOSTS", "names no other host", "list every host of the job, or set WORLD_SIZE"));
        }
        let named = self.text("HOSTNAME").filter(|name| all.iter().any(|host| host == name));
        if let (None, None, Some(name), Some(first)) = (named, self.text("RANK"), self.text("HOSTNAME"), all.first()) {
            notes.push(format!("HOSTNAME {name} is none of the hosts and RANK is not set: this is {first}"));
        }
        let own = named.map(str::to_owned).or_else(|| all.get(rank).cloned());
        let own =
            own.ok_or_else(|| error("RANK", "is beyond the last host", "set RANK, or HOSTNAME to one of HOSTS"))?;
        let id = |name: &str| id_of(name).map_err(|why| error("HOSTS", &why.to_string(), "write keys"));
        let peers = all.iter().filter(|host| **host != own).map(|host| id(host)).collect::<Result<_, _>>()?;
        Ok((id(&own)?, peers))
    }

    fn function(self) -> Result<Option<u16>, EnvironmentError> {
        let Some(value) = self.text("DEST_FUNCTION") else { return Ok(None) };
        match u16::from_str_radix(value.trim_start_matches("0x"), 16) {
            Ok(function @ 1..) => Ok(Some(function)),
            _ => Err(error("DEST_FUNCTION", value, "write a uSID in hexadecimal, e.g. fe06")),
        }
    }

    fn block(self) -> Result<Ipv6Net, EnvironmentError> {
        match self.text("SRV6_USID_BLOCK").map(str::parse::<Ipv6Net>) {
            None => Ok(Ipv6Net::new_assert(Ipv6Addr::new(0xfcbb, 0, 0, 0, 0, 0, 0, 0), 32)),
            Some(Ok(block)) => Ok(block.trunc()),
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
        assert_eq!(read.peers, ["hosts/srv6-pytorch-0", "hosts/srv6-pytorch-2"]);
        assert_eq!((read.function, read.table, read.full_srh), (Some(0xfe06), 254, false));
        assert_eq!(read.gateway, Some("fcbb:0:800:1::1".parse().unwrap()));
        assert!(read.notes.is_empty());
    }

    #[test]
    fn without_a_list_ranks_make_the_names() {
        let read = read(&variables(&[
            ("JALAPENO_API_ENDPOINT", "http://[::1]:30800"),
            ("RANK", "0"),
            ("WORLD_SIZE", "3"),
            ("SRV6_ENCAP_MODE", "encap"),
        ]))
        .unwrap();
        assert_eq!(read.source, "hosts/host00");
        assert_eq!(read.peers, ["hosts/host01", "hosts/host02"]);
        assert_eq!((read.interface.as_str(), read.graph.as_str()), ("eth1", "fabric_graph"));
        assert!(read.full_srh);
        assert_eq!(read.notes.len(), 1);
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
    fn what_is_missing_or_wrong_is_named() {
        let endpoint = ("JALAPENO_API_ENDPOINT", "http://[::1]:30800");
        let why = |pairs: &[(&str, &str)]| read(&variables(pairs)).unwrap_err().variable;
        assert_eq!(why(&[]), "JALAPENO_API_ENDPOINT");
        assert_eq!(why(&[endpoint]), "HOSTS");
        assert_eq!(why(&[endpoint, ("HOSTS", "a,b"), ("RANK", "2")]), "RANK");
        assert_eq!(why(&[endpoint, ("HOSTS", "a,b"), ("DEST_FUNCTION", "zz")]), "DEST_FUNCTION");
        assert_eq!(why(&[endpoint, ("HOSTS", "a,b'")]), "HOSTS");
    }
}
