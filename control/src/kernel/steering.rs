//! Kernel routes that lead local applications' traffic into srv6d's own veth.
//!
//! IPv6: metric 1 is better than what `ip route`, routing daemons (1024, 20) and the kernel itself (256) use, so the
//! steered route of equal length wins and the other stays underneath. IPv4: metric 0 is the best there is; a route of
//! equal length with metric 0 is not replaced, and that is an error here.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol, RouteScope};
use rtnetlink::{Handle, RouteMessageBuilder};

use super::{KernelError, errno, netlink};

/// `proto` of these routes, as `ip route` shows it.
pub const ROUTE_PROTOCOL: u8 = 200;
const METRIC_V6: u32 = 1;
const METRIC_V4: u32 = 0;

/// The routes that are there now.
#[derive(Debug, Default)]
pub struct SteerRoutes {
    installed: BTreeSet<IpNet>,
}

impl SteerRoutes {
    /// Adds what is missing and removes what is no longer wanted. All that can be done is done; the first refusal is
    /// returned.
    ///
    /// # Errors
    /// The kernel refuses a route.
    pub async fn sync(&mut self, handle: &Handle, ifindex: u32, wanted: &BTreeSet<IpNet>) -> Result<(), KernelError> {
        let mut result = Ok(());
        for prefix in self.installed.difference(wanted).copied().collect::<Vec<_>>() {
            match handle.route().del(message(prefix, ifindex)).execute().await {
                Ok(()) => {}
                Err(why) if errno(&why) == Some(nix::errno::Errno::ESRCH as i32) => {}
                Err(why) => result = result.and(Err(netlink(format!("remove the route {prefix}"))(why))),
            }
            self.installed.remove(&prefix);
        }
        for prefix in wanted.difference(&self.installed).copied().collect::<Vec<_>>() {
            match handle.route().add(message(prefix, ifindex)).execute().await {
                Ok(()) => {
                    self.installed.insert(prefix);
                }
                Err(why) => {
                    let hint = "give an existing route of this prefix a metric above 0, so that both fit";
                    result = result.and(Err(netlink(format!("add the route {prefix} ({hint})"))(why)));
                }
            }
        }
        result
    }

    /// Prefixes routed into the veth.
    pub fn installed(&self) -> &BTreeSet<IpNet> {
        &self.installed
    }
}

fn message(prefix: IpNet, ifindex: u32) -> RouteMessage {
    let builder = RouteMessageBuilder::<IpAddr>::new().output_interface(ifindex);
    let builder = builder.protocol(RouteProtocol::from(ROUTE_PROTOCOL));
    let builder = match prefix {
        IpNet::V6(_) => builder.priority(METRIC_V6),
        IpNet::V4(_) => builder.priority(METRIC_V4).scope(RouteScope::Link),
    };
    match builder.destination_prefix(prefix.network(), prefix.prefix_len()) {
        Ok(builder) => builder.build(),
        Err(_) => RouteMessage::default(), // an IpNet's length always fits its family
    }
}
