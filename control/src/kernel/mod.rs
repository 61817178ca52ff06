//! What srv6d knows of the kernel and asks of it, over netlink: devices, addresses, neighbours, routes; its own veth, and the
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
pub use qdisc::root_qdiscs;
pub use resolve::ask_all_nodes;
pub use steering::{ROUTE_PROTOCOL, Steering, TABLE as STEERING_TABLE, remove_leftovers, steered_by_another};
pub use veth::{HostVeth, remove_stale};

/// What the kernel refused.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A netlink request failed.
    #[error("cannot {what}: {why}{}", fix(why))]
    Netlink {
        /// What was asked.
        what: String,
        /// The kernel's answer.
        why: rtnetlink::Error,
    },
    /// Something outside of netlink failed.
    #[error("cannot {what}: {why}")]
    System {
        /// What was tried.
        what: String,
        /// The system's answer.
        why: std::io::Error,
    },
    /// There is one table for what is led into srv6d, and another srv6d of this network namespace has it.
    #[error(
        "the srv6d with interface {0} steers local applications' traffic in this network namespace, and only \
         one can: write steer_local = false under [host] of one of the two, or run it in a namespace of its own"
    )]
    SteeredBy(String),
    /// The name of the own veth is taken.
    #[error("interface {name} exists and {whose}: set another name with `interface` in [host], or remove it")]
    NameTaken {
        /// The interface.
        name: String,
        /// Who has it.
        whose: String,
    },
}

/// The kernel's error number, positive.
pub(crate) fn errno(why: &rtnetlink::Error) -> Option<i32> {
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

pub(crate) fn netlink(what: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> KernelError {
    let what = what.into();
    move |why| KernelError::Netlink { what, why }
}

pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> KernelError {
    let what = what.into();
    move |why| KernelError::System { what, why }
}
