//! Routes over netlink, read by hand: next-hop objects are unknown to the library, an event must not be lost in silence
//! because one attribute is new, and among many routes the time to read one counts.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt, socket,
    sockopt,
};
use srv6d_kernel_routes::{MULTICAST_GROUPS, Message, Messages, Routes, dump_requests};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::ROUTE_PROTOCOL;

/// Room for what comes while nobody reads: ten thousand routes. The kernel counts three times what a message is long.
const EVENT_ROOM: usize = 8 << 20;
/// Largest datagram of a dump.
const DATAGRAM: usize = 1 << 16;
/// How often a dump that changed under way is begun anew, before one that is not of one moment is taken.
const ATTEMPTS: usize = 4;

/// A socket of rtnetlink.
#[derive(Debug)]
pub struct RouteSocket {
    fd: AsyncFd<OwnedFd>,
    buffer: Vec<u8>,
}

impl RouteSocket {
    /// For events about routes, next-hop objects and rules.
    ///
    /// # Errors
    /// No netlink.
    pub fn events() -> io::Result<Self> {
        let events = Self::open(MULTICAST_GROUPS)?;
        // Without the privilege there is less room, and a dump now and then.
        let _ = setsockopt(events.fd.get_ref(), sockopt::RcvBufForce, &EVENT_ROOM);
        Ok(events)
    }

    /// For dumps.
    ///
    /// # Errors
    /// No netlink.
    pub fn requests() -> io::Result<Self> {
        Self::open(0)
    }

    fn open(groups: u32) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Ok(Self { fd: watch(fd)?, buffer: vec![0; DATAGRAM] })
    }

    /// Returns when there is something to read. Can be cancelled.
    pub async fn readable(&self) {
        // Ready stays ready until a read says otherwise.
        if let Ok(mut ready) = self.fd.readable().await {
            ready.retain_ready();
        }
    }

    /// The next datagram; `None`: none is there now.
    fn read(&mut self) -> io::Result<Option<&[u8]>> {
        let buffer = &mut self.buffer;
        let read = |fd: &OwnedFd| recv(fd.as_raw_fd(), buffer, MsgFlags::empty()).map_err(io::Error::from);
        match self.fd.try_io(Interest::READABLE, read) {
            Ok(length) => Ok(self.buffer.get(..length)),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Everything that has come. False: more came than there was room for, and some of it is lost.
    pub fn take(&mut self, messages: &mut Vec<Message>) -> bool {
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

    /// Everything that is there now. One at a time.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn dump(&mut self) -> io::Result<Routes> {
        for attempt in 1.. {
            let (routes, is_of_one_moment) = self.dump_once().await?;
            if is_of_one_moment || attempt == ATTEMPTS {
                return Ok(routes);
            }
        }
        Ok(Routes::default())
    }

    async fn dump_once(&mut self) -> io::Result<(Routes, bool)> {
        let mut routes = Routes::default();
        let mut is_of_one_moment = true;
        for request in dump_requests() {
            send(self.fd.get_ref().as_raw_fd(), &request, MsgFlags::empty())?;
            loop {
                let Some(datagram) = self.read()? else {
                    self.readable().await;
                    continue;
                };
                let mut messages = Messages::new(datagram);
                let mut is_done = false;
                for message in messages.by_ref() {
                    match message {
                        Message::Done => is_done = true,
                        // A kernel without next-hop objects.
                        Message::Refused(why) if why == Errno::EOPNOTSUPP as i32 => is_done = true,
                        Message::Refused(why) => return Err(io::Error::from_raw_os_error(why)),
                        message if is_foreign(&message) => routes.load(message),
                        _ => {}
                    }
                }
                is_of_one_moment &= !messages.interrupted;
                if is_done {
                    break;
                }
            }
        }
        Ok((routes, is_of_one_moment))
    }
}

/// Not srv6d's own.
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
