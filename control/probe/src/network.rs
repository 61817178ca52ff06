//! The sockets: one that sends whole packets, and one that receives every ICMPv6 message of this node.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{SockaddrIn6, recvfrom};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Longest message that is read in bytes; more of it is cut off.
const MAX_MESSAGE: usize = 2048;
/// IP protocol of a socket that sends whole packets.
const RAW: i32 = 255;
/// Any port: it is not used here.
const PORT: u16 = 9;

/// Why probes cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The kernel does not let this process have raw sockets.
    #[error("probes need raw sockets, for which this process has no privilege (CAP_NET_RAW)\nfix: run it with sudo")]
    Privilege,
    /// The interface does not exist.
    #[error("there is no interface {0}\nfix: name one that `ip link` shows")]
    Interface(String),
    /// Nothing leads to the first SID.
    #[error(
        "the kernel has no route to {0} from here\nfix: see `ip -6 route get {0}`; the first SID must be reachable without SRv6"
    )]
    NoRoute(Ipv6Addr),
    /// Something else.
    #[error("cannot {what}: {why}")]
    Other {
        /// What was tried.
        what: &'static str,
        /// The kernel's reason.
        why: io::Error,
    },
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Who sent it.
    pub from: Ipv6Addr,
    /// An ICMPv6 message from its type on.
    pub message: Vec<u8>,
    /// When it was received.
    pub at: Instant,
}

/// Whatever carries probes and answers.
pub trait Network {
    /// Sends a whole IPv6 packet to its destination.
    ///
    /// # Errors
    /// The kernel refuses it.
    fn send(&mut self, packet: &[u8], destination: Ipv6Addr) -> Result<(), NetworkError>;

    /// Waits for a message until `until`, or until somebody asks to stop. `None`: there was none.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    fn receive(&mut self, until: Instant) -> Result<Option<Received>, NetworkError>;
}

/// The network of this node.
#[derive(Debug)]
pub struct RawNetwork {
    sender: Socket,
    receiver: Socket,
}

impl RawNetwork {
    /// Opens the sockets. With an interface, probes leave by it, whatever the routes say.
    ///
    /// # Errors
    /// The process has no privilege, or the interface does not exist.
    pub fn open(interface: Option<&str>) -> Result<Self, NetworkError> {
        let socket = |protocol| Socket::new(Domain::IPV6, Type::RAW, Some(protocol)).map_err(not_opened);
        let (sender, receiver) = (socket(Protocol::from(RAW))?, socket(Protocol::ICMPV6)?);
        if let Some(name) = interface {
            bind(&sender, name)?;
        }
        receiver.set_nonblocking(true).map_err(|why| NetworkError::Other { what: "set up a raw socket", why })?;
        Ok(Self { sender, receiver })
    }

    /// Reads a message that is there.
    fn read(&self) -> Result<Option<Received>, NetworkError> {
        let mut buffer = [0; MAX_MESSAGE];
        match recvfrom::<SockaddrIn6>(self.receiver.as_raw_fd(), &mut buffer) {
            Ok((length, from)) => {
                let message = buffer.get(..length).unwrap_or_default().to_vec();
                Ok(from.map(|from| Received { from: from.ip(), message, at: Instant::now() }))
            }
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => Ok(None),
            Err(why) => Err(NetworkError::Other { what: "receive answers", why: why.into() }),
        }
    }
}

impl Network for RawNetwork {
    fn send(&mut self, packet: &[u8], destination: Ipv6Addr) -> Result<(), NetworkError> {
        let address = SockAddr::from(SocketAddrV6::new(destination, 0, 0, 0));
        self.sender.send_to(packet, &address).map(drop).map_err(|why| not_sent(destination, why))
    }

    fn receive(&mut self, until: Instant) -> Result<Option<Received>, NetworkError> {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up, so that a wait that is not over does not become many short ones.
        let timeout = PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.receiver.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => Ok(None),
            Ok(_) => self.read(),
            Err(why) => Err(NetworkError::Other { what: "wait for answers", why: why.into() }),
        }
    }
}

/// Returns the address from which this node sends to a destination.
///
/// # Errors
/// No route leads there, or the interface does not exist.
pub fn source_towards(destination: Ipv6Addr, interface: Option<&str>) -> Result<Ipv6Addr, NetworkError> {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
        .map_err(|why| NetworkError::Other { what: "open a socket", why })?;
    let socket = Socket::from(socket);
    if let Some(name) = interface {
        bind(&socket, name)?;
    }
    let to = SockAddr::from(SocketAddrV6::new(destination, PORT, 0, 0));
    socket.connect(&to).map_err(|why| not_sent(destination, why))?;
    let own = socket.local_addr().ok().and_then(|address| address.as_socket());
    match own {
        Some(SocketAddr::V6(own)) => Ok(*own.ip()),
        _ => Err(NetworkError::NoRoute(destination)),
    }
}

fn bind(socket: &Socket, interface: &str) -> Result<(), NetworkError> {
    socket.bind_device(Some(interface.as_bytes())).map_err(|why| match why.raw_os_error() {
        Some(nix::libc::ENODEV) => NetworkError::Interface(interface.to_owned()),
        _ => not_opened(why),
    })
}

fn not_opened(why: io::Error) -> NetworkError {
    match why.kind() {
        io::ErrorKind::PermissionDenied => NetworkError::Privilege,
        _ => NetworkError::Other { what: "open a raw socket", why },
    }
}

fn not_sent(destination: Ipv6Addr, why: io::Error) -> NetworkError {
    match why.kind() {
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => NetworkError::NoRoute(destination),
        _ => NetworkError::Other { what: "send a probe", why },
    }
}
