//! FPM, the interface over which FRR's zebra tells a forwarding plane about routes: a stream of frames that contain
//! netlink messages, in two dialects.
//!
//! ```text
//! bytes ─► FrameReader ─► messages ─► decode ─► Event ─► Rib ─► routes, next hops resolved
//!           frame.rs              event.rs           rib.rs
//! ```
//!
//! * **stock**: `zebra -M dplane_fpm_nl`; routes, next-hop objects and SRv6 in the form of the Linux kernel.
//! * **SONiC**: `zebra -M dplane_fpm_sonic`; local SIDs have messages of their own, and so has the encapsulation.
//!
//! A connection may use either dialect; [`Decoded::dialect`] says what tells them apart.
//!
//! This crate does no I/O and reads no clock. All bytes are treated as hostile: a frame that is cut or lies about its
//! length is an error of the connection; an attribute with invalid contents is an error of its message alone.

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
pub use frame::{FrameError, FrameReader, messages};
pub use limits::{Limits, OBJECTS_PER_ROUTE};
pub use rib::{Announced, Refused, Resolved, Rib};
