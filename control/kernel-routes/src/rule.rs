//! Rules: `ip rule`. They choose the table in which a packet is looked up.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use srv6d_addresses::TableId;

use crate::attribute::{Attributes, INET, INET6, address, text, u32_at, unspecified};

/// Length of `struct fib_rule_hdr` in bytes.
const HEAD: usize = 12;
/// Attributes of a rule: `FRA_*` (`linux/fib_rules.h`).
const DESTINATION: u16 = 1;
const SOURCE: u16 = 2;
const IIF: u16 = 3;
const GOTO: u16 = 4;
const PRIORITY: u16 = 6;
const FWMARK: u16 = 10;
const TUNNEL: u16 = 12;
const SUPPRESS_GROUP: u16 = 13;
const SUPPRESS_LENGTH: u16 = 14;
const TABLE: u16 = 15;
const FWMASK: u16 = 16;
const OIF: u16 = 17;
const PAD: u16 = 18;
const L3MDEV: u16 = 19;
const USERS: u16 = 20;
const PROTOCOL: u16 = 21;
const TRANSPORT: u16 = 22;
const SOURCE_PORTS: u16 = 23;
const DESTINATION_PORTS: u16 = 24;
/// Selectors other than destination and input device, with the names that `ip rule` gives them.
const SELECTORS: [(u16, &str); 7] = [
    (TUNNEL, "tun_id"),
    (TRANSPORT, "ipproto"),
    (SOURCE_PORTS, "sport"),
    (DESTINATION_PORTS, "dport"),
    (SUPPRESS_GROUP, "suppress_ifgroup"),
    (25, "dscp"),
    (26, "flowlabel"),
];
/// Actions of a rule: `FR_ACT_*`.
const TO_TABLE: u8 = 1;
const ACT_GOTO: u8 = 2;
const NOP: u8 = 3;
const ACT_BLACKHOLE: u8 = 6;
const ACT_UNREACHABLE: u8 = 7;
const ACT_PROHIBIT: u8 = 8;
/// `FIB_RULE_INVERT`: the rule applies to packets that do not match.
const INVERT: u32 = 2;

/// One rule, with what matters for forwarded packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRule {
    /// Priority; the rule with the smallest number is evaluated first.
    pub priority: u32,
    /// Whether the rule is for IPv6 packets; otherwise it is for IPv4 packets.
    pub is_v6: bool,
    /// Prefix of the destinations.
    pub to: IpNet,
    /// Name of the device that packets come in by; `None`: any.
    pub iif: Option<String>,
    /// Whether the rule is for packets of this node only (`iif lo`, `oif`, `uidrange`).
    pub local_only: bool,
    /// Further selectors, in the words of `ip rule`. Empty: there are none.
    pub only_for: Vec<String>,
    /// What happens to packets that the rule matches.
    pub action: RuleAction,
}

/// What a rule does with packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// Looks them up in this table; if it has no route for them, the next rule is evaluated.
    Lookup(TableId),
    /// Looks them up in the table of the VRF device that they came in by.
    L3mdev,
    /// Drops them silently.
    Blackhole,
    /// Drops them and answers with ICMP Destination Unreachable.
    Unreachable,
    /// Drops them and answers with ICMP Administratively Prohibited.
    Prohibit,
    /// Does nothing; the next rule is evaluated.
    Nop,
    /// Something else, in the words of `ip rule`.
    Other(String),
}

/// Formats the rule as `ip rule` prints it.
impl fmt::Display for KernelRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.priority)?;
        if !self.only_for.iter().any(|word| word.starts_with("from")) {
            f.write_str(" from all")?;
        }
        if self.to.prefix_len() > 0 {
            write!(f, " to {}", self.to)?;
        }
        for word in &self.only_for {
            write!(f, " {word}")?;
        }
        if let Some(iif) = &self.iif {
            write!(f, " iif {iif}")?;
        }
        match &self.action {
            RuleAction::Lookup(TableId::MAIN) => f.write_str(" lookup main"),
            RuleAction::Lookup(TableId(table)) => write!(f, " lookup {table}"),
            RuleAction::L3mdev => f.write_str(" lookup [l3mdev-table]"),
            RuleAction::Blackhole => f.write_str(" blackhole"),
            RuleAction::Unreachable => f.write_str(" unreachable"),
            RuleAction::Prohibit => f.write_str(" prohibit"),
            RuleAction::Nop => f.write_str(" nop"),
            RuleAction::Other(words) => write!(f, " {words}"),
        }
    }
}

/// Attributes of a rule as they were read.
#[derive(Default)]
struct RuleAttributes {
    to: Option<IpAddr>,
    from: Option<IpAddr>,
    iif: Option<String>,
    table: Option<u32>,
    goto: Option<u32>,
    priority: u32,
    mark: Option<(u32, u32)>,
    l3mdev: bool,
    local_only: bool,
    only_for: Vec<String>,
}

impl RuleAttributes {
    fn take(&mut self, kind: u16, value: &[u8]) {
        let number = || u32_at(value, 0).unwrap_or_default();
        match kind {
            DESTINATION => self.to = address(value),
            SOURCE => self.from = address(value),
            IIF if text(value) == "lo" => self.local_only = true,
            IIF => self.iif = Some(text(value)),
            OIF | USERS => self.local_only = true,
            TABLE => self.table = Some(number()),
            GOTO => self.goto = Some(number()),
            PRIORITY => self.priority = number(),
            FWMARK => self.mark = Some((number(), self.mark.map_or(u32::MAX, |(_, mask)| mask))),
            FWMASK => self.mark = self.mark.map(|(mark, _)| (mark, number())).or(Some((0, number()))),
            L3MDEV => self.l3mdev = value.first().is_some_and(|byte| *byte != 0),
            // All ones means "not set"; the kernel always sends this attribute.
            SUPPRESS_LENGTH if number() == u32::MAX => {}
            SUPPRESS_LENGTH => self.only_for.push(format!("suppress_prefixlength {}", number())),
            PROTOCOL | PAD => {}
            other => {
                let name = SELECTORS.iter().find(|(kind, _)| *kind == other);
                self.only_for.push(name.map_or_else(|| format!("selector {other}"), |(_, name)| (*name).to_owned()));
            }
        }
    }
}

pub(crate) fn read(body: &[u8]) -> Option<KernelRule> {
    let &[family, to_length, from_length, tos, table, _, _, action] = body.first_chunk::<8>()?;
    let flags = u32_at(body, 8)?;
    if !matches!(family, INET | INET6) {
        return None;
    }
    let mut found = RuleAttributes::default();
    for (kind, value) in Attributes(body.get(HEAD..)?) {
        found.take(kind, value);
    }
    let prefix = |address: Option<IpAddr>, length| IpNet::new(address.or_else(|| unspecified(family))?, length).ok();
    let mut only_for = Vec::new();
    if flags & INVERT != 0 {
        only_for.push("not".to_owned());
    }
    if from_length > 0 {
        only_for.push(format!("from {}", prefix(found.from, from_length)?));
    }
    if tos > 0 {
        only_for.push(format!("tos {tos:#x}"));
    }
    match found.mark {
        None | Some((0, 0)) => {}
        Some((mark, u32::MAX)) => only_for.push(format!("fwmark {mark:#x}")),
        Some((mark, bits)) => only_for.push(format!("fwmark {mark:#x}/{bits:#x}")),
    }
    only_for.append(&mut found.only_for);
    let action = match action {
        TO_TABLE if found.l3mdev => RuleAction::L3mdev,
        TO_TABLE => RuleAction::Lookup(TableId(found.table.unwrap_or_else(|| u32::from(table)))),
        NOP => RuleAction::Nop,
        ACT_BLACKHOLE => RuleAction::Blackhole,
        ACT_UNREACHABLE => RuleAction::Unreachable,
        ACT_PROHIBIT => RuleAction::Prohibit,
        ACT_GOTO => RuleAction::Other(format!("goto {}", found.goto.unwrap_or_default())),
        other => RuleAction::Other(format!("action {other}")),
    };
    Some(KernelRule {
        priority: found.priority,
        is_v6: family == INET6,
        to: prefix(found.to, to_length)?,
        iif: found.iif,
        local_only: found.local_only,
        only_for,
        action,
    })
}
