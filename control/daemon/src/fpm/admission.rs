//! Decides which peers may announce routes.

use std::net::SocketAddr;

use ipnet::IpNet;
use nix::unistd::{Uid, User};

use super::owner::{self, Owner};
use srv6d_config as config;

/// Users whose zebra is accepted if the configuration names none: root, and the user as which FRR's packages run it.
const DEFAULT_USERS: [&str; 2] = ["root", "frr"];

/// The peers that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Names or numbers of users in this network namespace.
    users: Vec<String>,
    /// Addresses of other machines and network namespaces. The users there are not known.
    elsewhere: Vec<IpNet>,
}

impl Admission {
    /// Reads the setting from the configuration's table.
    pub fn of(table: &config::Fpm) -> Self {
        let mut users: Vec<String> = table.allowed_users.iter().map(|user| user.get_ref().0.clone()).collect();
        if users.is_empty() {
            users.extend(DEFAULT_USERS.map(str::to_owned));
        }
        Self { users, elsewhere: table.allowed_peers.iter().map(|prefix| *prefix.get_ref()).collect() }
    }

    /// Checks whether the peer at `theirs`, connected to `ours`, may announce routes.
    ///
    /// # Errors
    /// The reason why it may not, and what to configure if it should.
    pub fn check(&self, ours: SocketAddr, theirs: SocketAddr) -> Result<(), String> {
        let owner = owner::of(ours, theirs).map_err(|why| format!("{theirs}: its user is not known: {why}"))?;
        match owner {
            Owner::User(uid) if self.users.iter().any(|user| is_user(user, uid)) => Ok(()),
            Owner::User(uid) => {
                let name = User::from_uid(Uid::from_raw(uid)).ok().flatten();
                let name = name.map_or_else(|| uid.to_string(), |user| user.name);
                Err(format!("{theirs}: user {name} is not one of `allowed_users` of [fpm]"))
            }
            Owner::Elsewhere if self.elsewhere.iter().any(|prefix| prefix.contains(&theirs.ip().to_canonical())) => {
                Ok(())
            }
            Owner::Elsewhere => Err(format!("{theirs}: is in no prefix of `allowed_peers` of [fpm]")),
        }
    }
}

fn is_user(user: &str, uid: u32) -> bool {
    if let Ok(number) = user.parse::<u32>() {
        return number == uid;
    }
    User::from_name(user).ok().flatten().is_some_and(|known| known.uid.as_raw() == uid)
}
