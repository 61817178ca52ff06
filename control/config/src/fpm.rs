//! The table `[fpm]` in the form in which it is written: routes that FRR announces over TCP.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Serialize, Serializer};
use toml::Spanned;

use super::schema::Optional;
use super::sources::optional_duration;
use super::table::{Record, Table};
use super::value::{Refusal, Value, unfit};

/// `[fpm]`: accepts the routes that FRR's zebra announces.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fpm {
    /// Address and port for zebra's connection, default `127.0.0.1:2620`.
    pub listen: Optional<ListenAddress>,
    /// Users that may connect from this network namespace, default root and frr.
    #[serde(serialize_with = "users")]
    pub allowed_users: Vec<Spanned<User>>,
    /// Prefixes of peers that may connect from elsewhere, default none.
    pub allowed_peers: Vec<Spanned<IpNet>>,
    /// Time for which announced routes stay without a connection; default 15 min.
    #[serde(serialize_with = "optional_duration")]
    pub restart_time: Optional<Duration>,
    /// After a restart of FRR: time without a repeated announcement after which routes that were not repeated are
    /// removed; default 1 min.
    #[serde(serialize_with = "optional_duration")]
    pub stale_time: Optional<Duration>,
    /// Variant of the protocol, default `auto`.
    pub dialect: Optional<FpmDialect>,
    /// Whether H.Encaps routes are sent as H.Encaps.Red, default false.
    pub reduce: Optional<bool>,
    /// Maximum number of routes and SIDs, default 1000000.
    pub max_routes: Optional<u32>,
}

crate::keywords! {
    /// Variant of the FPM protocol.
    FpmDialect {
        /// The variant is detected from the messages.
        Auto = "auto",
        /// `zebra -M dplane_fpm_nl`: table numbers are those of the kernel.
        Frr = "frr",
        /// `zebra -M dplane_fpm_sonic`: table numbers are kernel indices of VRF devices.
        Sonic = "sonic",
    }
}

/// A user of this machine, by name or number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User(pub String);

impl Value for User {
    fn expected() -> String {
        "a user's name or number, e.g. \"frr\" or \"1000\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        let is_name = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-$".contains(c));
        if is_name { Ok(Self(text.to_owned())) } else { Err(unfit::<Self>(&format!("{text:?}"))) }
    }
}

fn users<S: Serializer>(users: &[Spanned<User>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(users.iter().map(|user| &user.get_ref().0))
}

/// Address and TCP port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

impl Value for ListenAddress {
    fn expected() -> String {
        "an address with its port, e.g. \"127.0.0.1:2620\"".into()
    }
    fn from_text(text: &str) -> Result<Self, Refusal> {
        text.parse().map(Self).map_err(|_| unfit::<Self>(&format!("{text:?}")))
    }
}

impl Serialize for ListenAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl Record for Fpm {
    const HEADER: &'static str = "[fpm]";

    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        Some(Self {
            listen: table.optional("listen"),
            allowed_users: table.list("allowed_users"),
            allowed_peers: table.list("allowed_peers"),
            restart_time: table.optional("restart_time"),
            stale_time: table.optional("stale_time"),
            dialect: table.optional("dialect"),
            reduce: table.optional("reduce"),
            max_routes: table.number("max_routes", 1..=10_000_000),
        })
    }
}
