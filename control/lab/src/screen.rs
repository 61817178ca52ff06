//! Output for the user. It has colours only on a terminal, and not with `NO_COLOR`.

use std::io::{self, Write as _};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};

/// Style of headings.
pub const HEADING: Style = Style::new().bold();
/// Style of the path that packets take, and of good results.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// Style of errors.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Style of less important text.
pub const DIM: Style = Style::new().dimmed();

/// Standard output, or no output at all.
#[derive(Debug)]
pub struct Screen(Option<AutoStream<io::Stdout>>);

impl Screen {
    /// Writes to standard output of this process.
    pub fn new() -> Self {
        Self(Some(AutoStream::auto(io::stdout())))
    }

    /// Shows nothing.
    pub const fn silent() -> Self {
        Self(None)
    }

    /// Prints a text at once. Errors are ignored: if the reader has gone, the lab still has to be cleaned up.
    pub fn print(&mut self, text: &str) {
        if let Some(out) = &mut self.0 {
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    }

    /// Prints a line.
    pub fn line(&mut self, text: &str) {
        self.print(&format!("{text}\n"));
    }

    /// Prints the heading of a part.
    pub fn heading(&mut self, text: &str) {
        self.print(&format!("\n{HEADING}{text}{HEADING:#}\n"));
    }
}

/// Returns `text` in a style.
pub fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
