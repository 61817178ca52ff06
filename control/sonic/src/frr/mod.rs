//! Reads locators, static SIDs, static routes and the encapsulation source from `frr.conf`. Everything else is left to
//! FRR.
//!
//! FRR reads a file line by line. Neither indentation nor `exit` decides where a line belongs: if the current node does
//! not know a line, FRR tries the nodes around it and continues from the one that does.
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
mod ordered;
mod route;
mod srv6;

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::finding::Findings;
use crate::srv6::{WrittenLocator, WrittenSid};
use node::VtyNode;
use ordered::{Legs, Ordered};

/// The contents of the file.
#[derive(Default)]
pub(crate) struct Written {
    /// Name from the last `hostname` line.
    pub(crate) hostname: Option<String>,
    pub(crate) locators: Ordered<String, WrittenLocator>,
    pub(crate) sids: Ordered<Ipv6Net, WrittenSid>,
    pub(crate) legs: Legs,
    pub(crate) encapsulation_source: Option<(Ipv6Addr, String)>,
}

/// One line, with its number.
pub(crate) struct Line<'a> {
    number: usize,
    /// The words of the line, without a `no` in front.
    words: Vec<&'a str>,
    /// Whether the line begins with `no`, so that it removes what it names.
    no: bool,
}

impl<'a> Line<'a> {
    /// Splits a line into words. `None`: the line is empty or a comment.
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
    let mut nodes = vec![VtyNode::Config];
    let lines = text.trim_start_matches('\u{feff}').lines().zip(1..);
    for line in lines.filter_map(|(text, number)| Line::read(number, text)) {
        node::take(&mut nodes, &line, &mut written, found);
    }
    written
}
