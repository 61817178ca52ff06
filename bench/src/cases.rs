//! The cases that are measured.

use crate::floor::{self, Floor};
use crate::frames::Class;
use crate::rig::Rig;
use crate::tables::Node;

/// Sizes of the tables as numbers of prefixes.
pub const SIZES: [u32; 3] = [1, 10_000, 1_000_000];

/// One case: a row of the results.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name as printed.
    pub name: &'static str,
    /// Class of its packets.
    pub class: Class,
    /// The node whose tables the packets go through.
    pub node: Node,
    /// Floor in a bare loop: only the work that is needed for these packets in any case.
    pub bare: fn(&mut Rig),
    /// Floor of these packets between ports.
    pub ports: fn(&mut Rig),
}

impl Case {
    const fn of<F: Floor>(name: &'static str, class: Class, node: Node) -> Self {
        Self { name, class, node, bare: Rig::bare::<F>, ports: Rig::ports::<F> }
    }
}

/// All cases.
pub const CASES: [Case; 14] = [
    Case::of::<floor::Shift>("shift", Class::Shift, Node::PLAIN),
    Case::of::<floor::EncapV6>("encap-v6", Class::EncapV6, Node::PLAIN),
    Case::of::<floor::EncapV4>("encap-v4", Class::EncapV4, Node::PLAIN),
    Case::of::<floor::EncapV6Srh>("encap-v6-3-segments", Class::EncapV6, Node::LISTS),
    Case::of::<floor::EncapV4Srh>("encap-v4-3-segments", Class::EncapV4, Node::LISTS),
    Case::of::<floor::Moved<floor::EncapV6>>("encap-v6-moved", Class::EncapV6, Node::PLAIN),
    Case::of::<floor::Moved<floor::EncapV4>>("encap-v4-moved", Class::EncapV4, Node::PLAIN),
    Case::of::<floor::EncapV6>("encap-v6-strangers", Class::EncapV6Strangers, Node::PLAIN),
    Case::of::<floor::Decap>("decap", Class::Decap, Node::PLAIN),
    Case::of::<floor::Transit>("transit", Class::Transit, Node::PLAIN),
    Case::of::<floor::Shift>("shift-domain", Class::Shift, Node::DOMAIN),
    Case::of::<floor::EncapV6>("encap-v6-domain", Class::EncapV6, Node::DOMAIN),
    Case::of::<floor::Decap>("decap-domain", Class::Decap, Node::DOMAIN),
    Case::of::<floor::Shift>("shift-tagged-port", Class::Shift, Node::TAGGED),
];
