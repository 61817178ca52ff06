//! A job file: the hosts of a training job, in the order of their ranks.
//!
//! ```text
//! # JSON: ["host00", "host01"], {"hosts": [...]}, {"ranks": [{"rank": 0, "host": "host00"}]}
//! # or one host per line, as launchers write it; a rank before it, and `slots=8` behind it, are passed over
//! host00
//! 1 host01 slots=8
//! ```

use serde::Deserialize;

use super::is_id;

/// Why a job file was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// Neither of the two forms.
    #[error("not a list of hosts: {0}; write one host per line, or JSON [\"host00\", \"host01\"]")]
    Malformed(String),
    /// A host whose name cannot be an id.
    #[error("{0:?} cannot be the id of a host; write its key, e.g. host00, or collection/key")]
    NotAnId(String),
    /// Nobody is in it.
    #[error("no host is listed")]
    Empty,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Job {
    List(Vec<Host>),
    Hosts { hosts: Vec<Host> },
    Ranks { ranks: Vec<Host> },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Host {
    Name(String),
    Entry { host: String, rank: Option<u32> },
}

/// Ids of the hosts; a bare name is a key of the collection `hosts`.
///
/// # Errors
/// [`JobError`].
pub fn read(text: &str) -> Result<Vec<String>, JobError> {
    let names = if text.trim_start().starts_with(['[', '{']) { from_json(text)? } else { from_lines(text) };
    if names.is_empty() {
        return Err(JobError::Empty);
    }
    names.into_iter().map(|name| id_of(&name)).collect()
}

/// A bare name is a key of the collection `hosts`.
///
/// # Errors
/// It cannot be an id.
pub fn id_of(name: &str) -> Result<String, JobError> {
    let id = if name.contains('/') { name.to_owned() } else { format!("hosts/{name}") };
    if is_id(&id) { Ok(id) } else { Err(JobError::NotAnId(name.to_owned())) }
}

fn from_json(text: &str) -> Result<Vec<String>, JobError> {
    let job: Job = serde_json::from_str(text).map_err(|why| JobError::Malformed(why.to_string()))?;
    let (Job::List(hosts) | Job::Hosts { hosts } | Job::Ranks { ranks: hosts }) = job;
    let mut ranked: Vec<(u32, String)> = hosts
        .into_iter()
        .zip(0..)
        .map(|(host, position)| match host {
            Host::Name(name) => (position, name),
            Host::Entry { host, rank } => (rank.unwrap_or(position), host),
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    Ok(ranked.into_iter().map(|(_, host)| host).collect())
}

fn from_lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter_map(host_of_line).collect()
}

fn host_of_line(line: &str) -> Option<String> {
    let mut words = line.split([' ', '\t', ',', ':', '=']).filter(|word| !word.is_empty());
    let first = words.next()?;
    let name = if first.parse::<u32>().is_ok() { words.next().unwrap_or(first) } else { first };
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn every_form_names_the_same_hosts() {
        let wanted = vec!["hosts/host00".to_owned(), "hosts/host01".to_owned()];
        for text in [
            r#"["host00", "host01"]"#,
            r#"{"hosts": ["host00", "hosts/host01"]}"#,
            r#"{"ranks": [{"rank": 1, "host": "host01"}, {"rank": 0, "host": "host00"}]}"#,
            "host00\nhost01\n",
            "# the job\n0 host00 slots=8\n1 host01 slots=8\n",
            "0: host00\n1: host01",
        ] {
            assert_eq!(read(text).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_job_is_refused() {
        assert_eq!(read("\n# nobody\n"), Err(JobError::Empty));
        assert!(matches!(read("{\"a\": 1}"), Err(JobError::Malformed(_))));
        assert!(matches!(read("host00' REMOVE"), Err(JobError::NotAnId(_))));
    }
}
