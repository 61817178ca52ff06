//! Writes the files with which a switch starts: the running configuration and the daemon's configuration.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;

use tracing::{error, warn};

use super::{RunOptions, SourceFiles, Used, write};
use srv6d_daemon as daemon;
use srv6d_daemon::kernel;

/// Path of the user's own entries for the daemon.
const DAEMON_CONFIG: &str = "/etc/srv6d/srv6d.toml";

/// Number of descriptors per ring of a switch with few ports, and with many. Each port fills a ring with frames of its
/// own.
const RING: usize = 128;
const RING_OF_MANY: usize = 64;
const MANY: usize = 16;
/// Smallest number of frames, 4 KiB each, however few ports there are.
const FEWEST_FRAMES: usize = 1024;
/// Number of ports that a switch is prepared for if the number of interfaces is not configured.
const SOME_PORTS: usize = 8;

/// Writes the running configuration from the files that exist. A broken file is left out and reported: if the process
/// ended, the container would be useless, and a corrected file is taken as soon as it appears.
pub(super) fn prepare(options: &RunOptions) -> io::Result<Used> {
    let places = &options.places;
    let found = (SourceFiles::config_db(places), SourceFiles::frr(places));
    write(&places.daemon_config(), &daemon_config(options))?;
    let nothing = SourceFiles::default;
    let mut tries = vec![
        (found.0.clone(), found.1.clone()),
        (found.0.clone(), nothing()),
        (nothing(), found.1.clone()),
        (nothing(), nothing()),
    ];
    tries.dedup();
    let mut used = Used::default();
    let mut said = Vec::new();
    for (config_db, frr) in tries {
        let refused = put(options, Some(&config_db), Some(&frr))?.err();
        let Some(why) = refused else {
            (used.config_db, used.frr) = (config_db, frr);
            break;
        };
        // An error of one file alone is reported again for both files together.
        if !said.contains(&why) {
            error!("{why}");
            said.push(why);
        }
        used.refused = Some(found.clone());
    }
    if used.refused.is_some() {
        warn!("the switch starts without the refused files; they are read again once they are corrected");
    }
    used.tell(places);
    Ok(used)
}

/// Makes these files the running configuration. `None`: that file stays as it is. The inner error says what is wrong
/// with the files.
pub(super) fn put(
    options: &RunOptions,
    config_db: Option<&SourceFiles>,
    frr: Option<&SourceFiles>,
) -> io::Result<Result<(), String>> {
    let places = &options.places;
    for (found, file) in [(config_db, places.running_config_db()), (frr, places.running_frr())] {
        match found.map(SourceFiles::text) {
            None => {}
            // There is no file at all: the switch has the ports that exist.
            Some(Ok(text)) if text.trim().is_empty() && file == places.running_config_db() => write(&file, "{}\n")?,
            Some(Ok(text)) => write(&file, &text)?,
            Some(Err(why)) => return Ok(Err(why)),
        }
    }
    Ok(check(options))
}

fn check(options: &RunOptions) -> Result<(), String> {
    let file = options.places.daemon_config();
    let text = srv6d_text::read_text(&file).map_err(|why| format!("cannot read {}: {why}", file.display()))?;
    let config = crate::configuration(&text, &file.display().to_string(), Some(&kernel::interfaces()))
        .map_err(|errors| errors.to_string())?;
    let environment = daemon::environment().unwrap_or_default();
    config.plan(&environment).map(drop).map_err(|errors| errors.to_string())
}

/// Returns the user's own file, followed by the tables that it does not have.
fn daemon_config(options: &RunOptions) -> String {
    let own = srv6d_text::read_text(&options.places.path(DAEMON_CONFIG)).unwrap_or_default();
    let has = |table: &str| own.parse::<toml::Table>().is_ok_and(|written| written.contains_key(table));
    let mut text = with_lenient_srh(own.clone());
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str("# Written by `srv6d sonic run`, anew at every start.\n");
    if !has("sonic") {
        let quoted = |file: PathBuf| toml::Value::from(file.display().to_string());
        let (config_db, frr) = (quoted(options.places.running_config_db()), quoted(options.places.running_frr()));
        let strict = options.strict;
        let _ = writeln!(text, "[sonic]\nconfig_db = {config_db}\nfrr = {frr}\nstrict = {strict}");
    }
    if !has("workers") {
        let (frames, ring) = memory(options);
        let _ = writeln!(text, "[workers]\npolling = \"adaptive\"\nframes = {frames}\nring = {ring}");
    }
    // This makes srv6d follow routes of `ip route`, and those of an FRR that runs beside it.
    if !has("kernel") {
        text.push_str("[kernel]\n");
    }
    text
}

/// Adds `srh_check = "lenient"` unless the user's own file sets the key. A switch accepts an SRH whose Last Entry does
/// not fit its length, as a switching ASIC does.
fn with_lenient_srh(own: String) -> String {
    const LENIENT: &str = "srh_check = \"lenient\"";
    let written = own.parse::<toml::Table>().unwrap_or_default();
    match written.get("node").map(|node| node.get("srh_check").is_some()) {
        Some(true) => own,
        // The line goes below the head of the table, wherever that is.
        Some(false) => {
            let line =
                |line: &str| if line.trim() == "[node]" { format!("{line}\n{LENIENT}\n") } else { format!("{line}\n") };
            own.lines().map(line).collect()
        }
        None => format!("{own}\n[node]\n{LENIENT}\n"),
    }
}

/// Returns the number of frames and the ring size for the expected ports. There are twice as many frames as all rings
/// hold.
fn memory(options: &RunOptions) -> (usize, usize) {
    let present =
        kernel::interfaces().iter().filter(|name| name.starts_with("eth") || name.starts_with("Ethernet")).count();
    let expected = if options.interfaces == 0 { SOME_PORTS } else { options.interfaces };
    let ports = present.max(expected);
    let ring = if ports > MANY { RING_OF_MANY } else { RING };
    ((2 * ring * (ports + 2)).max(FEWEST_FRAMES), ring)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_switch_is_lenient_unless_its_user_says_otherwise() {
        for (own, expected) in [
            ("", "lenient"),
            ("[node]\nname = \"a\"\n", "lenient"),
            ("[[port]]\nname = \"x\"\n\n[node]\nname = \"a\"", "lenient"),
            ("[node]\nsrh_check = \"strict\"\n", "strict"),
        ] {
            let table: toml::Table = with_lenient_srh(own.to_owned()).parse().unwrap();
            assert_eq!(table["node"]["srh_check"].as_str(), Some(expected), "{own}");
        }
    }
}
