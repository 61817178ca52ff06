#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]
//! A peer that stands in for the kernel answers dumps as the kernel does when something goes wrong at a certain moment.

use std::os::fd::{AsRawFd, OwnedFd};
use std::thread::JoinHandle;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};

use super::*;
use crate::kernel::route_socket::ATTEMPTS;

const NEW_ROUTE: u16 = 24;
const DEL_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const INTERRUPTED: u16 = 0x10;
const INET6: u8 = 10;

/// The way in which one dump is answered. After the last one of a list, dumps are answered correctly.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Answer {
    Refuse,
    /// A route is removed while the routes are dumped.
    RemoveMeanwhile,
    /// All answers say that something has changed meanwhile.
    Interrupt,
}

/// Returns followed routes, and the thread of the peer that answers their dumps until they are dropped. The thread
/// returns the number of requests.
pub(in super::super) fn followed(answers: &[Answer]) -> (FollowedRoutes, JoinHandle<usize>) {
    let pair = || socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_NONBLOCK).unwrap();
    let ((events, events_peer), (requests, requests_peer)) = (pair(), pair());
    nix::fcntl::fcntl(&requests_peer, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty())).unwrap();
    let answers = answers.to_vec();
    let peer = std::thread::spawn(move || serve(&requests_peer, &events_peer, answers));
    (FollowedRoutes::on(RouteSocket::on(events).unwrap(), RouteSocket::on(requests).unwrap()), peer)
}

fn serve(requests: &OwnedFd, events: &OwnedFd, answers: Vec<Answer>) -> usize {
    let mut answers = answers.into_iter();
    let (mut answer, mut sequence, mut count) = (None, [0; 4], 0);
    let mut request = [0; 64];
    while recv(requests.as_raw_fd(), &mut request, MsgFlags::empty()).is_ok_and(|length| length > 16) {
        count += 1;
        if request[8..12] != sequence {
            sequence.copy_from_slice(&request[8..12]);
            answer = answers.next();
        }
        let say = |kind, flags, body: &[u8]| message(kind, flags, sequence, body);
        let kind = u16::from_ne_bytes([request[4], request[5]]);
        let mut said = match answer {
            Some(Answer::Refuse) => say(ERROR, 0, &(-12i32).to_ne_bytes()),
            Some(Answer::Interrupt) => say(DONE, INTERRUPTED, &[0; 4]),
            Some(Answer::RemoveMeanwhile) | None => say(DONE, 0, &[0; 4]),
        };
        if kind == GET_ROUTE && request[16] == INET6 {
            if answer == Some(Answer::RemoveMeanwhile) {
                send(events.as_raw_fd(), &message(DEL_ROUTE, 0, [0; 4], &route(9)), MsgFlags::empty()).unwrap();
            }
            said.splice(0..0, say(NEW_ROUTE, 0, &route(1)));
        }
        send(requests.as_raw_fd(), &said, MsgFlags::empty()).unwrap();
    }
    count
}

fn message(kind: u16, flags: u16, sequence: [u8; 4], body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + body.len()).unwrap();
    [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &sequence, &[0; 4], body].concat()
}

/// Returns the message of the route `unreachable 2001:db8:N::/48` in the main table.
fn route(number: u8) -> Vec<u8> {
    let head = [INET6, 48, 0, 0, 254, 3, 0, 7, 0, 0, 0, 0];
    let destination = [[20, 0, 1, 0].as_slice(), &[0x20, 1, 0xd, 0xb8, 0, number], &[0; 10]].concat();
    let metric = [[8, 0, 6, 0].as_slice(), &1024u32.to_ne_bytes()].concat();
    [head.to_vec(), destination, metric].concat()
}

/// Waits until a dump is due and then looks.
async fn look(followed: &mut FollowedRoutes) -> Result<Seen, KernelError> {
    let due = followed.dump_due().unwrap();
    tokio::time::sleep_until(due.into()).await;
    let mut seen = Seen::default();
    followed.look(&mut seen).await.map(|()| seen)
}

#[tokio::test]
async fn a_dump_that_failed_is_made_again_after_a_pause() {
    let (mut followed, _peer) = followed(&[Answer::Refuse, Answer::Refuse]);
    for _ in 0..2 {
        look(&mut followed).await.unwrap_err();
        assert!(followed.dump_due().unwrap() > Instant::now(), "not at once");
    }
    assert_eq!(look(&mut followed).await.unwrap().routes.len(), 1);
    assert_eq!((followed.dump_due(), followed.pause()), (None, Duration::ZERO));
}

#[tokio::test]
async fn a_dump_in_which_a_route_went_is_made_again() {
    let (mut followed, _peer) = followed(&[Answer::RemoveMeanwhile]);
    look(&mut followed).await.unwrap();
    assert_eq!((followed.dumps, followed.waiting.len(), followed.is_lost), (1, 1, false), "events still count");
    look(&mut followed).await.unwrap();
    assert_eq!((followed.dumps, followed.waiting.len(), followed.dump_due()), (2, 0, None));
}

#[tokio::test]
async fn a_dump_that_never_is_of_one_moment_is_taken_and_made_again_later() {
    let attempts = usize::try_from(ATTEMPTS).unwrap();
    let (mut followed, peer) = followed(&vec![Answer::Interrupt; attempts]);
    look(&mut followed).await.unwrap();
    assert_eq!((followed.dumps, followed.dump_due().is_some()), (1, true));
    look(&mut followed).await.unwrap();
    assert_eq!((followed.dumps, followed.dump_due()), (2, None));
    drop(followed);
    assert_eq!(peer.join().unwrap(), (attempts + 1) * 5, "requests");
}

#[tokio::test]
async fn pauses_grow_to_a_bound() {
    let (mut followed, _peer) = followed(&[]);
    let pauses = [0, 1, 2, 100].map(|retries| {
        followed.retries = retries;
        followed.pause()
    });
    assert_eq!(pauses, [Duration::ZERO, FIRST_PAUSE, FIRST_PAUSE * 2, LONGEST_PAUSE]);
}
