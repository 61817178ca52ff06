//! Signatures: HMAC-SHA-256 with a key that all nodes share.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Length of a signature behind the entries: the number of the key, and 32 bytes.
pub(crate) const SIGNATURE: usize = KEY_ID + 32;
const KEY_ID: usize = 4;

/// A key that is shared by the nodes that trust each other.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    id: u32,
    secret: Vec<u8>,
}

impl Key {
    /// Creates a key. Its number is sent, so that a receiver tells a wrong key from a wrong signature.
    pub fn new(id: u32, secret: impl Into<Vec<u8>>) -> Self {
        Self { id, secret: secret.into() }
    }

    /// Appends the number of the key, and the signature of all bytes before the signature.
    pub(crate) fn sign(&self, message: &mut Vec<u8>) {
        message.extend(self.id.to_be_bytes());
        let signature = self.hash(message).map(|hash| hash.finalize().into_bytes());
        message.extend(signature.unwrap_or_default());
    }

    /// Returns true if the signature at the end of a message is that of this key. It takes the same time wherever the
    /// signature is wrong.
    pub(crate) fn has_signed(&self, message: &[u8]) -> bool {
        let Some((signed, signature)) = message.len().checked_sub(32).and_then(|at| message.split_at_checked(at))
        else {
            return false;
        };
        let is_by_this_key = signed.ends_with(&self.id.to_be_bytes());
        is_by_this_key && self.hash(signed).is_some_and(|hash| hash.verify_slice(signature).is_ok())
    }

    /// Hashes a message. A secret may have any length, so this does not fail.
    fn hash(&self, message: &[u8]) -> Option<Hmac<Sha256>> {
        Some(Hmac::<Sha256>::new_from_slice(&self.secret).ok()?.chain_update(message))
    }
}

/// Shows the key without its secret.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}
