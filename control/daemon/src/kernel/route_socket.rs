//! Reads routes over netlink without the netlink library, for three reasons: the library does not know next-hop
//! objects, an event must not be lost silently because one attribute is new, and with many routes the time to read each
//! one counts.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt, socket,
    sockopt,
};
use srv6d_kernel_routes::{MULTICAST_GROUPS, Message, Messages, Routes, dump_requests};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::ROUTE_PROTOCOL;

/// Size of the buffer for events that have not been read, enough for ten thousand routes. The kernel counts three times
/// the length of a message.
const EVENT_ROOM: usize = 8 << 20;
/// Largest datagram of a dump.
const DATAGRAM: usize = 1 << 16;
/// Number of times that a dump is begun anew because something changed during it. After that an inconsistent dump is
/// accepted.
pub(super) const ATTEMPTS: u32 = 4;
/// Pause before the second attempt. Before the third one it is twice as long, and so on.
const PAUSE: Duration = Duration::from_millis(5);

/// A netlink socket for routes.
#[derive(Debug)]
pub struct RouteSocket {
    fd: AsyncFd<OwnedFd>,
    buffer: Vec<u8>,
    /// Sequence number of the last dump.
    sequence: u32,
    /// Whether a dump was begun and has not ended. The kernel then refuses another one, or still has answers to the old
    /// one to send.
    is_dumping: bool,
}

/// The result of a dump.
#[derive(Debug)]
pub struct Dump {
    /// All routes, next-hop objects and rules.
    pub routes: Routes,
    /// Whether nothing changed during the dump, as far as the kernel says.
    pub is_of_one_moment: bool,
}

impl RouteSocket {
    /// Opens a socket for events about routes, next-hop objects and rules.
    ///
    /// # Errors
    /// A netlink socket cannot be opened.
    pub fn events() -> io::Result<Self> {
        let events = Self::open(MULTICAST_GROUPS)?;
        // Without the privilege the buffer is smaller, so that a dump is needed now and then.
        let _ = setsockopt(events.fd.get_ref(), sockopt::RcvBufForce, &EVENT_ROOM);
        Ok(events)
    }

    /// Opens a socket for dumps.
    ///
    /// # Errors
    /// A netlink socket cannot be opened.
    pub fn requests() -> io::Result<Self> {
        Self::open(0)
    }

    fn open(groups: u32) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Self::on(fd)
    }

    pub(super) fn on(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { fd: watch(fd)?, buffer: vec![0; DATAGRAM], sequence: 0, is_dumping: false })
    }

    /// Waits until there is something to read. It can be cancelled.
    pub async fn readable(&self) {
        // The socket stays marked as ready until a read finds nothing.
        if let Ok(mut ready) = self.fd.readable().await {
            ready.retain_ready();
        }
    }

    /// Reads the next datagram. `None`: there is none now.
    ///
    /// The kernel is asked even if Tokio knows of no datagram: Tokio learns of one only when the runtime waits, and a
    /// dump whose answers come at once is over before that.
    fn read(&mut self) -> io::Result<Option<&[u8]>> {
        let buffer = &mut self.buffer;
        let mut read = |fd: &OwnedFd| recv(fd.as_raw_fd(), buffer, MsgFlags::empty()).map_err(io::Error::from);
        let result = match self.fd.try_io(Interest::READABLE, &mut read) {
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => read(self.fd.get_ref()),
            result => result,
        };
        match result {
            Ok(length) => Ok(self.buffer.get(..length)),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Reads all messages that have arrived. Returns false if some are lost because the buffer was too small.
    pub fn read_all(&mut self, messages: &mut Vec<Message>) -> bool {
        let mut is_whole = true;
        loop {
            match self.read() {
                Ok(Some(datagram)) => messages.extend(Messages::new(datagram).filter(is_foreign)),
                Ok(None) => return is_whole,
                Err(why) if why.raw_os_error() == Some(Errno::ENOBUFS as i32) => is_whole = false,
                Err(_) => return false,
            }
        }
    }

    /// Reads all routes, next-hop objects and rules. Only one dump can run at a time. It can be cancelled.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn dump(&mut self) -> io::Result<Dump> {
        if self.is_dumping {
            *self = Self::requests()?;
        }
        let mut dump = self.dump_once().await?;
        for attempt in 1..ATTEMPTS {
            if dump.is_of_one_moment {
                break;
            }
            tokio::time::sleep(PAUSE * attempt).await;
            dump = self.dump_once().await?;
        }
        Ok(dump)
    }

    async fn dump_once(&mut self) -> io::Result<Dump> {
        let mut dump = Dump { routes: Routes::default(), is_of_one_moment: true };
        self.sequence = self.sequence.wrapping_add(1);
        for request in dump_requests(self.sequence) {
            self.is_dumping = true;
            send(self.fd.get_ref().as_raw_fd(), &request, MsgFlags::empty())?;
            while self.is_dumping {
                self.readable().await;
                self.read_answers(&mut dump)?;
            }
        }
        Ok(dump)
    }

    /// Reads the answers of one datagram, if there is one.
    fn read_answers(&mut self, dump: &mut Dump) -> io::Result<()> {
        let sequence = self.sequence;
        let Some(datagram) = self.read()? else { return Ok(()) };
        let mut messages = Messages::answers(datagram, sequence);
        let mut end = None;
        for message in messages.by_ref() {
            match message {
                Message::Done => end = Some(Ok(())),
                // This kernel has no next-hop objects.
                Message::Refused(why) if why == Errno::EOPNOTSUPP as i32 => end = Some(Ok(())),
                Message::Refused(why) => end = Some(Err(io::Error::from_raw_os_error(why))),
                message if is_foreign(&message) => dump.routes.load(message),
                _ => {}
            }
        }
        dump.is_of_one_moment &= !messages.interrupted;
        self.is_dumping = end.is_none();
        end.unwrap_or(Ok(()))
    }
}

/// Whether the message is about a route or rule that is not srv6d's own.
fn is_foreign(message: &Message) -> bool {
    match message {
        Message::Route(route) => route.protocol != ROUTE_PROTOCOL,
        Message::Rule(rule) => !super::steering::is_own_rule(rule),
        _ => true,
    }
}

#[allow(deprecated, reason = "the constructor without `unsafe`: an OwnedFd stays open and itself while it is watched")]
fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use std::os::fd::AsRawFd;

    use futures_util::FutureExt;
    use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socketpair};

    use super::RouteSocket;

    /// Tokio does not know of the datagram yet, because the runtime has not waited since it came.
    #[tokio::test]
    async fn a_datagram_is_read_before_the_runtime_waits() {
        let (own, peer) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_NONBLOCK).unwrap();
        let mut socket = RouteSocket::on(own).unwrap();
        assert!(socket.read().unwrap().is_none());
        send(peer.as_raw_fd(), &[1; 20], MsgFlags::empty()).unwrap();
        assert_eq!(socket.read().unwrap().map(<[u8]>::len), Some(20));
    }

    #[tokio::test]
    async fn answers_to_a_dump_that_was_given_up_do_not_count_for_the_next_one() {
        let mut socket = RouteSocket::requests().unwrap();
        assert!(socket.dump().now_or_never().is_none(), "it is given up after the first request");
        let dump = socket.dump().await.unwrap();
        let fresh = RouteSocket::requests().unwrap().dump().await.unwrap();
        assert_eq!(dump.routes.rules(), fresh.routes.rules());
        assert!(socket.read().unwrap().is_none(), "an answer is left");
    }
}
