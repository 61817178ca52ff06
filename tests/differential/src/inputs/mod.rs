//! Fuzz targets for bytes that come from somebody else: controllers, clients, files.
//!
//! Whatever they say, nothing panics, and what is made of an input is bounded by the length of the input.
#![allow(clippy::panic, clippy::expect_used, reason = "a panic is what a fuzz target reports with")]

pub mod captures;
pub mod controllers;
pub mod management;
pub mod path_server;
pub mod placement;
pub mod topologies;
pub mod words;

/// Bytes of text that an input of so many bytes may become: `factor` for each of them, and a page of fixed words.
fn most_text(input: &[u8], factor: usize) -> usize {
    64 * 1024 + factor * input.len()
}

/// The parts of an input, which stand behind one another with zero bytes between them. A part that is empty or missing
/// becomes what `usual` has in its place, so that a seed need not repeat it.
fn parts<const N: usize>(input: &[u8], usual: [&str; N]) -> [Vec<u8>; N] {
    let mut said = input.splitn(N, |byte| *byte == 0);
    usual.map(|usual| match said.next() {
        Some(part) if !part.is_empty() => part.to_vec(),
        _ => usual.as_bytes().to_vec(),
    })
}

/// The seeds that damage one part each leave the others as they usually are.
fn one_part_each(parts: &[&str]) -> Vec<Vec<u8>> {
    let alone = |(place, part): (usize, &&str)| [vec![0; place], part.as_bytes().to_vec()].concat();
    parts.iter().enumerate().map(alone).collect()
}
