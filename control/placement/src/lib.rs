//! Places flows on a fabric so that the busiest link carries as little as possible, and says for comparison where
//! hashing or Jalapeno's load book would have sent the same flows.
//!
//! ```
//! use srv6d_placement::{Clos, Constraints, Demand, Pattern, place};
//!
//! let fabric = Clos::two_tier(4, 4, 4).build();
//! let hosts = fabric.hosts().collect();
//! let demand = Demand::of_pattern(Pattern::Permutation, &[hosts], 1, 7);
//! let placement = place(&fabric, &demand, &Constraints::default())?;
//! assert_eq!(placement.busiest, placement.bound);
//! # Ok::<(), srv6d_placement::PlaceError>(())
//! ```

#![forbid(unsafe_code)]

mod again;
mod beside;
mod bound;
mod clos;
mod colour;
mod commodity;
mod commodity_paths;
mod comparison;
mod constraints;
mod demand;
mod division;
mod ecmp;
mod fabric;
mod fraction;
mod job;
mod load_order;
mod part;
mod permits;
mod phases;
mod placement;
mod ratio;
mod relief;
mod report;
mod search;
mod svg;
mod symmetric;
mod table;
mod topology;

pub use again::{Again, place_again};
pub use beside::{Carried, busiest_beside, place_beside};
pub use clos::{Clos, ClosError};
pub use commodity::Route;
pub use comparison::{ChosenPaths, Comparison, compare};
pub use constraints::{Constraints, PlaceError, Tenant};
pub use demand::{Demand, Flow, Pattern};
pub use ecmp::hash;
pub use fabric::{Attachment, Fabric, Link, Node, NodeKind};
pub use job::{Job, JobError, Pair, TenantOf};
pub use load_order::load_order;
pub use phases::{Changed, PhaseLoads, Phased, place_phases};
pub use placement::{Paths, Placement, busiest, place};
pub use ratio::Ratio;
pub use report::{Hop, Report, sids};
pub use svg::{short, svg};
pub use table::{LinkId, NodeId, Per, PerLink, PerNode};
pub use topology::TopologyError;
