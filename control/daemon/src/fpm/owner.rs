//! Finds the owner of the other end of a TCP connection. TCP has no `SO_PEERCRED`, so the kernel is asked over
//! `sock_diag(7)`.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP, TCP_ESTABLISHED};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// `INET_DIAG_NOCOOKIE`: the kernel finds the socket by its addresses alone.
const NO_COOKIE: [u8; 8] = [0xff; 8];
/// Number of bytes of the largest answer about one socket.
const ANSWER: usize = 4096;
/// Number of seconds within which the kernel must answer.
const PATIENCE: i64 = 1;

/// The owner of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A process of this network namespace; the number is the user who opened the socket.
    User(u32),
    /// The owner is on another machine or in another network namespace.
    Elsewhere,
}

/// Returns the owner of `theirs`, which is connected to `ours` in this network namespace.
///
/// # Errors
/// The kernel does not tell, or no process holds that end open any more: then its user is not known.
pub fn of(ours: SocketAddr, theirs: SocketAddr) -> io::Result<Owner> {
    match find(ours, theirs)? {
        // If there is no inode, the process has closed the socket, and the kernel reports user 0 whoever the owner was.
        Some(found) if found.state == TCP_ESTABLISHED && found.inode != 0 => Ok(Owner::User(found.uid)),
        None if !is_of_this_namespace(theirs) => Ok(Owner::Elsewhere),
        _ => Err(io::Error::new(io::ErrorKind::NotConnected, "its other end is closed already")),
    }
}

/// Whether an address belongs to this namespace. No other address can be bound.
fn is_of_this_namespace(address: SocketAddr) -> bool {
    let mut any_port = address;
    any_port.set_port(0);
    UdpSocket::bind(any_port).is_ok()
}

/// Returns the socket at `theirs`. `None`: this namespace has none.
fn find(ours: SocketAddr, theirs: SocketAddr) -> io::Result<Option<InetResponseHeader>> {
    let kernel = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag)?;
    setsockopt(&kernel, sockopt::ReceiveTimeout, &TimeVal::new(PATIENCE, 0))?;
    send(kernel.as_raw_fd(), &request(ours, theirs), MsgFlags::empty())?;
    let mut buffer = vec![0; ANSWER];
    let length = recv(kernel.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
    let answer = NetlinkMessage::<SockDiagMessage>::deserialize(buffer.get(..length).unwrap_or_default());
    match answer.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why.to_string()))?.payload {
        NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found)) => Ok(Some(found.header)),
        NetlinkPayload::Error(refused) if refused.raw_code() == -(Errno::ENOENT as i32) => Ok(None),
        NetlinkPayload::Error(refused) => Err(refused.to_io()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel gave an answer of another kind")),
    }
}

fn request(ours: SocketAddr, theirs: SocketAddr) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let wanted = InetRequest {
        family: if theirs.is_ipv4() { AF_INET } else { AF_INET6 },
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id: SocketId {
            source_port: theirs.port(),
            destination_port: ours.port(),
            source_address: theirs.ip(),
            destination_address: ours.ip(),
            interface_id: if let SocketAddr::V6(v6) = theirs { v6.scope_id() } else { 0 },
            cookie: NO_COOKIE,
        },
    };
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(wanted).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Returns both ends of a connection to a listener on this address, and the addresses as the listener sees them.
    fn connected(listen: &str, connect: &str) -> (TcpStream, TcpStream, SocketAddr, SocketAddr) {
        let listener = TcpListener::bind(listen).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(format!("{connect}:{port}")).unwrap();
        let (server, theirs) = listener.accept().unwrap();
        let ours = server.local_addr().unwrap();
        (client, server, ours, theirs)
    }

    fn own() -> Owner {
        Owner::User(nix::unistd::getuid().as_raw())
    }

    #[test]
    fn a_connection_of_this_process_is_its_users() {
        for (listen, connect) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "[::1]"), ("[::]:0", "127.0.0.1")] {
            let (_client, _server, ours, theirs) = connected(listen, connect);
            assert_eq!(of(ours, theirs).unwrap(), own(), "{listen}");
        }
    }

    #[test]
    fn a_closed_end_is_nobodys_whoever_closed_it() {
        let (client, _server, ours, theirs) = connected("127.0.0.1:0", "127.0.0.1");
        drop(client);
        assert_eq!(of(ours, theirs).unwrap_err().kind(), io::ErrorKind::NotConnected);
        let (client, _server, ours, theirs) = connected("127.0.0.1:0", "127.0.0.1");
        socket2::SockRef::from(&client).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(client);
        assert_eq!(of(ours, theirs).unwrap_err().kind(), io::ErrorKind::NotConnected, "reset");
    }

    #[test]
    fn what_this_namespace_does_not_have_is_elsewhere() {
        let ours = "127.0.0.1:2620".parse().unwrap();
        assert_eq!(of(ours, "192.0.2.1:40000".parse().unwrap()).unwrap(), Owner::Elsewhere);
    }
}
