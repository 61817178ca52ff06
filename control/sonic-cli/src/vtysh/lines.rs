//! Sorts configuration lines: static routes and the segment-routing tree are accepted, blocks of FRR's daemons are not.

use super::Refusal;

/// Configuration lines that have been read: those to keep, and the reasons why others are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Accepted lines in order, including the lines that open and close their blocks.
    pub taken: Vec<String>,
    /// Refusals, one per block.
    pub refused: Vec<Refusal>,
}

/// The kind of a line at the top level.
enum Top {
    /// It opens a block that is accepted.
    Ours,
    /// It is accepted and stands alone.
    Line,
    /// It is a line of a daemon or opens a daemon's block.
    Of(&'static str),
    /// It is accepted and has no effect here.
    Nothing,
    /// It is no line of the top level; it belongs to the block before it.
    Inside,
}

/// The kind of the block that is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    None,
    Ours,
    Other,
}

impl Lines {
    /// Reads lines as FRR does: neither indentation nor `exit` decides where a line belongs.
    pub fn read<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut read = Self::default();
        let mut block = Block::None;
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.first().is_none_or(|word| word.starts_with(['!', '#'])) {
                continue;
            }
            block = read.take(line, &words, block);
        }
        read
    }

    fn take(&mut self, line: &str, words: &[&str], block: Block) -> Block {
        match (top(words), block) {
            // The line opens no block, and the following line at the top level does not belong to it.
            (Top::Line, Block::None | Block::Other) => {
                self.taken.push(line.to_owned());
                Block::None
            }
            (Top::Ours, _) | (Top::Line | Top::Inside, Block::Ours) => {
                self.taken.push(line.to_owned());
                Block::Ours
            }
            (Top::Of(daemon), _) => {
                // A `no` line is not refused: what it would remove does not exist anyway.
                if words.first() != Some(&"no") {
                    self.refused.push(Refusal::NotRunning { daemon });
                }
                Block::Other
            }
            (Top::Nothing, _) | (Top::Inside, Block::Other) => Block::Other,
            (Top::Inside, Block::None) if matches!(words, ["exit" | "end" | "quit"]) => Block::None,
            (Top::Inside, Block::None) => {
                self.refused.push(Refusal::Unknown(line.trim().to_owned()));
                Block::None
            }
        }
    }
}

fn top(words: &[&str]) -> Top {
    let said = match words {
        ["no", rest @ ..] => rest,
        all => all,
    };
    match said {
        ["ip" | "ipv6", "route", _, ..] | ["hostname", _] => Top::Line,
        ["vrf", _] | ["exit-vrf" | "end"] => Top::Ours,
        // `segment-routing srv6` on one line belongs to a router.
        [word] if word.len() > 2 && "segment-routing".starts_with(word) => Top::Ours,
        ["router", "isis", ..] => Top::Of("isisd"),
        ["router", "ospf", ..] => Top::Of("ospfd"),
        ["router", "ospf6", ..] => Top::Of("ospf6d"),
        ["router" | "bgp" | "route-map", ..] | ["ip" | "ipv6", "prefix-list", ..] => Top::Of("bgpd"),
        ["frr" | "log" | "service" | "password" | "line" | "debug" | "agentx" | "zebra" | "fpm", ..]
        | ["interface", _]
        | ["ip" | "ipv6", "nht" | "forwarding" | "protocol", ..] => Top::Nothing,
        _ => Top::Inside,
    }
}

/// Appends lines to a configuration. Blocks that are open at its end are closed first. A `no` line whose counterpart is
/// written in exactly the same words is not added; the counterpart is removed instead.
pub fn append(frr: &str, taken: &[String]) -> String {
    let mut lines: Vec<&str> = frr.lines().collect();
    let mut rest = Vec::new();
    for line in taken {
        let route = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.join(" ")
        };
        let said = route(line);
        let taken_back =
            said.strip_prefix("no ").filter(|said| said.starts_with("ip route") || said.starts_with("ipv6 route"));
        // Routes inside a VRF are indented; those of the top level stand at the beginning of their lines.
        let at = taken_back
            .filter(|_| rest.is_empty())
            .and_then(|gone| lines.iter().position(|known| !known.starts_with(' ') && route(known) == *gone));
        match at {
            Some(at) => drop(lines.remove(at)),
            None if lines.contains(&line.as_str()) && said.starts_with("ip") && !line.starts_with(' ') => {}
            None => rest.push(line.as_str()),
        }
    }
    if rest.iter().any(|line| line.trim() != "end") {
        lines.push("end");
        lines.append(&mut rest);
    }
    lines.iter().flat_map(|line| [*line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const FILE: &str = "\
frr version 10.4
hostname leaf0
log syslog
!
interface Ethernet0
 ipv6 nd ra-interval 10
exit
segment-routing
 srv6
  static-sids
   sid fcbb:bbbb:1::/48 locator MAIN behavior uN
  encapsulation
   source-address fcbb:bbbb:1::1
 exit
exit
router bgp 65001
 neighbor Ethernet0 interface remote-as 65000
 segment-routing srv6
  locator MAIN
 address-family ipv6 unicast
  network fcbb:bbbb:1::/48
 exit-address-family
route-map ALL permit 10
vrf Vrf1
 ipv6 route 3fff::/32 blackhole
exit-vrf
ipv6 route fcbb:bbbb::/32 blackhole
end";

    #[test]
    fn routes_and_segment_routing_are_taken_and_bgp_is_named() {
        let read = Lines::read(FILE.lines());
        let taken = read.taken.join("\n");
        assert!(taken.starts_with("hostname leaf0\nsegment-routing\n srv6\n  static-sids"), "{taken}");
        assert!(taken.contains(" source-address") && taken.contains("exit-vrf\nipv6 route fcbb:bbbb::/32 blackhole"));
        assert!(!taken.contains("neighbor") && !taken.contains("network") && !taken.contains("ra-interval"), "{taken}");
        let bgpd = Refusal::NotRunning { daemon: "bgpd" };
        assert_eq!(read.refused, [bgpd.clone(), bgpd]);
        let switch = srv6d_sonic::read(
            None,
            Some(&format!("{taken}\n{}", "segment-routing\nsrv6\nlocators\nlocator MAIN\nprefix fcbb:bbbb:1::/48")),
            None,
            false,
        );
        assert_eq!(switch.unwrap().switch.sids.len(), 1);
    }

    #[test]
    fn taking_back_a_router_that_is_not_there_is_done_at_once() {
        let read = Lines::read(["no router bgp 65001", "exit"]);
        assert_eq!(read, Lines::default());
        let read = Lines::read(["frobnicate"]);
        assert_eq!(read.refused, [Refusal::Unknown("frobnicate".to_owned())]);
        let read = Lines::read(["ip route 10.0.0.0/8 Null0", "frobnicate", "ip route 10.1.0.0/16 Null0"]);
        assert_eq!((read.taken.len(), read.refused.len()), (2, 1), "a route opens nothing that it could be in");
    }

    #[test]
    fn lines_are_appended_at_the_top() {
        let before = "vrf Vrf1\n ip route 10.0.0.0/8 blackhole\n";
        let after = append(before, &["ip route 10.1.0.0/16 Null0".to_owned()]);
        let switch = srv6d_sonic::read(None, Some(&after), None, false).unwrap().switch;
        let routes: Vec<_> = switch.routes.iter().map(|route| route.vrf.as_deref()).collect();
        assert_eq!(routes, [Some("Vrf1"), None]);
        assert_eq!(append(&after, &["ip route 10.1.0.0/16 Null0".to_owned()]), after, "twice is once");
        let gone = append(&after, &["no ip route  10.1.0.0/16 Null0".to_owned()]);
        assert!(!gone.contains("10.1.0.0"), "{gone}");
        let in_vrf = append(before, &["vrf Vrf1".to_owned(), " no ip route 10.0.0.0/8".to_owned()]);
        assert!(srv6d_sonic::read(None, Some(&in_vrf), None, false).unwrap().switch.routes.is_empty());
    }
}
