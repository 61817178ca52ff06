//! Reads what a message says about a link or about an address on a link.

use ipnet::IpNet;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{InfoData, InfoVrf, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use srv6d_addresses::{Mac, TableId};

use srv6d_plan::Device;

pub(super) fn is_up(link: &LinkMessage) -> bool {
    link.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp)
}

pub(super) fn device(link: &LinkMessage) -> Device {
    let mut device = Device {
        name: String::new(),
        ifindex: link.header.index,
        mac: Mac::default(),
        mtu: 0,
        up: is_up(link),
        addresses: Vec::new(),
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => device.name.clone_from(name),
            LinkAttribute::Address(bytes) => device.mac = mac(bytes).unwrap_or_default(),
            LinkAttribute::Mtu(mtu) => device.mtu = *mtu,
            _ => {}
        }
    }
    device
}

/// Returns the device that a link belongs to: a VRF, a bridge or a bond.
pub(super) fn controller(link: &LinkMessage) -> Option<u32> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Controller(index) => Some(*index),
        _ => None,
    })
}

/// Returns the table of a VRF device.
pub(super) fn vrf_table(link: &LinkMessage) -> Option<TableId> {
    let infos = link.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    });
    infos.flatten().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vrf(vrf)) => vrf.iter().find_map(|part| match part {
            InfoVrf::TableId(table) => Some(TableId(*table)),
            _ => None,
        }),
        _ => None,
    })
}

pub(super) fn mac(bytes: &[u8]) -> Option<Mac> {
    bytes.try_into().ok().map(Mac)
}

/// Returns the address of a message. On a point-to-point interface `Local` is ours and `Address` the peer's.
pub(super) fn address(message: &AddressMessage) -> Option<IpNet> {
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(local) => address = Some(*local),
            AddressAttribute::Address(other) => address = address.or(Some(*other)),
            _ => {}
        }
    }
    IpNet::new(address?, message.header.prefix_len).ok()
}
