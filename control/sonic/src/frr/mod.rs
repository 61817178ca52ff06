//! `frr.conf`: locators, static SIDs, static routes and the encapsulation source. All else is FRR's business.
//!
//! FRR takes a file line by line. Neither indentation nor `exit` decides where a line belongs: one that the current
//! node does not know is tried in the nodes around it, and goes on from there.
//!
//! ```text
//! segment-routing              Config -> SegmentRouting
//!  srv6                                  -> Srv6
//!   encapsulation                          -> Encapsulation
//!    source-address fcbb:bbbb:1::1
//!   locators                    unknown to Encapsulation, known to Srv6: Srv6 -> Locators
//! ```

mod keyword;
mod node;
mod route;
mod srv6;

use std::net::Ipv6Addr;

use crate::finding::Findings;
use crate::routes::Leg;
use crate::srv6::{WrittenLocator, WrittenSid};
use node::Node;

/// What the file says.
#[derive(Default)]
pub(crate) struct Written {
    /// The last `hostname`.
    pub(crate) hostname: Option<String>,
    pub(crate) locators: Vec<WrittenLocator>,
    pub(crate) sids: Vec<WrittenSid>,
    pub(crate) legs: Vec<Leg>,
    pub(crate) encapsulation_source: Option<(Ipv6Addr, String)>,
}

/// One line with its number.
pub(crate) struct Line<'a> {
    number: usize,
    /// Its words, without a `no` in front.
    words: Vec<&'a str>,
    /// It takes back what it says.
    no: bool,
}

impl<'a> Line<'a> {
    /// `None`: an empty line or a comment.
    fn read(number: usize, text: &'a str) -> Option<Self> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        if words.first().is_none_or(|word| word.starts_with(['!', '#'])) {
            return None;
        }
        let no = words.first() == Some(&"no");
        if no {
            words.remove(0);
        }
        Some(Self { number, words, no })
    }

    fn place(&self) -> String {
        format!("frr.conf:{}", self.number)
    }

    fn first(&self) -> &'a str {
        self.words.first().copied().unwrap_or_default()
    }
}

pub(crate) fn read(text: &str, found: &mut Findings) -> Written {
    let mut written = Written::default();
    let mut nodes = vec![Node::Config];
    let lines = text.trim_start_matches('\u{feff}').lines().zip(1..);
    for line in lines.filter_map(|(text, number)| Line::read(number, text)) {
        node::take(&mut nodes, &line, &mut written, found);
    }
    written
}
