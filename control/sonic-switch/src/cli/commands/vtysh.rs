//! `vtysh`: calls the real one where FRR runs. Otherwise it handles static routes, the segment-routing tree, and the
//! commands that show them.

use std::fs;
use std::io::{self, BufRead, IsTerminal};

use srv6d_sonic_cli::vtysh::{Command, Lines, Prompt, Typed, append, command, locators, running_config};

use super::node::{self, Node};
use super::{config, frr, routes};
use srv6d_command::{Failure, output};

/// The parsed options.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    commands: Vec<String>,
    file: Option<String>,
}

/// Carries out `vtysh [-c COMMAND]... [-f FILE]`. Without either option it reads lines from standard input, or shows a
/// prompt.
pub fn vtysh(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    if let Some(real) = frr::vtysh(node) {
        warn_of_missing_daemons(node, arguments);
        return Err(frr::become_vtysh(&real, arguments));
    }
    let options = options(arguments)?;
    if let Some(file) = options.file {
        let text = fs::read_to_string(&file)
            .map_err(|why| Failure::failed(format!("Can't open configuration file {file} due to '{why}'.")))?;
        return from_file(node, &text);
    }
    if options.commands.is_empty() && io::stdin().is_terminal() {
        return converse(node);
    }
    if options.commands.is_empty() {
        let lines: Result<Vec<String>, io::Error> = io::stdin().lock().lines().collect();
        let lines = lines.map_err(|why| Failure::failed(format!("Error: cannot read standard input: {why}")))?;
        return each(node, &lines);
    }
    each(node, &options.commands)
}

/// Warns about daemons that do not run. FRR's vtysh passes the lines of a file to the daemons that run and says nothing
/// about the others.
fn warn_of_missing_daemons(node: &Node, arguments: &[String]) {
    let file = arguments.iter().skip_while(|argument| !matches!(argument.as_str(), "-f" | "--inputfile")).nth(1);
    let Some(text) = file.and_then(|file| fs::read_to_string(file).ok()) else { return };
    for daemon in frr::missing_daemons(node, &text) {
        Failure::failed(format!(
            "Warning: {daemon} is not running, its lines have no effect: say {daemon}=yes in /etc/frr/daemons, then \
             `supervisorctl restart {daemon}`"
        ))
        .report();
    }
}

fn options(arguments: &[String]) -> Result<Options, Failure> {
    let mut options = Options::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut next = || {
            let missing = || Failure::failed(format!("vtysh: option requires an argument -- '{argument}'"));
            arguments.next().cloned().ok_or_else(missing)
        };
        match argument.as_str() {
            "-c" | "--command" => options.commands.extend(next()?.lines().map(str::to_owned)),
            "-f" | "--inputfile" => options.file = Some(next()?),
            // The daemon, the directory and the name of vtysh's own files have no meaning here.
            "-d" | "--daemon" | "-N" | "--pathspace" | "--vty_socket" | "--config_dir" => drop(next()?),
            "-b" | "--boot" | "-E" | "--echo" | "-n" | "--noerror" | "-m" | "--markfile" | "-u" => {}
            other => return Err(Failure::failed(format!("vtysh: {other} is not known here; known: -c, -f"))),
        }
    }
    Ok(options)
}

/// Runs a prompt for a user. A refused line is reported, and the user may type a better one.
fn converse(node: &Node) -> Result<(), Failure> {
    let host = node.generation()?.node;
    output::print(
        "srv6d: static routes and segment routing of FRR's configuration; no FRR runs here.\n\
         What follows `configure terminal` comes into force with `end`, all of it at once; `exit` leaves.\n\n",
    )?;
    let (mut prompt, mut lines) = (Prompt::default(), io::stdin().lock().lines());
    loop {
        output::print(&prompt.text(&host))?;
        let line = lines.next().and_then(Result::ok);
        let done = match prompt.take(line.as_deref()) {
            Typed::Leave => return output::print("\n"),
            Typed::More => Ok(()),
            Typed::Ask(line) => each(node, &[line]),
            Typed::Configure(lines) => configure(node, &lines.iter().map(String::as_str).collect::<Vec<_>>()).map(drop),
        };
        if let Err(refused) = done {
            refused.report();
        }
    }
}

/// Reads a file: accepted lines are applied, and the others are reported.
fn from_file(node: &Node, text: &str) -> Result<(), Failure> {
    let lines = Lines::read(text.lines());
    for refusal in &lines.refused {
        output::print(&format!("{refusal}\n"))?;
    }
    node.change(|running| {
        let frr = append(&running.frr, &lines.taken);
        // A file that is loaded again has the same lines, which need not be added again.
        if !node::same_switch(&running.frr, &frr) {
            running.frr = frr;
        }
        Ok(())
    })
}

/// Carries out commands one by one. Lines behind `configure terminal` are applied together.
fn each(node: &Node, commands: &[String]) -> Result<(), Failure> {
    let mut commands = commands.iter();
    let mut refused = false;
    while let Some(line) = commands.next() {
        if line.trim().is_empty() {
            continue;
        }
        match command(line) {
            Ok(Command::Configure) => {
                let lines: Vec<&str> =
                    commands.by_ref().map(String::as_str).take_while(|line| line.trim() != "end").collect();
                refused |= configure(node, &lines)?;
            }
            Ok(asked) => show(node, &asked)?,
            Err(why) => {
                output::print(&format!("{why}\n"))?;
                refused = true;
            }
        }
    }
    if refused { Err(Failure::silent()) } else { Ok(()) }
}

/// Applies configuration lines. Returns whether a line was refused. Lines that have no effect are not kept.
fn configure(node: &Node, lines: &[&str]) -> Result<bool, Failure> {
    let shown: (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.trim_start().starts_with("do "));
    for line in shown.0 {
        show(node, &command(line).map_err(|why| Failure::failed(why.to_string()))?)?;
    }
    let mut read = Lines::read(shown.1);
    read.taken.retain(|line| !matches!(line.trim(), "exit" | "quit" | "end") || lines.len() > 1);
    let mut said: Vec<String> = read.refused.iter().map(ToString::to_string).collect();
    node.change(|running| {
        let frr = append(&running.frr, &read.taken);
        let unread = |frr: &str| node::unread_lines(frr).len();
        let (before, after) = (unread(&running.frr), node::unread_lines(&frr));
        if after.len() > before {
            said.extend(after.into_iter().skip(before).map(|why| format!("% {why}")));
        } else {
            running.frr = frr;
        }
        Ok(())
    })?;
    for line in &said {
        output::print(&format!("{line}\n"))?;
    }
    Ok(!said.is_empty())
}

fn show(node: &Node, asked: &Command) -> Result<(), Failure> {
    match asked {
        Command::Version => {
            let daemon = node.generation()?;
            let text = format!(
                "srv6d {} ({}): static routes and segment routing of FRR's configuration; no FRR runs here.\n",
                daemon.daemon, daemon.node
            );
            output::print(&text)
        }
        Command::RunningConfig => {
            let running = node.running()?;
            output::print_data(&running_config(&running.frr, &running.switch))
        }
        Command::Locators => output::print(&locators(&node.switch()?)),
        Command::Routes { ipv6, rest } => output::print(&routes::as_frr(node, *ipv6, rest)?),
        Command::Write => {
            let file = config::save_frr(node, &node.running()?.frr)?;
            output::print(&format!("Configuration saved to {file}\n[OK]\n"))
        }
        Command::Configure | Command::Nothing => Ok(()),
    }
}
