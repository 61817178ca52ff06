//! Finds interfaces, renames them, and sets them up as the ports of the switch.

use futures_util::stream::TryStreamExt;
use nix::errno::Errno::{EBUSY, EEXIST, EOPNOTSUPP};
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Prop};
use rtnetlink::{Handle, LinkDummy, LinkMessageBuilder, LinkUnspec, LinkVrf};
use srv6d_addresses::{Mac, TableId};

use srv6d_daemon::kernel::{KernelError, errno, netlink};

/// An interface as the kernel shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Kernel index.
    pub index: u32,
    /// Primary name.
    pub name: String,
    /// Further names.
    pub altnames: Vec<String>,
    /// True if the interface is administratively up.
    pub up: bool,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u32,
    /// Ethernet address.
    pub mac: Option<Mac>,
    /// Index of the VRF or bridge that it belongs to.
    pub controller: Option<u32>,
    /// Kind of the interface: `veth`, `dummy` or `vrf`. `None`: a NIC.
    pub kind: Option<InfoKind>,
}

impl Link {
    /// Whether this is its primary name or one of its further names.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.altnames.iter().any(|altname| altname == name)
    }
}

/// Returns every interface of the namespace.
///
/// # Errors
/// The kernel refuses the dump.
pub async fn all(handle: &Handle) -> Result<Vec<Link>, KernelError> {
    let messages: Vec<LinkMessage> =
        handle.link().get().execute().try_collect().await.map_err(netlink("list the interfaces"))?;
    Ok(messages.iter().map(link).collect())
}

fn link(message: &LinkMessage) -> Link {
    let mut link =
        Link { index: message.header.index, up: message.header.flags.contains(LinkFlags::Up), ..Link::default() };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::PropList(props) => link.altnames.extend(props.iter().filter_map(altname)),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Address(bytes) => link.mac = bytes.as_slice().try_into().ok().map(Mac),
            LinkAttribute::Controller(index) => link.controller = Some(*index).filter(|index| *index != 0),
            LinkAttribute::LinkInfo(infos) => link.kind = infos.iter().find_map(kind),
            _ => {}
        }
    }
    link
}

fn altname(prop: &Prop) -> Option<String> {
    match prop {
        Prop::AltIfName(name) => Some(name.clone()),
        _ => None,
    }
}

fn kind(info: &LinkInfo) -> Option<InfoKind> {
    match info {
        LinkInfo::Kind(kind) => Some(kind.clone()),
        _ => None,
    }
}

/// Gives an interface another primary name and keeps the old one as a further name. Since Linux 6.2 an interface may
/// stay up meanwhile; with older kernels it has to go down for a moment.
///
/// # Errors
/// The kernel refuses, e.g. because the name is taken.
pub async fn rename(handle: &Handle, link: &Link, name: &str) -> Result<(), KernelError> {
    let what = format!("rename {} to {name}", link.name);
    let renamed = || LinkUnspec::new_with_index(link.index).name(name.to_owned()).build();
    match handle.link().set(renamed()).execute().await {
        Err(why) if errno(&why) == Some(EBUSY as i32) => {
            set(handle, LinkUnspec::new_with_index(link.index).down(), &what).await?;
            let result = handle.link().set(renamed()).execute().await.map_err(netlink(what.clone()));
            set(handle, LinkUnspec::new_with_index(link.index).up(), &what).await?;
            result?;
        }
        result => result.map_err(netlink(what))?,
    }
    add_altname(handle, link.index, &link.name).await
}

/// Adds a further name. It is no error if the interface has that name already.
///
/// # Errors
/// The kernel refuses.
pub async fn add_altname(handle: &Handle, index: u32, name: &str) -> Result<(), KernelError> {
    match handle.link().property_add(index).alt_ifname(&[name]).execute().await {
        Err(why) if errno(&why) == Some(EEXIST as i32) => Ok(()),
        result => result.map_err(netlink(format!("add the alternative name {name}"))),
    }
}

/// Changes an interface.
///
/// # Errors
/// The kernel refuses.
pub async fn set(handle: &Handle, change: LinkMessageBuilder<LinkUnspec>, what: &str) -> Result<(), KernelError> {
    handle.link().set(change.build()).execute().await.map_err(netlink(what.to_owned()))
}

/// Creates a dummy interface that is up. Returns false if this kernel has no dummy interfaces.
///
/// # Errors
/// The kernel refuses.
pub async fn create_dummy(handle: &Handle, name: &str) -> Result<bool, KernelError> {
    created(handle.link().add(LinkDummy::new(name).up().build()).execute().await, name)
}

/// Creates a VRF device that is up. Returns false if this kernel has no VRF devices.
///
/// # Errors
/// The kernel refuses.
pub async fn create_vrf(handle: &Handle, name: &str, table: TableId) -> Result<bool, KernelError> {
    created(handle.link().add(LinkVrf::new(name, table.0).up().build()).execute().await, name)
}

fn created(result: Result<(), rtnetlink::Error>, name: &str) -> Result<bool, KernelError> {
    match result {
        Err(why) if errno(&why) == Some(EOPNOTSUPP as i32) => Ok(false),
        result => result.map(|()| true).map_err(netlink(format!("create {name}"))),
    }
}
