//! Random states and random frames that match each other.
//!
//! All addresses come from small pools, so that frames reach SIDs, routes and neighbours, and so that these overlap: a
//! SID inside a route inside a block, an address of the node that is a SID, a neighbour inside a longer prefix. Numbers
//! are close to limits: hop limits around 1, packet sizes around the MTU, Segments Left around Last Entry.

mod addresses;
pub mod frames;
pub mod state;
