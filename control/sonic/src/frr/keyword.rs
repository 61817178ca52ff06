//! Keywords of FRR's configuration. They may be shortened as long as only one of a node's keywords is meant.

/// Returns the entry of `known` that equals `word`, or the only one that begins with it.
pub(super) fn one_of<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    if let Some(exact) = known.iter().find(|known| **known == word) {
        return Some(exact);
    }
    let mut begins = known.iter().filter(|known| !word.is_empty() && known.starts_with(word));
    begins.next().filter(|_| begins.next().is_none()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_may_be_shortened_while_it_is_the_only_one() {
        let known = ["encapsulation", "formats", "locators", "static-sids"];
        assert_eq!(one_of("static", &known), Some("static-sids"));
        assert_eq!(one_of("locators", &known), Some("locators"));
        assert_eq!(one_of("", &known), None);
        assert_eq!(one_of("locator-x", &known), None);
        assert_eq!(one_of("uDT", &["uDT4", "uDT6", "uDT46"]), None);
        assert_eq!(one_of("uDT4", &["uDT4", "uDT6", "uDT46"]), Some("uDT4"));
    }
}
