//! A job file: the hosts of a training job, in the order of their ranks.
//!
//! ```text
//! # JSON: ["host00", "host01"], {"hosts": [...]}, {"ranks": [{"rank": 0, "host": "host00"}]}
//! # or one host per line, as launchers write it; a rank in front and `slots=8` behind are ignored
//! host00
//! 1 host01 slots=8
//! ```

use serde::Deserialize;

use super::is_id;
use srv6d_text::{MAX_NAME, shown, shown_up_to};

/// Maximum number of hosts of a job, which is also the maximum number of vertices of a topology.
const MAX_HOSTS: usize = 1 << 17;

/// Reason why a job file could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The text has neither of the two forms. It is escaped and cut.
    #[error("not a list of hosts: {0}; write one host per line, or JSON [\"host00\", \"host01\"]")]
    Malformed(String),
    /// A host whose name cannot be an id. The name is escaped and cut.
    #[error("\"{0}\" cannot be the id of a host; write its key, e.g. host00, or collection/key")]
    NotAnId(String),
    /// More hosts than a topology may have vertices.
    #[error("{0} hosts are listed, at most {MAX_HOSTS} are read; list those of one job")]
    TooMany(usize),
    /// The file lists no host.
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

/// Returns the ids of the hosts in the order of their ranks. A bare name is a key of the collection `hosts`.
///
/// # Errors
/// [`JobError`], if the text has neither form, or lists no host or one that cannot be an id.
pub fn read(text: &str) -> Result<Vec<String>, JobError> {
    let names = if text.trim_start().starts_with(['[', '{']) { from_json(text)? } else { from_lines(text) };
    if names.is_empty() {
        return Err(JobError::Empty);
    }
    if names.len() > MAX_HOSTS {
        return Err(JobError::TooMany(names.len()));
    }
    names.into_iter().map(|name| id_of(&name)).collect()
}

/// Returns the id of a host. A bare name is a key of the collection `hosts`.
///
/// # Errors
/// If the name cannot be an id.
pub fn id_of(name: &str) -> Result<String, JobError> {
    let id = if name.contains('/') { name.to_owned() } else { format!("hosts/{name}") };
    if is_id(&id) { Ok(id) } else { Err(JobError::NotAnId(shown_up_to(name, MAX_NAME))) }
}

fn from_json(text: &str) -> Result<Vec<String>, JobError> {
    let job: Job = serde_json::from_str(text).map_err(|why| JobError::Malformed(shown(&why.to_string())))?;
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

    #[test]
    fn what_is_wrong_is_shown_cut_and_escaped() {
        let garbage = "\u{1b}]garbage".repeat(50_000);
        assert_eq!(read(&"a\n".repeat(MAX_HOSTS + 1)), Err(JobError::TooMany(MAX_HOSTS + 1)));
        for text in [garbage.clone(), format!("[\"{garbage}\"]"), format!("[\"{}\"]", "x".repeat(400_000))] {
            let said = read(&text).unwrap_err().to_string();
            assert!(said.len() < 1000 && !said.contains('\u{1b}'), "{}: {said:.100}", said.len());
        }
    }
}
