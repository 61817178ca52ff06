//! Parses values that occur in both files: addresses, prefixes, truth words.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};
use serde_json::Value;
use srv6d_addresses::Mac;

/// Parses a word for true or false. All tables have the same words.
pub(crate) fn truth(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "true" | "up" | "enable" | "enabled" | "on" | "yes" => Some(true),
        "false" | "down" | "disable" | "disabled" | "off" | "no" => Some(false),
        _ => None,
    }
}

pub(crate) fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

pub(crate) fn address6(text: &str) -> Option<Ipv6Addr> {
    text.parse().ok()
}

/// Parses an address with the length of its subnet. The bits behind the length are the host part.
pub(crate) fn interface_address(text: &str) -> Option<IpNet> {
    text.parse().ok()
}

/// Parses a prefix, and sets the bits behind its length to zero.
pub(crate) fn prefix(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().map(|prefix| prefix.trunc())
}

/// Like [`prefix`], but for IPv6 only.
pub(crate) fn prefix6(text: &str) -> Option<Ipv6Net> {
    text.parse::<Ipv6Net>().ok().map(|prefix| prefix.trunc())
}

/// Parses the Ethernet address of a single station. SONiC writes it with colons, some files with dashes.
pub(crate) fn mac(text: &str) -> Option<Mac> {
    text.replace('-', ":").parse().ok().filter(|mac: &Mac| !mac.is_group() && *mac != Mac::default())
}

/// Whether an address is written differently from SONiC's own form: in upper case, or with leading zeros.
pub(crate) fn is_long_form(text: &str) -> bool {
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let Ok(parsed) = address.parse::<IpAddr>() else { return false };
    parsed.to_string() != address || (length.len() > 1 && length.starts_with('0'))
}

/// Returns the name of a JSON type, with its article.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

/// Returns a key for natural order, in which `Ethernet4` comes before `Ethernet16`.
pub(crate) fn natural(name: &str) -> (String, u64, String) {
    let digits = name.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    let word = name.strip_suffix(digits).unwrap_or(name);
    let number: String = digits.chars().take_while(char::is_ascii_digit).collect();
    let rest = digits.strip_prefix(number.as_str()).unwrap_or_default();
    (word.to_owned(), number.parse().unwrap_or(u64::MAX), rest.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn truth_words_of_every_table() {
        for (yes, no) in
            [("true", "false"), ("up", "down"), ("enable", "disable"), ("enabled", "disabled"), ("on", "off")]
        {
            assert_eq!((truth(yes), truth(no)), (Some(true), Some(false)));
        }
        assert_eq!(truth("UP"), Some(true));
        assert_eq!(truth("maybe"), None);
    }

    #[test]
    fn addresses_are_the_same_in_upper_case_and_with_zeros() {
        assert_eq!(prefix6("FCBB:BBBB:20::/48"), prefix6("fcbb:bbbb:0020::/48"));
        assert_eq!(prefix6("FCBB:BBBB:20::/48").unwrap().to_string(), "fcbb:bbbb:20::/48");
        assert_eq!(interface_address("2001:db8:fab:0000::1/127").unwrap().to_string(), "2001:db8:fab::1/127");
        for (text, long) in
            [("fcbb::1", false), ("FCBB::1", true), ("fc00:0000:20::1/128", true), ("10.0.0.1/24", false)]
        {
            assert_eq!(is_long_form(text), long, "{text}");
        }
    }

    #[test]
    fn ports_sort_by_their_number() {
        let mut names = ["Ethernet16", "Ethernet4", "Ethernet0", "Loopback1"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["Ethernet0", "Ethernet4", "Ethernet16", "Loopback1"]);
    }
}
