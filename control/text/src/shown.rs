//! Makes foreign text safe to show.

use std::fmt::Write;

/// Maximum number of characters of a foreign text that are shown; a longer text ends in `...`.
pub const MAX_SHOWN: usize = 512;

/// Maximum number of characters of a foreign name that are shown.
pub const MAX_NAME: usize = 64;

/// Makes a foreign text safe for terminals, logs and labels. Control characters (including ESC and line ends),
/// characters that change the direction of writing, and invisible ones are escaped (`\n`, `\u{1b}`). The text is cut
/// after [`MAX_SHOWN`] characters.
pub fn shown(text: &str) -> String {
    shown_up_to(text, MAX_SHOWN)
}

/// Like [`shown`], but cuts the text after `longest` characters.
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

/// Escapes the same characters as [`shown`], but does not cut the text.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    text.chars().for_each(|character| push_escaped(&mut safe, character));
    safe
}

/// Like [`escaped`], but keeps the line ends of a text with several lines.
pub fn escaped_lines(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// Like [`escaped_lines`], but also keeps tabs, for the output of commands.
pub fn escaped_output(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => safe.push(character),
            _ => push_escaped(&mut safe, character),
        }
    }
    safe
}

/// Escapes in a JSON text the characters that [`shown`] escapes. The JSON has the same meaning afterwards.
pub fn escaped_json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if character != '\n' && is_unsafe(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(character);
        }
    }
    safe
}

/// Replaces each character that [`shown`] escapes by a blank.
pub fn blanked(text: &str) -> String {
    text.chars().map(|character| if is_unsafe(character) { ' ' } else { character }).collect()
}

fn push_escaped(safe: &mut String, character: char) {
    if is_unsafe(character) {
        // Writing to a String cannot fail.
        let _ = write!(safe, "{}", character.escape_default());
    } else {
        safe.push(character);
    }
}

/// Returns whether a character must be escaped: control characters (Unicode Cc), line and paragraph separators,
/// directional and other invisible formatting (UAX #9, and the Cf characters that hide text).
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
    fn output_and_json_keep_their_form() {
        assert_eq!(escaped_output("a\tb\n\u{1b}c"), "a\tb\n\\u{1b}c");
        assert_eq!(escaped_json("{\n\"a\": \"\u{9b}\u{e0001}\"\n}"), "{\n\"a\": \"\\u009b\\udb40\\udc01\"\n}");
        assert_eq!(blanked("a\t\u{1b}\u{202e}b"), "a   b");
    }

    #[test]
    fn what_is_long_is_cut() {
        let long = "x".repeat(20_000_000);
        assert_eq!(shown(&long).len(), MAX_SHOWN + 3);
        assert_eq!(shown(&"ü".repeat(MAX_SHOWN)).chars().count(), MAX_SHOWN);
        assert_eq!(escaped("a\n").as_str(), "a\\n");
    }
}
