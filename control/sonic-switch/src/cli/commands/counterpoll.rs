//! `counterpoll`: sets whether and how often SIDs are counted.

use srv6d_sonic_cli::config_db::{set_srv6_interval, set_srv6_polling};
use srv6d_sonic_cli::tables;

use super::node::Node;
use super::tree::{argument, choose, nothing_more};
use srv6d_command::{Failure, output};

/// Carries out `counterpoll show`, `counterpoll srv6 enable|disable|interval MS`. srv6d always counts; the setting
/// decides whether the counters are shown.
pub fn counterpoll(node: &Node, arguments: &[String]) -> Result<(), Failure> {
    let (word, rest) = choose("counterpoll", arguments, &["show", "srv6"])?;
    if word == "show" {
        nothing_more("counterpoll show", rest)?;
        return output::print(&tables::counterpoll(&node.switch()?.sid_counters));
    }
    let path = "counterpoll srv6";
    let (word, rest) = choose(path, rest, &["disable", "enable", "interval"])?;
    if word == "interval" {
        let (interval, rest) = argument(path, "POLL_INTERVAL", rest)?;
        nothing_more(path, rest)?;
        return node.change(|running| {
            set_srv6_interval(&mut running.config_db, interval)
                .map_err(|why| super::tree::wrong(path, &why.to_string()))
        });
    }
    nothing_more(path, rest)?;
    node.change(|running| {
        set_srv6_polling(&mut running.config_db, word == "enable");
        Ok(())
    })
}
