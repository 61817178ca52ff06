//! Discovery of what a host must know of a fabric before it has a configuration: its peers, and the blocks in use.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use super::answer::AnsweredPath;
use super::asker::pair;
use super::client::Client;
use super::{Criterion, Settings};
use crate::failure::Failure;
use crate::http::Repeat;
use crate::snapshot::Cause;

/// Maximum number of peers that are asked for until a path shows the block.
const TRIED: usize = 4;

/// The SID space of a fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// The blocks in use.
    pub blocks: BTreeSet<Ipv6Net>,
    /// The first SID of a path, to which a route must lead.
    pub first: Option<Ipv6Addr>,
}

/// Sends requests to the API of one endpoint. No request makes a booking.
#[derive(Debug)]
pub struct Discovery<'s> {
    client: Client,
    settings: &'s Settings,
}

impl<'s> Discovery<'s> {
    /// Creates a client for the endpoint of the settings.
    ///
    /// # Errors
    /// If the endpoint is not a URL, or `ca` does not contain a certificate.
    pub fn new(settings: &'s Settings) -> Result<Self, Failure> {
        Ok(Self { client: Client::new(settings)?, settings })
    }

    /// Returns the keys of a collection, e.g. `hosts`.
    ///
    /// # Errors
    /// If there is no answer, or one that does not list keys.
    pub async fn keys(&self, collection: &str) -> Result<Vec<String>, Failure> {
        self.client.keys(collection).await
    }

    /// Returns the blocks of the SIDs on the shortest paths to the first peer whose paths have SIDs.
    ///
    /// # Errors
    /// If there is no answer, or no path has a SID.
    pub async fn blocks(&self) -> Result<Blocks, Failure> {
        let source = &self.settings.source;
        let mut why = Failure::new(Cause::NotFound, format!("{source} has no peers"));
        for peer in self.settings.peers.iter().filter(|peer| *peer != source).take(TRIED) {
            let answer = self.client.paths("shortest_path", &pair(self.settings, peer), Repeat::Safe).await;
            match answer.and_then(|said| said.judge(&Criterion::Shortest, source, peer)) {
                Ok(answered) => {
                    let blocks = blocks_of(&answered.paths);
                    if !blocks.is_empty() {
                        return Ok(Blocks { blocks, first: first_sid(&answered.paths) });
                    }
                    why = Failure::new(Cause::InvalidCarrier, format!("path to {peer}: no node has a SID"));
                }
                Err(failure) if failure.is_of_the_controller() => return Err(failure),
                Err(failure) => why = failure,
            }
        }
        Err(why)
    }
}

fn blocks_of(found: &[AnsweredPath]) -> BTreeSet<Ipv6Net> {
    let nodes = found.iter().flat_map(|path| &path.vertices).filter(|vertex| vertex.is_node);
    let blocks = nodes.flat_map(|node| &node.sids).filter_map(|sid| sid.split().ok());
    blocks.map(|(block, _)| prefix(block.0)).collect()
}

fn first_sid(found: &[AnsweredPath]) -> Option<Ipv6Addr> {
    let mut nodes = found.iter().flat_map(|path| &path.vertices).filter(|vertex| vertex.is_node);
    nodes.find_map(|node| node.sids.iter().find(|sid| sid.split().is_ok())).map(|sid| sid.address)
}

fn prefix([high, low]: [u16; 2]) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(high, low, 0, 0, 0, 0, 0, 0), 32)
}
