//! Finds out which command is meant. A word may be shortened as long as only one command begins with it.

/// The reason why a word is not accepted at a node of the command tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// Several commands begin with the word.
    #[error("Too many matches: {}", .matches.join(", "))]
    TooMany {
        /// The commands in alphabetical order.
        matches: Vec<&'static str>,
    },
    /// No command begins with the word.
    #[error("No such command \"{word}\".")]
    Unknown {
        /// The word as typed.
        word: String,
    },
}

/// Returns the entry of `known` that equals `word`, or the only one that begins with it.
///
/// # Errors
/// No entry begins with the word, or several do.
pub fn resolve(word: &str, known: &[&'static str]) -> Result<&'static str, CommandError> {
    if let Some(exact) = known.iter().find(|known| **known == word) {
        return Ok(exact);
    }
    let mut matches: Vec<&'static str> = known.iter().copied().filter(|known| known.starts_with(word)).collect();
    matches.sort_unstable();
    match matches.as_slice() {
        [] => Err(CommandError::Unknown { word: word.to_owned() }),
        [one] => Ok(one),
        _ => Err(CommandError::TooMany { matches }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const SHOW: [&str; 5] = ["ipv6", "interfaces", "srv6", "ip", "runningconfiguration"];

    #[test]
    fn a_word_may_be_shortened_while_it_is_the_only_one() {
        assert_eq!(resolve("interface", &SHOW), Ok("interfaces"));
        assert_eq!(resolve("s", &SHOW), Ok("srv6"));
        assert_eq!(resolve("ip", &SHOW), Ok("ip"));
    }

    #[test]
    fn an_ambiguous_word_names_all_it_could_be() {
        let why = resolve("i", &SHOW).unwrap_err();
        assert_eq!(why.to_string(), "Too many matches: interfaces, ip, ipv6");
        assert_eq!(resolve("x", &SHOW).unwrap_err().to_string(), "No such command \"x\".");
    }
}
