//! Text that others wrote, made fit to be shown.

use std::fmt::Write;

/// Characters of foreign text that are shown; a longer one ends in `...`.
pub const MAX_SHOWN: usize = 512;

/// Characters of a foreign name that are shown.
pub const MAX_NAME: usize = 64;

/// Foreign text for terminals, logs and labels: control characters (ESC and line ends among them), characters that
/// turn the direction of writing, and invisible ones are escaped (`\n`, `\u{1b}`), and what is longer than
/// [`MAX_SHOWN`] characters is cut.
pub fn shown(text: &str) -> String {
    shown_up_to(text, MAX_SHOWN)
}

/// As [`shown`], cut after `longest` characters.
pub fn shown_up_to(text: &str, longest: usize) -> String {
    let mut safe = String::with_capacity(text.len().min(longest));
    for (number, character) in text.chars().enumerate() {
        if number == longest {
            safe.push_str("...");
            break;
        }
        push_escaped(&mut safe, character);
    }
    safe
}

/// Escapes what [`shown`] escapes, and cuts nothing.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    text.chars().for_each(|character| push_escaped(&mut safe, character));
    safe
}

/// As [`escaped`], for a text of several lines: its line ends stay.
pub fn escaped_lines(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

fn push_escaped(safe: &mut String, character: char) {
    if is_unsafe(character) {
        // Writing to a String cannot fail.
        let _ = write!(safe, "{}", character.escape_default());
    } else {
        safe.push(character);
    }
}

/// Control characters (Unicode Cc), line and paragraph separators, directional and other invisible formatting
/// (UAX #9, and the Cf characters that hide text).
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(shown("\u{1b}[2J ok"), "\\u{1b}[2J ok");
        assert_eq!(shown("a\nINFO ready\r\t\u{9b}31m"), "a\\nINFO ready\\r\\t\\u{9b}31m");
        assert_eq!(shown("abc\u{202e}fed\u{2066}\u{200b}"), "abc\\u{202e}fed\\u{2066}\\u{200b}");
        assert_eq!(shown("Zürich → 東京"), "Zürich → 東京");
    }

    #[test]
    fn what_is_long_is_cut() {
        let long = "x".repeat(20_000_000);
        assert_eq!(shown(&long).len(), MAX_SHOWN + 3);
        assert_eq!(shown(&"ü".repeat(MAX_SHOWN)).chars().count(), MAX_SHOWN);
        assert_eq!(escaped("a\n").as_str(), "a\\n");
    }
}
