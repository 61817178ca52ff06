//! Fuzz targets for input from other programs and people: controllers, clients, files.
//!
//! No input may cause a panic, and the size of every result is bounded by the length of the input.
#![allow(clippy::panic, clippy::expect_used, reason = "a panic is what a fuzz target reports with")]

pub mod captures;
pub mod controllers;
pub mod heartbeats;
pub mod management;
pub mod path_server;
pub mod placement;
pub mod topologies;
pub mod words;

/// Returns the limit on the text that an input may become: `factor` bytes for each byte of it, plus 64 KiB of fixed
/// text.
fn most_text(input: &[u8], factor: usize) -> usize {
    64 * 1024 + factor * input.len()
}

/// Splits an input into its parts, which zero bytes separate. An empty or missing part is replaced by the one of
/// `usual`, so that a seed need not repeat it.
fn parts<const N: usize>(input: &[u8], usual: [&str; N]) -> [Vec<u8>; N] {
    let mut said = input.splitn(N, |byte| *byte == 0);
    usual.map(|usual| match said.next() {
        Some(part) if !part.is_empty() => part.to_vec(),
        _ => usual.as_bytes().to_vec(),
    })
}

/// Returns seeds that each contain one of the parts; the others are replaced by the usual ones.
fn one_part_each(parts: &[&str]) -> Vec<Vec<u8>> {
    let alone = |(place, part): (usize, &&str)| [vec![0; place], part.as_bytes().to_vec()].concat();
    parts.iter().enumerate().map(alone).collect()
}
