//! Trees of words: which one is meant, what could stand there, and how a wrong one is refused.

use std::fmt::Write;

use srv6d_sonic_cli::words::resolve;

use crate::cli::output::{self, Failure};

/// The word of `known` that comes first in `arguments`, and what is behind it. Without a word, and for `-h`, prints what
/// could stand there.
pub fn choose<'a>(
    path: &str,
    arguments: &'a [String],
    known: &[&'static str],
) -> Result<(&'static str, &'a [String]), Failure> {
    let Some((first, rest)) = arguments.split_first() else { return Err(help(path, known)) };
    if matches!(first.as_str(), "-h" | "-?" | "--help") {
        return Err(help(path, known));
    }
    resolve(first, known).map(|word| (word, rest)).map_err(|why| wrong(path, &why.to_string()))
}

/// Usage and error as SONiC's commands print them; exit status 2.
pub fn wrong(path: &str, why: &str) -> Failure {
    let name = path.split(' ').next().unwrap_or(path);
    Failure::invalid(format!("Usage: {path} [OPTIONS] [ARGS]...\nTry '{name} -h' for help.\n\nError: {why}"))
}

/// A sentence for words that SONiC knows and that mean nothing here. The words may be shortened.
pub fn not_here(path: &str, arguments: &[String], known: &[(&[&str], &str)]) -> Option<Failure> {
    let is_meant = |words: &&(&[&str], &str)| {
        let typed = arguments.iter().map(String::as_str);
        let fits = |(word, typed): (&&str, &str)| typed.len() > 2 && word.starts_with(typed);
        arguments.len() >= words.0.len() && words.0.iter().zip(typed).all(fits)
    };
    let (words, why) = known.iter().find(is_meant)?;
    Some(Failure::failed(format!("{path} {}: {why}", words.join(" "))))
}

fn help(path: &str, known: &[&'static str]) -> Failure {
    let mut text = format!("Usage: {path} [OPTIONS] COMMAND [ARGS]...\n\nCommands:\n");
    for word in known {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {word}");
    }
    match output::print(&text) {
        Ok(()) => Failure::done(),
        Err(failure) => failure,
    }
}

/// Nothing may be left.
pub fn nothing_more(path: &str, rest: &[String]) -> Result<(), Failure> {
    match rest.first() {
        None => Ok(()),
        Some(extra) => Err(wrong(path, &format!("Got unexpected extra argument ({extra})"))),
    }
}

/// The one argument that must be there, and what is behind it.
pub fn argument<'a>(path: &str, name: &str, arguments: &'a [String]) -> Result<(&'a str, &'a [String]), Failure> {
    match arguments.split_first() {
        Some((first, rest)) => Ok((first, rest)),
        None => Err(wrong(path, &format!("Missing argument \"{name}\"."))),
    }
}
