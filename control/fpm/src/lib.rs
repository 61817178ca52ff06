//! FPM, the interface over which FRR's zebra tells a forwarding plane about routes: a stream of frames, each with
//! netlink messages, in two dialects.
//!
//! ```text
//! bytes ─► Frames ─► messages ─► decode ─► Event ─► Rib ─► routes, next hops resolved
//!           frame.rs              event.rs           rib.rs
//! ```
//!
//! * **stock**: `zebra -M dplane_fpm_nl`; routes, next-hop objects and SRv6 as the Linux kernel has them.
//! * **SONiC**: `zebra -M dplane_fpm_sonic`; local SIDs have messages of their own, and so has the encapsulation.
//!
//! Both are taken on one connection; what tells them apart is in [`Decoded::dialect`].
//!
//! No I/O and no clock in here. Bytes are hostile until proven otherwise: a frame that is cut or lies about its length
//! is an error of the connection, an attribute that makes no sense one of its message alone.

#![forbid(unsafe_code)]

mod answer;
mod attributes;
mod event;
mod frame;
mod limits;
mod nexthop;
mod objects;
mod rib;
mod route;
mod seg6;
mod sid;

pub use answer::offloaded;
pub use event::{
    Action, Decoded, Dialect, Encap, EncapMode, Event, Hop, Ignored, LocalSid, Malformed, Message, NextHop, Route,
    RouteKey, Seg6Local, Target, Vrf, decode,
};
pub use frame::{FrameError, Frames, messages};
pub use limits::{Limits, OBJECTS_PER_ROUTE};
pub use rib::{Announced, Refused, Resolved, Rib};
