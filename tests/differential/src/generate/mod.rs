//! Random states and random frames that have something to do with each other.
//!
//! All addresses come from small pools, so that frames meet SIDs, routes and neighbours, and so that these meet each
//! other: a SID inside a route inside a block, an address of the node that is a SID, a neighbour behind a longer prefix.
//! Numbers stand at edges: hop limits around 1, packets around the MTU, Segments Left around Last Entry.

mod addresses;
pub mod frames;
pub mod state;
