//! The types of keys: the values that each accepts, and its message for others.

use std::fmt::Display;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::{IpNet, Ipv6Net};
use serde::{Serialize, Serializer};
use srv6d_addresses::{Mac, TableId};
use toml::de::DeValue;

/// Why a value was refused, and what to write instead.
pub struct Refusal {
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub fix: String,
}

/// A type that a key can have.
pub trait Value: Sized {
    /// Returns a description of the value with an example, which completes "write ...".
    fn expected() -> String;

    /// Converts a string; for types that are written as a string.
    fn from_text(text: &str) -> Result<Self, Refusal> {
        Err(unfit::<Self>(&format!("{text:?}")))
    }

    /// Converts a TOML value.
    fn read(value: &DeValue<'_>) -> Result<Self, Refusal> {
        match value {
            DeValue::String(text) => Self::from_text(text),
            other => Err(wrong_type::<Self>(other)),
        }
    }
}

pub(super) fn unfit<T: Value>(shown: &str) -> Refusal {
    Refusal { what: format!("{shown} does not fit here"), fix: format!("write {}", T::expected()) }
}

fn wrong_type<T: Value>(value: &DeValue<'_>) -> Refusal {
    Refusal { what: format!("is {}", type_name(value)), fix: format!("write {}", T::expected()) }
}

/// Returns the TOML type with its article.
pub(super) fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Returns the number if the value is an integer that fits `u64`.
pub(super) fn unsigned(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

impl Value for String {
    fn expected() -> String {
        "a name, e.g. \"eth1\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(unfit::<Self>(&format!("{text:?}")));
        }
        Ok(text.to_owned())
    }
}

/// Name of a network device.
pub(super) struct InterfaceName(pub String);

/// Returns whether the kernel accepts a text as a device's name (`dev_valid_name`) and keeps it as it is: it makes another name
/// of one with `%`. The name becomes a part of paths below /proc and /sys.
pub fn is_interface_name(text: &str) -> bool {
    let fits = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '/' | ':' | '%');
    (1..=LONGEST_INTERFACE_NAME).contains(&text.len()) && text != "." && text != ".." && text.chars().all(fits)
}

/// Maximum length of a device's name in bytes (`IFNAMSIZ` without the NUL at its end).
const LONGEST_INTERFACE_NAME: usize = 15;

impl Value for InterfaceName {
    fn expected() -> String {
        "a network device's name, e.g. \"eth1\": up to 15 characters, without spaces, `/`, `:` and `%`".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        // Below /proc/sys/net these two stand for all devices.
        let is_device = is_interface_name(text) && text != "all" && text != "default";
        if is_device { Ok(Self(text.to_owned())) } else { Err(unfit::<Self>(&format!("{text:?}"))) }
    }
}

impl Value for bool {
    fn expected() -> String {
        "true or false, without quotes".into()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, Refusal> {
        match value {
            DeValue::String(text) => Err(unfit::<Self>(&format!("{text:?}"))),
            other => other.as_bool().ok_or_else(|| wrong_type::<Self>(other)),
        }
    }
}

impl Value for PathBuf {
    fn expected() -> String {
        "an absolute path, e.g. \"/run/srv6d/srv6d.sock\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        let path = Self::from(text);
        if path.is_absolute() && !text.contains('\0') { Ok(path) } else { Err(unfit::<Self>(&format!("{text:?}"))) }
    }
}

impl Value for Ipv6Addr {
    fn expected() -> String {
        "an IPv6 address, e.g. \"2001:db8::1\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        text.parse().map_err(|_| Refusal {
            what: format!("{text:?} is not an IPv6 address{}", address_hint(text)),
            fix: format!("write {}", Self::expected()),
        })
    }
}

impl Value for IpAddr {
    fn expected() -> String {
        "an address, e.g. \"fe80::2\" or \"192.0.2.1\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        text.parse().map_err(|_| Refusal {
            what: format!("{text:?} is not an IP address{}", address_hint(text)),
            fix: format!("write {}", Self::expected()),
        })
    }
}

/// Returns a hint for common mistakes in an address.
fn address_hint(text: &str) -> &'static str {
    if text.contains('/') {
        " (it has a prefix length)"
    } else if text.contains('%') {
        " (the port is given by the key `port`)"
    } else if text.split(':').count() > 8 {
        // Six uSIDs behind a 32-bit block use all eight groups.
        " (more than eight groups: a carrier holds six 16-bit uSIDs; put the others into a second segment)"
    } else if text.split(':').count() == 8 && text.ends_with(':') {
        " (all eight groups are used: leave out the `::` at the end)"
    } else {
        ""
    }
}

impl Value for IpNet {
    fn expected() -> String {
        "a prefix, e.g. \"2001:db8:1::/64\" or \"192.0.2.0/24\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        let prefix: Self = text.parse().map_err(|_| not_a_prefix::<Self>(text))?;
        without_host_bits(prefix, &prefix.trunc(), text)
    }
}

impl Value for Ipv6Net {
    fn expected() -> String {
        "an IPv6 prefix, e.g. \"fcbb::/32\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        let prefix: Self = text.parse().map_err(|_| not_a_prefix::<Self>(text))?;
        without_host_bits(prefix, &prefix.trunc(), text)
    }
}

fn not_a_prefix<T: Value>(text: &str) -> Refusal {
    let fix = match text.parse::<IpAddr>() {
        Ok(address) => format!("add the prefix length, e.g. \"{address}/{}\"", likely_length(address)),
        Err(_) => format!("write {}", T::expected()),
    };
    Refusal { what: format!("{text:?} is not {}", T::expected().split(',').next().unwrap_or_default()), fix }
}

/// Returns the shortest prefix length at the end of a group that contains all set bits. An address that ends in `::` is
/// probably a locator or a subnet.
fn likely_length(address: IpAddr) -> u32 {
    let group = if address.is_ipv4() { 8 } else { 16 };
    let (bits, zeros) = match address {
        IpAddr::V4(address) => (32, address.to_bits().trailing_zeros()),
        IpAddr::V6(address) => (128, address.to_bits().trailing_zeros()),
    };
    (bits - zeros.min(bits)).next_multiple_of(group)
}

fn without_host_bits<T: PartialEq + Display>(prefix: T, masked: &T, text: &str) -> Result<T, Refusal> {
    if prefix == *masked {
        return Ok(prefix);
    }
    Err(Refusal {
        what: format!("{text:?} has bits set behind its prefix length"),
        fix: format!("write {:?}", masked.to_string()),
    })
}

impl Value for Mac {
    fn expected() -> String {
        "a MAC address, e.g. \"02:00:00:00:01:02\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        match text.parse::<Self>() {
            Ok(mac) if mac.is_group() || mac == Self::default() => Err(Refusal {
                what: format!("{text:?} is not the address of one neighbour"),
                fix: format!("write {}", Self::expected()),
            }),
            Ok(mac) => Ok(mac),
            Err(_) => Err(unfit::<Self>(&format!("{text:?}"))),
        }
    }
}

impl Value for TableId {
    fn expected() -> String {
        "\"main\" or a table number from 1 to 4294967295, e.g. 100".into()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, Refusal> {
        let number = match value {
            // SONiC's `default`, iproute2's `main` and FRR's `lo` are names of the same VRF.
            DeValue::String(name) if matches!(name.as_ref(), "main" | "default" | "lo") => return Ok(Self::MAIN),
            DeValue::String(text) => text.parse().ok(),
            other => unsigned(other).and_then(|number| u32::try_from(number).ok()),
        };
        match (number, value) {
            (Some(number @ 1..), _) => Ok(Self(number)),
            (_, DeValue::String(text)) => Err(unfit::<Self>(&format!("{text:?}"))),
            (_, DeValue::Integer(text)) => Err(unfit::<Self>(&text.to_string())),
            (_, other) => Err(wrong_type::<Self>(other)),
        }
    }
}

/// `[node] dscp`: the outer DSCP at encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OuterDscp {
    /// `"uniform"`: the inner DSCP is copied.
    Uniform,
    /// A fixed value, 0 to 63.
    Fixed(u8),
}

impl Value for OuterDscp {
    fn expected() -> String {
        "\"uniform\" or a DSCP from 0 to 63, e.g. 46".into()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, Refusal> {
        match (value, unsigned(value).and_then(|number| u8::try_from(number).ok())) {
            (DeValue::String(text), _) if text == "uniform" => Ok(Self::Uniform),
            (_, Some(dscp @ 0..=63)) => Ok(Self::Fixed(dscp)),
            (DeValue::String(text), _) => Err(unfit::<Self>(&format!("{text:?}"))),
            (DeValue::Integer(text), _) => Err(unfit::<Self>(&text.to_string())),
            (other, _) => Err(wrong_type::<Self>(other)),
        }
    }
}

impl Serialize for OuterDscp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Uniform => serializer.serialize_str("uniform"),
            Self::Fixed(dscp) => serializer.serialize_u8(*dscp),
        }
    }
}

/// `[api] metrics`: the address for Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// `"off"`: no address.
    Off,
    /// Address and TCP port to listen on.
    Listen(SocketAddr),
}

impl Value for MetricsAddress {
    fn expected() -> String {
        "\"off\" or an address with its port, e.g. \"[::1]:9469\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        match text.parse() {
            _ if text == "off" => Ok(Self::Off),
            Ok(address) => Ok(Self::Listen(address)),
            Err(_) => Err(unfit::<Self>(&format!("{text:?}"))),
        }
    }
}

impl Serialize for MetricsAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str("off"),
            Self::Listen(address) => serializer.collect_str(address),
        }
    }
}

/// Behaviours of RFC 8986 that srv6d does not have. None of its behaviours can replace them, however similar the name
/// is.
const NOT_HERE: [&str; 17] = [
    "End.T",
    "uT",
    "End.DX2",
    "uDX2",
    "End.DX2V",
    "uDX2V",
    "End.DT2U",
    "uDT2U",
    "End.DT2M",
    "uDT2M",
    "End.B6.Encaps",
    "End.B6.Encaps.Red",
    "uB6.Encaps",
    "uB6.Encaps.Red",
    "End.BM",
    "End.B6.Insert",
    "End.M.GTP6.D",
];

/// An enumeration whose values are keywords of the configuration.
pub trait Keyword: Copy + 'static {
    /// All keywords with their values.
    const KEYWORDS: &'static [(&'static str, Self)];
}

impl<T: Keyword> Value for T {
    fn expected() -> String {
        let words: Vec<String> = T::KEYWORDS.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        match words.as_slice() {
            [] => String::new(),
            [only] => only.clone(),
            [first, second] => format!("{first} or {second}"),
            many => format!("one of {}", many.join(", ")),
        }
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        if let Some((_, value)) = T::KEYWORDS.iter().find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        let known: Vec<&str> = T::KEYWORDS.iter().map(|(word, _)| *word).collect();
        if NOT_HERE.iter().any(|behavior| behavior.eq_ignore_ascii_case(text)) {
            return Err(Refusal {
                what: format!("srv6d does not have {text}; known: {}", known.join(", ")),
                fix: "leave the SID to the kernel or to another node, and take it out of this file".to_owned(),
            });
        }
        let fix = match nearest(text, known.iter().copied()) {
            Some(word) => format!("write \"{word}\""),
            None => format!("write {}", Self::expected()),
        };
        Err(Refusal { what: format!("{text:?} is not known; known: {}", known.join(", ")), fix })
    }
}

/// Returns the candidate that the user most likely meant, if one is similar enough.
pub fn nearest<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = text.to_ascii_lowercase();
    candidates
        .map(|candidate| (strsim::jaro_winkler(&lower, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(similarity, _)| *similarity > 0.75)
        // Among equally similar candidates the first is taken.
        .min_by(|a, b| b.0.total_cmp(&a.0))
        .map(|(_, candidate)| candidate)
}

/// Defines an enumeration together with its keywords.
#[macro_export]
macro_rules! keywords {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_meta])* $variant,)+ }

        impl $name {
            /// Returns the keyword of this value in the configuration.
            pub const fn keyword(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl $crate::Keyword for $name {
            const KEYWORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant),)+];
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.keyword())
            }
        }
    };
}
