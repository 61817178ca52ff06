//! srv6d's access to the kernel over netlink: devices, addresses, neighbours and routes; srv6d's own veth, and the
//! routes into it.

pub mod guard;
mod mirror;
mod qdisc;
mod resolve;
mod route_socket;
mod steering;
mod veth;

pub use guard::Guards;
pub use mirror::{Mirror, Seen};
pub use qdisc::{passed_by, root_qdiscs};
pub use resolve::ask_all_nodes;
pub use steering::{ROUTE_PROTOCOL, Steering, TABLE as STEERING_TABLE, remove_leftovers, steered_by_another};
pub use veth::{HostVeth, remove_stale};

/// The reason why an operation on the kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A netlink request failed.
    #[error("cannot {what}: {why}{}", fix(why))]
    Netlink {
        /// The request that failed.
        what: String,
        /// The kernel's answer.
        why: rtnetlink::Error,
    },
    /// Something outside of netlink failed.
    #[error("cannot {what}: {why}")]
    System {
        /// The action that failed.
        what: String,
        /// The system's answer.
        why: std::io::Error,
    },
    /// There is only one table for traffic that is led into srv6d, and another srv6d of this network namespace uses it.
    #[error(
        "the srv6d with interface {0} steers local applications' traffic in this network namespace, and only \
         one can: write steer_local = false under [host] of one of the two, or run it in a namespace of its own"
    )]
    SteeredBy(String),
    /// The name of srv6d's own veth is taken.
    #[error("interface {name} exists and {whose}: set another name with `interface` in [host], or remove it")]
    NameTaken {
        /// Name of the interface.
        name: String,
        /// Its owner, as part of a sentence.
        whose: String,
    },
}

/// Returns the names of the interfaces of this namespace. The list is empty if they cannot be listed.
pub fn interfaces() -> Vec<String> {
    let Ok(all) = nix::net::if_::if_nameindex() else { return Vec::new() };
    all.iter().map(|interface| interface.name().to_string_lossy().into_owned()).collect()
}

/// Returns the host name, the name of a node that has no other.
pub fn host_name() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the kernel's error number as a positive number.
pub fn errno(why: &rtnetlink::Error) -> Option<i32> {
    match why {
        rtnetlink::Error::NetlinkError(message) => message.code.map(|code| -code.get()),
        _ => None,
    }
}

fn fix(why: &rtnetlink::Error) -> &'static str {
    if errno(why) == Some(nix::errno::Errno::EPERM as i32) {
        " (needs CAP_NET_ADMIN: run as root, or give the service that capability)"
    } else {
        ""
    }
}

/// Makes an error of an answer of netlink: what was tried, and the answer.
pub fn netlink(what: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> KernelError {
    let what = what.into();
    move |why| KernelError::Netlink { what, why }
}

/// Makes an error of a system call: what was tried, and why it failed.
pub fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> KernelError {
    let what = what.into();
    move |why| KernelError::System { what, why }
}
