//! The cases that are measured.

use crate::floor::{self, Floor};
use crate::frames::Class;
use crate::rig::Rig;

/// Sizes of the tables as numbers of prefixes.
pub const SIZES: [u32; 3] = [1, 10_000, 1_000_000];

/// One case: a row of the results.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name as printed.
    pub name: &'static str,
    /// Class of its packets.
    pub class: Class,
    /// Number of segments of every path.
    pub segments: u16,
    /// Floor in a bare loop: only the work that these packets cannot do without.
    pub bare: fn(&mut Rig),
    /// The floor of these packets between ports.
    pub ports: fn(&mut Rig),
}

impl Case {
    const fn of<F: Floor>(name: &'static str, class: Class, segments: u16) -> Self {
        Self { name, class, segments, bare: Rig::bare::<F>, ports: Rig::ports::<F> }
    }
}

/// All cases.
pub const CASES: [Case; 10] = [
    Case::of::<floor::Shift>("shift", Class::Shift, 1),
    Case::of::<floor::EncapV6>("encap-v6", Class::EncapV6, 1),
    Case::of::<floor::EncapV4>("encap-v4", Class::EncapV4, 1),
    Case::of::<floor::EncapV6Srh>("encap-v6-3-segments", Class::EncapV6, 3),
    Case::of::<floor::EncapV4Srh>("encap-v4-3-segments", Class::EncapV4, 3),
    Case::of::<floor::Moved<floor::EncapV6>>("encap-v6-moved", Class::EncapV6, 1),
    Case::of::<floor::Moved<floor::EncapV4>>("encap-v4-moved", Class::EncapV4, 1),
    Case::of::<floor::EncapV6>("encap-v6-strangers", Class::EncapV6Strangers, 1),
    Case::of::<floor::Decap>("decap", Class::Decap, 1),
    Case::of::<floor::Transit>("transit", Class::Transit, 1),
];
