//! Command trees: find out which word is meant, list the possible words, and refuse wrong ones.

use std::fmt::Write;

use srv6d_sonic_cli::commands::resolve;

use srv6d_command::{Failure, output};

/// Returns the entry of `known` that the first argument means, and the arguments behind it. If there is no argument, or
/// for `-h`, prints the possible words.
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

/// Makes a failure with usage and error as SONiC's commands print them, and exit status 2.
pub fn wrong(path: &str, why: &str) -> Failure {
    let name = path.split(' ').next().unwrap_or(path);
    Failure::invalid(format!("Usage: {path} [OPTIONS] [ARGS]...\nTry '{name} -h' for help.\n\nError: {why}"))
}

/// Returns the explanation for a command that SONiC has and that is not available here. Its words may be shortened.
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

/// Fails if there are further arguments.
pub fn nothing_more(path: &str, rest: &[String]) -> Result<(), Failure> {
    match rest.first() {
        None => Ok(()),
        Some(extra) => Err(wrong(path, &format!("Got unexpected extra argument ({extra})"))),
    }
}

/// Returns a required argument, and the arguments behind it.
pub fn argument<'a>(path: &str, name: &str, arguments: &'a [String]) -> Result<(&'a str, &'a [String]), Failure> {
    match arguments.split_first() {
        Some((first, rest)) => Ok((first, rest)),
        None => Err(wrong(path, &format!("Missing argument \"{name}\"."))),
    }
}
