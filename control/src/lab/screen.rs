//! What people see. Colours only on a terminal, and not with `NO_COLOR`.

use std::io::{self, Write as _};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};

/// Headings.
pub const HEADING: Style = Style::new().bold();
/// The path that packets take, and what went well.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// What went wrong.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// What is there, but not the point.
pub const DIM: Style = Style::new().dimmed();

/// Standard output, or nothing.
#[derive(Debug)]
pub struct Screen(Option<AutoStream<io::Stdout>>);

impl Screen {
    /// Standard output of this process.
    pub fn new() -> Self {
        Self(Some(AutoStream::auto(io::stdout())))
    }

    /// Shows nothing.
    pub const fn silent() -> Self {
        Self(None)
    }

    /// Prints, at once. A reader that has gone away is no reason to stop before everything is cleaned up.
    pub fn print(&mut self, text: &str) {
        if let Some(out) = &mut self.0 {
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
    }

    /// Prints a line.
    pub fn line(&mut self, text: &str) {
        self.print(&format!("{text}\n"));
    }

    /// Begins a part.
    pub fn heading(&mut self, text: &str) {
        self.print(&format!("\n{HEADING}{text}{HEADING:#}\n"));
    }
}

/// `text` in a style.
pub fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
