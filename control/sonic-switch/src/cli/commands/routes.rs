//! `show ip route`, `show ipv6 route`: FRR's routes where FRR runs, otherwise those of the switch, its daemon and its
//! kernel.

mod own;

use srv6d_sonic_cli::config_db::indented;
use srv6d_sonic_cli::routes::{Route, entry, find, from_json, frr_table, sonic_table, to_json};

use super::frr;
use super::node::Node;
use srv6d_command::{Failure, output};

/// The parsed words behind `route`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    vrf: Option<String>,
    prefix: Option<String>,
    json: bool,
    /// Words that SONiC passes to FRR unchanged.
    rest: Vec<String>,
}

impl Asked {
    fn read(words: &[String]) -> Self {
        let mut asked = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "vrf" => asked.vrf = words.next().cloned(),
                "json" => asked.json = true,
                prefix if prefix.contains([':', '.']) => asked.prefix = Some(prefix.to_owned()),
                _ => asked.rest.push(word.clone()),
            }
        }
        asked
    }
}

/// Prints SONiC's text. With a VRF or any other word, SONiC prints a colon and FRR's text.
pub fn show(node: &Node, ipv6: bool, words: &[String]) -> Result<(), Failure> {
    let asked = Asked::read(words);
    let family = if ipv6 { "ipv6" } else { "ip" };
    let plain = asked.vrf.is_none() && asked.rest.is_empty();
    let colon = if plain || asked.json { "" } else { ":\n" };
    let Some(vtysh) = frr::vtysh(node) else {
        let text = if plain && !asked.json {
            sonic(&asked, &own::routes(node, ipv6, None)?)
        } else {
            answer(node, ipv6, &asked)?
        };
        return output::print(&format!("{colon}{text}"));
    };
    let command = format!("show {family} route {}", words.join(" "));
    let said = frr::ask(&vtysh, &if plain && !asked.json { format!("{command} json") } else { command })?;
    let text = match from_json(&said) {
        Ok(routes) if plain && !asked.json => sonic(&asked, &routes),
        _ => said,
    };
    output::print(&format!("{colon}{text}"))
}

/// Returns FRR's text, as `vtysh -c 'show ipv6 route'` prints it.
pub fn as_frr(node: &Node, ipv6: bool, words: &[String]) -> Result<String, Failure> {
    answer(node, ipv6, &Asked::read(words))
}

fn sonic(asked: &Asked, routes: &[Route]) -> String {
    match &asked.prefix {
        None => sonic_table(routes),
        Some(prefix) => one(routes, prefix),
    }
}

fn one(routes: &[Route], prefix: &str) -> String {
    match find(routes, prefix) {
        None => format!("% Unknown command: {prefix}\n"),
        Some(found) if found.is_empty() => "% Network not in table\n".to_owned(),
        Some(found) => found.into_iter().map(entry).collect(),
    }
}

fn answer(node: &Node, ipv6: bool, asked: &Asked) -> Result<String, Failure> {
    if let Some(word) = asked.rest.first() {
        return Ok(format!("% Unknown command: {word}\n"));
    }
    let vrf = asked.vrf.as_deref().unwrap_or("default");
    let mut routes = own::routes(node, ipv6, asked.vrf.as_deref())?;
    if let Some(prefix) = &asked.prefix {
        if !asked.json {
            return Ok(one(&routes, prefix));
        }
        let found: Vec<Route> = find(&routes, prefix).unwrap_or_default().into_iter().cloned().collect();
        routes = found;
    }
    if asked.json {
        return Ok(indented(&to_json(&routes, vrf)) + "\n");
    }
    Ok(frr_table(&routes, ipv6, vrf))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_a_vrf_and_json_stand_in_any_order() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let asked = Asked::read(&words("vrf Vrf1 fcbb:bbbb:1::/48 json"));
        assert_eq!(asked, Asked::read(&words("fcbb:bbbb:1::/48 json vrf Vrf1")));
        assert_eq!((asked.vrf.as_deref(), asked.json), (Some("Vrf1"), true));
        assert_eq!(Asked::read(&words("summary")).rest, ["summary"]);
    }
}
