//! `sonic-cfggen`: the operations that lab scripts use.

use std::path::Path;

use srv6d_sonic_cli::cfggen::{json, value};
use srv6d_sonic_cli::config_db::ConfigDb;
use srv6d_text::read_text_or_pipe;

use super::node::Node;
use super::tree::wrong;
use srv6d_command::{Failure, output};

const COMMAND: &str = "sonic-cfggen";

/// The supported options.
#[derive(Default)]
struct Options<'a> {
    files: Vec<&'a str>,
    from_db: bool,
    write_to_db: bool,
    print_data: bool,
    variable: Option<&'a str>,
    json: Option<&'a str>,
}

/// Carries out `-j FILE --write-to-db`, `-d --var-json TABLE`, `-d -v PATH`, `-d --print-data`. With `-j FILE` instead
/// of `-d`, a file is read.
pub fn cfggen(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let options = options(arguments)?;
    let mut data = ConfigDb::default();
    if options.from_db {
        let running = node.running()?;
        data = running.config_db.with_ports(&running.switch);
    }
    let mut loaded = ConfigDb::default();
    for file in &options.files {
        loaded.merge(read(file)?);
    }
    data.merge(loaded.clone());
    if options.write_to_db {
        node.change(|running| {
            running.config_db.merge(loaded);
            Ok(())
        })?;
    }
    if let Some(name) = options.json {
        return output::print_data(&format!("{}\n", json(data.value().get(name))));
    }
    if let Some(path) = options.variable {
        return output::print_data(&format!("{}\n", value(&data.value(), path)));
    }
    if options.print_data { output::print_data(&data.to_text()) } else { Ok(()) }
}

fn options(arguments: &[String]) -> Result<Options<'_>, Failure> {
    let mut options = Options::default();
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        let mut next = || arguments.next().ok_or_else(|| wrong(COMMAND, &format!("{argument} needs an argument")));
        match argument {
            "-j" | "--json" => options.files.push(next()?),
            "-v" | "--var" => options.variable = Some(next()?),
            "--var-json" => options.json = Some(next()?),
            "-d" | "--from-db" => options.from_db = true,
            "-w" | "--write-to-db" => options.write_to_db = true,
            "--print-data" => options.print_data = true,
            "-h" | "--help" => {
                output::print(
                    "Usage: sonic-cfggen [-d] [-j FILE]... [--write-to-db] [--print-data] [--var-json TABLE] [-v PATH]\n",
                )?;
                return Err(Failure::done());
            }
            other => return Err(wrong(COMMAND, &format!("{other} is not known here"))),
        }
    }
    Ok(options)
}

/// Reads a document from a file.
pub fn read(file: &str) -> Result<ConfigDb, Failure> {
    let text = read_text_or_pipe(Path::new(file));
    let text = text.map_err(|why| Failure::failed(format!("Error: cannot read {file}: {why}")))?;
    ConfigDb::parse(&text).map_err(|why| Failure::invalid(format!("Error: {file}: {why}")))
}
