//! Tells when an interface may take other frames from XDP programs than before, as a veth does when its other end gets or
//! loses its NAPI. Since Linux 6.3 the netdev family of generic netlink notifies of it (net/core/netdev-genl.c).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

use crate::sys;

// Numbers of linux/netlink.h and linux/genetlink.h.
const HEADERS: usize = 16 + 4;
const GENL_ID_CTRL: u16 = 16;
const NLM_F_REQUEST: u16 = 1;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;
/// Flags in the type of an attribute.
const TYPE_FLAGS: u16 = 0xc000;

/// Names of linux/netdev.h, with the zero that ends them.
const FAMILY: &[u8] = b"netdev\0";
const GROUP: &[u8] = b"mgmt\0";

/// A socket that is readable after a change in the network namespace in which it was opened.
#[derive(Debug)]
pub struct FeatureChanges(OwnedFd);

impl FeatureChanges {
    /// Opens the socket, which never blocks.
    ///
    /// # Errors
    /// The kernel has no such notifications.
    pub fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkGeneric)?;
        send(socket.as_raw_fd(), &request(), MsgFlags::empty())?;
        let mut answer = [0; 4096];
        let len = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        let group = answer.get(..len).and_then(group_of).ok_or(io::ErrorKind::Unsupported)?;
        let is_member = sys::set_option(socket.as_raw_fd(), libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group);
        if is_member { Ok(Self(socket)) } else { Err(io::Error::last_os_error()) }
    }

    /// Takes what has been notified so far. Returns whether there was anything.
    pub fn take(&self) -> bool {
        let mut taken = false;
        let mut message = [0; 4096];
        loop {
            match recv(self.0.as_raw_fd(), &mut message, MsgFlags::empty()) {
                // ENOBUFS: more was notified than the socket's memory holds.
                Ok(1..) | Err(Errno::ENOBUFS | Errno::EINTR) => taken = true,
                // There is nothing more to read.
                Ok(0) | Err(_) => return taken,
            }
        }
    }
}

impl AsRawFd for FeatureChanges {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for FeatureChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Asks for the number and the groups of the family.
fn request() -> Vec<u8> {
    let attribute = attribute(CTRL_ATTR_FAMILY_NAME, FAMILY);
    let len = u32::try_from(HEADERS + attribute.len()).unwrap_or_default();
    let mut message = len.to_ne_bytes().to_vec();
    message.extend(GENL_ID_CTRL.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and port.
    message.extend([0; 8]);
    message.extend([CTRL_CMD_GETFAMILY, 1, 0, 0]);
    message.extend(attribute);
    message
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(4 + value.len()).unwrap_or_default();
    let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Finds the number of the group in the answer.
fn group_of(answer: &[u8]) -> Option<u32> {
    let kind = answer.get(4..6)?.first_chunk().copied().map(u16::from_ne_bytes)?;
    let behind = answer.get(HEADERS..).filter(|_| kind == GENL_ID_CTRL)?;
    let groups = value_of(behind, CTRL_ATTR_MCAST_GROUPS)?;
    let group = attributes(groups).find(|&(_, group)| value_of(group, CTRL_ATTR_MCAST_GRP_NAME) == Some(GROUP))?;
    value_of(group.1, CTRL_ATTR_MCAST_GRP_ID)?.first_chunk().copied().map(u32::from_ne_bytes)
}

fn value_of(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|&(kind, _)| kind == wanted).map(|(_, value)| value)
}

/// Returns kind and value of each attribute, up to the first one that does not fit.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [l0, l1, k0, k1] = *bytes.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k0, k1]) & !TYPE_FLAGS, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_found_by_its_name_and_nothing_is_found_in_what_does_not_fit() {
        let group = |name: &[u8], number: u32| {
            [attribute(CTRL_ATTR_MCAST_GRP_ID, &number.to_ne_bytes()), attribute(CTRL_ATTR_MCAST_GRP_NAME, name)]
                .concat()
        };
        let groups = [attribute(1, &group(b"page-pool\0", 7)), attribute(2, &group(GROUP, 9))].concat();
        let mut answer = request();
        answer.extend(attribute(CTRL_ATTR_MCAST_GROUPS | TYPE_FLAGS & 0x8000, &groups));
        assert_eq!(group_of(&answer), Some(9));
        for len in 0..answer.len() {
            assert_eq!(group_of(answer.get(..len).unwrap_or_default()), None, "{len}");
        }
        if let Some(kind) = answer.get_mut(4) {
            *kind = 2;
        }
        assert_eq!(group_of(&answer), None, "an error message");
    }
}
