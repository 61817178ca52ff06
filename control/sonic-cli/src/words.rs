//! Which command is meant. A word may be shortened while it is the only one that begins so.

/// What a node of the command tree says to a word.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    /// Several begin so.
    #[error("Too many matches: {}", .matches.join(", "))]
    TooMany {
        /// In alphabetical order.
        matches: Vec<&'static str>,
    },
    /// None does.
    #[error("No such command \"{word}\".")]
    Unknown {
        /// As typed.
        word: String,
    },
}

/// The one of `known` that `word` is, or that it alone begins.
///
/// # Errors
/// None or several are meant.
pub fn resolve(word: &str, known: &[&'static str]) -> Result<&'static str, WordError> {
    if let Some(exact) = known.iter().find(|known| **known == word) {
        return Ok(exact);
    }
    let mut matches: Vec<&'static str> = known.iter().copied().filter(|known| known.starts_with(word)).collect();
    matches.sort_unstable();
    match matches.as_slice() {
        [] => Err(WordError::Unknown { word: word.to_owned() }),
        [one] => Ok(one),
        _ => Err(WordError::TooMany { matches }),
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
