//! A job that has been checked, with what is looked up in it for each rank and each path.

use std::collections::HashMap;

use crate::job::{Address, Job, Member};
use crate::refused::Refused;

/// A job without mistakes, its digest, and indexes of its members. It is made once for all ranks that join by a request.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedJob {
    job: Job,
    digest: String,
    by_rank: HashMap<u32, usize>,
    by_address: HashMap<Address, usize>,
}

impl CheckedJob {
    /// Checks a job.
    ///
    /// # Errors
    /// A refusal with its fix.
    pub fn new(job: Job) -> Result<Self, Refused> {
        job.check()?;
        let digest = job.digest();
        let by_rank = job.members.iter().enumerate().map(|(at, member)| (member.rank, at)).collect();
        let addresses = job.members.iter().enumerate();
        // An address belongs to one host, so any of its members will do.
        let by_address =
            addresses.flat_map(|(at, member)| member.addresses.iter().map(move |address| (*address, at))).collect();
        Ok(Self { job, digest, by_rank, by_address })
    }

    /// Returns the job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Returns its digest in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the member of a rank.
    pub fn member(&self, rank: u32) -> Option<&Member> {
        self.by_rank.get(&rank).and_then(|at| self.job.members.get(*at))
    }

    /// Returns the host that an address belongs to.
    pub fn host_of(&self, address: &Address) -> Option<&str> {
        self.by_address.get(address).and_then(|at| self.job.members.get(*at)).map(|member| member.host.as_str())
    }
}
