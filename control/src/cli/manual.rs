//! `srv6d man`: makes manual pages from the help texts, and from the reference of the configuration.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use srv6d_command::Failure;

/// The page srv6d.toml(5).
const CONFIGURATION: &str = include_str!(concat!(env!("OUT_DIR"), "/srv6d.toml.5"));

/// Writes `srv6d.1`, `srv6d-run.1`, `srv6d-lab-up.1`, ... and `srv6d.toml.5` into a directory. Hidden commands have no page.
pub fn write(command: Command, directory: &Path) -> Result<(), Failure> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let written = fs::create_dir_all(directory)
        .and_then(|()| write_all(&command, directory))
        .and_then(|()| fs::write(directory.join("srv6d.toml.5"), CONFIGURATION));
    written.map_err(|why| {
        let place = directory.display();
        let fix = "name a directory that may be written, or use sudo";
        Failure::failed(format!("error: cannot write manual pages into {place}: {why}\nfix: {fix}"))
    })
}

fn write_all(command: &Command, directory: &Path) -> io::Result<()> {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_all(command, directory)?;
    }
    let man = Man::new(command.clone()).manual("srv6d").source(concat!("srv6d ", env!("CARGO_PKG_VERSION")));
    fs::write(directory.join(man.get_filename()), page(&man, command)?)
}

fn page(man: &Man, command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(help) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        after_help(&help.to_string()).to_writer(&mut page)?;
    }
    Ok(page)
}

/// Formats the text below the options: a line such as `Examples:` becomes the head of a section, indented lines keep
/// their form, and the rest becomes paragraphs.
fn after_help(help: &str) -> Roff {
    let mut roff = Roff::new();
    let mut before = None;
    for line in help.lines() {
        let heading = line.strip_suffix(':').filter(|heading| heading.len() < 20);
        match (heading, before) {
            (Some(heading), _) => drop(roff.control("SH", [heading.to_uppercase().as_str()])),
            _ if line.starts_with(' ') => drop(roff.control("nf", []).text([roman(line)]).control("fi", [])),
            _ if line.is_empty() => {}
            (None, None) => drop(roff.control("SH", ["NOTES"]).text([roman(line)])),
            (None, Some(before)) if is_text(before) => drop(roff.text([roman(line)])),
            (None, Some(_)) => drop(roff.control("PP", []).text([roman(line)])),
        }
        before = Some(line);
    }
    roff
}

fn is_text(line: &str) -> bool {
    !line.is_empty() && !line.starts_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_keep_their_form_and_text_flows() {
        let page = after_help("Examples:\n  srv6d run\n  srv6d run -c x\n\nExit status 2.").render();
        let expected = ".SH EXAMPLES\n.nf\n  srv6d run\n.fi\n.nf\n  srv6d run \\-c x\n.fi\n.PP\nExit status 2.\n";
        assert!(page.ends_with(expected), "{page}");
        assert!(after_help("No packet is lost.").render().contains(".SH NOTES\nNo packet is lost."));
    }
}
