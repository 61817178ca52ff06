//! Limits a stream of datagrams by the progress of its receiver.
//!
//! Every queue on the way is finite, and on a machine that is too busy a queue may not be emptied for a while. A sender
//! that only follows its clock then loses datagrams, whatever the nodes in between do. With a window that is shorter
//! than the queues, lost datagrams were lost by a node.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use super::traffic::{UDP_HEADER, numbers};

/// Window of streams of which nothing should be lost: a quarter of the shortest ring that a node of a lab has.
pub const WINDOW: u64 = 64;
/// If there is no answer for this long, one more datagram is sent than the window allows.
const NO_ANSWER: Duration = Duration::from_millis(100);

/// The sender's knowledge of its receiver's progress.
#[derive(Debug)]
pub(super) struct Window {
    most: u64,
    /// Number of the first datagram that may still be on its way.
    first: u64,
}

impl Window {
    /// Allows at most `most` datagrams on their way at a time.
    pub(super) const fn new(most: u64) -> Self {
        Self { most, first: 0 }
    }

    /// Waits until datagram number `sent` may be sent. Returns whether it should ask for an answer. A lost datagram is
    /// never answered and must not end the stream: then datagrams are sent one by one until there is an answer again.
    pub(super) fn wait(&mut self, socket: &UdpSocket, sent: u64) -> io::Result<bool> {
        let mut silence = false;
        let mut answer = [0; UDP_HEADER];
        socket.set_read_timeout(Some(NO_ANSWER))?;
        while sent >= self.first + self.most {
            match socket.recv(&mut answer) {
                Ok(length) => {
                    let heard = answer.get(..length).and_then(numbers);
                    self.first = self.first.max(heard.map_or(0, |(sequence, _)| sequence.saturating_add(1)));
                }
                Err(error) if timed_out(&error) => {
                    silence = true;
                    self.first += 1;
                }
                // This is an ICMP error about an earlier datagram, or a signal.
                Err(_) => {}
            }
        }
        Ok(silence || sent.is_multiple_of(self.most.div_ceil(4)))
    }
}

/// Whether an error means that nothing arrived in time.
pub(super) fn timed_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let [sender, receiver] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        receiver.connect(sender.local_addr().unwrap()).unwrap();
        (sender, receiver)
    }

    #[test]
    fn an_answer_makes_room_for_what_came_before_it_too() {
        let (sender, receiver) = pair();
        let mut window = Window::new(8);
        let asks: Vec<u64> = (0..8).filter(|&sent| window.wait(&sender, sent).unwrap()).collect();
        assert_eq!(asks, [0, 2, 4, 6]);
        receiver.send(&[5_u64.to_be_bytes(), 1_u64.to_be_bytes()].concat()).unwrap();
        let begin = window.first;
        assert!(window.wait(&sender, 8).unwrap());
        assert_eq!((begin, window.first), (0, 6));
    }

    #[test]
    fn without_answers_the_stream_is_slow_but_goes_on_and_asks() {
        let (sender, _receiver) = pair();
        let mut window = Window::new(4);
        assert!((0..4).all(|sent| window.wait(&sender, sent).is_ok()));
        assert!((4..7).all(|sent| window.wait(&sender, sent).unwrap()));
        assert_eq!(window.first, 3, "three silences");
    }
}
