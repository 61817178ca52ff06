//! The payload of a probe: STAMP's Session-Sender packet in authenticated mode (RFC 8762 section 4.2.2).
//!
//! ```text
//!  0  sequence number   4  zero   16  time stamp (NTP)   24  error estimate   26  SSID (RFC 8972)   28  zero   96  HMAC
//! ```

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::reject::Reject;
use crate::watch::LaneId;

/// Length of the payload in bytes.
pub const LENGTH: usize = 112;
/// Number of bytes that the HMAC covers.
const SEALED: usize = 96;
/// Error estimate (RFC 4656 section 4.1.2): not synchronized, in seconds of 2^-32, the smallest multiplier.
const ERROR_ESTIMATE: [u8; 2] = [0x00, 0x01];
/// Seconds between 1900, with which NTP begins, and 1970.
const NTP_SECONDS: u64 = 2_208_988_800;
const SECOND: u64 = 1_000_000_000;

/// The numbers in a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Number of the probe within its loop.
    pub sequence: u32,
    /// The loop.
    pub lane: LaneId,
}

/// The key with which this process seals its probes. Nobody else has it.
#[derive(Clone)]
pub struct Seal(Vec<u8>);

impl Seal {
    /// Creates a key from secret bytes.
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self(secret.into())
    }

    /// Returns the payload of a probe. `wall` is the time since 1970 in nanoseconds.
    pub fn close(&self, message: Message, wall: u64) -> Vec<u8> {
        let mut bytes = message.sequence.to_be_bytes().to_vec();
        bytes.resize(16, 0);
        bytes.extend(ntp(wall).to_be_bytes());
        bytes.extend(ERROR_ESTIMATE);
        bytes.extend(message.lane.to_be_bytes());
        bytes.resize(SEALED, 0);
        let hash = self.hash(&bytes).map(|hash| hash.finalize().into_bytes());
        bytes.extend(hash.iter().flatten());
        bytes.resize(LENGTH, 0);
        bytes
    }

    /// Returns the numbers in a payload that this process has sealed. It takes the same time wherever the HMAC is wrong.
    ///
    /// # Errors
    /// The payload is of another length, or somebody else has made or changed it.
    pub fn open(&self, payload: &[u8]) -> Result<Message, Reject> {
        if payload.len() != LENGTH {
            return Err(Reject::Length);
        }
        let (sealed, hmac) = payload.split_at(SEALED);
        let is_own = self.hash(sealed).is_some_and(|hash| hash.verify_truncated_left(hmac).is_ok());
        let numbers = sealed.first_chunk().zip(sealed.get(26..).and_then(<[u8]>::first_chunk)).filter(|_| is_own);
        let (sequence, lane) = numbers.ok_or(Reject::Seal)?;
        Ok(Message { sequence: u32::from_be_bytes(*sequence), lane: LaneId::from_be_bytes(*lane) })
    }

    /// Hashes a payload. A secret may have any length, so this does not fail.
    fn hash(&self, payload: &[u8]) -> Option<Hmac<Sha256>> {
        Some(Hmac::<Sha256>::new_from_slice(&self.0).ok()?.chain_update(payload))
    }
}

/// Shows that there is a key, and not the key.
impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").finish_non_exhaustive()
    }
}

/// Returns the time stamp of NTP (RFC 5905) for a time since 1970 in nanoseconds.
fn ntp(wall: u64) -> u64 {
    let (seconds, rest) = (wall / SECOND, wall % SECOND);
    // The seconds wrap in 2036.
    let seconds = (seconds + NTP_SECONDS) & u64::from(u32::MAX);
    (seconds << 32) | ((rest << 32) / SECOND)
}
