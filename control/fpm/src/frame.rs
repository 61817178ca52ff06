//! The byte stream of FPM: frames, each with netlink messages.
//!
//! ```text
//! 0      1      2             4
//! | ver=1| type=1| length, BE  | netlink message, padded to 4 | ...      length counts these 4 bytes, too
//! ```

use netlink_packet_core::NetlinkBuffer;

use crate::event::Message;

/// Version of the frame header.
const VERSION: u8 = 1;
/// Type of a frame with a netlink payload; type 2 would be protobuf.
const NETLINK: u8 = 1;
/// Length of the frame header in bytes.
pub(crate) const HEADER: usize = 4;
/// Length of a netlink message header in bytes.
const MESSAGE_HEADER: usize = 16;

/// Error after which the stream cannot be read any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The peer does not speak FPM, or speaks a later version of it.
    #[error("a frame of version {0}: this is no FPM peer")]
    Version(u8),
    /// The payload is not netlink but, for example, protobuf.
    #[error("a frame of type {0}: load dplane_fpm_nl or dplane_fpm_sonic, not the module `fpm` in its protobuf form")]
    Type(u8),
    /// The frame is shorter than its own header.
    #[error("a frame of {0} bytes")]
    Length(u16),
    /// A message in a frame ends behind the end of the frame.
    #[error("a netlink message of {length} bytes with {left} bytes of the frame left")]
    Message {
        /// Length that the message claims to have.
        length: u32,
        /// Number of bytes left in the frame.
        left: usize,
    },
}

/// Collects received bytes and returns each frame when it is complete.
#[derive(Debug, Default)]
pub struct FrameReader {
    bytes: Vec<u8>,
    /// Position of the first frame that has not been returned yet.
    start: usize,
}

impl FrameReader {
    /// Appends received bytes.
    pub fn push(&mut self, received: &[u8]) {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(received);
    }

    /// Returns the payload of the next complete frame, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`]: the stream is out of step, and nothing more can be read from it.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some(&[version, kind, high, low]) = self.bytes.get(self.start..self.start + HEADER) else {
            return Ok(None);
        };
        let length = u16::from_be_bytes([high, low]);
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        if kind != NETLINK {
            return Err(FrameError::Type(kind));
        }
        if usize::from(length) < HEADER {
            return Err(FrameError::Length(length));
        }
        let frame = self.start..self.start + usize::from(length);
        let Some(bytes) = self.bytes.get(frame.clone()) else { return Ok(None) };
        self.start = frame.end;
        Ok(bytes.get(HEADER..))
    }

    /// Returns the number of bytes of a frame that is not complete yet.
    pub fn waiting(&self) -> usize {
        self.bytes.len().saturating_sub(self.start)
    }
}

/// Returns the netlink messages of a frame's payload, up to the first one that is cut.
///
/// # Errors
/// [`FrameError`] as an item: this message is cut, and the stream is out of step.
pub fn messages(mut payload: &[u8]) -> impl Iterator<Item = Result<Message<'_>, FrameError>> {
    std::iter::from_fn(move || {
        // Messages are padded to a multiple of 4, so fewer bytes than that are padding.
        let left = payload.len();
        if left < 4 {
            return None;
        }
        if left < MESSAGE_HEADER {
            payload = &[];
            return Some(Err(FrameError::Message { length: 0, left }));
        }
        let header = NetlinkBuffer::new(payload);
        let length = header.length();
        let end = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(body) = payload.get(MESSAGE_HEADER..end) else {
            payload = &[];
            return Some(Err(FrameError::Message { length, left }));
        };
        let kind = header.message_type();
        payload = payload.get(end.next_multiple_of(4)..).unwrap_or_default();
        Some(Ok(Message { kind, body }))
    })
}
