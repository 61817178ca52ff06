//! Pages that are shown one after the other.

use std::time::SystemTime;

use crate::time;

/// Terminal sequence that moves the cursor to the top left and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Formats the page of a moment. On a terminal it replaces the previous page; in a file all pages are kept, each with its
/// time.
pub fn page(text: &str, now: SystemTime, is_terminal: bool) -> String {
    let time = time(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs());
    if is_terminal { format!("{CLEAR}{time}\n{text}") } else { format!("{time}\n{text}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_replaces_the_one_before_on_a_terminal_only() {
        let time = "1970-01-01T00:00:00Z";
        let written = page("text\n", SystemTime::UNIX_EPOCH, false);
        assert!(written.contains(time) && written.ends_with("\ntext\n\n"), "{written}");
        let shown = page("text\n", SystemTime::UNIX_EPOCH, true);
        assert!(shown.starts_with(CLEAR) && shown.ends_with("\ntext\n"), "{shown}");
    }
}
