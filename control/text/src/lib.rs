//! Text that others write: files are read within a bound and replaced as a whole, and foreign text is made safe to show.

#![forbid(unsafe_code)]

mod read;
mod replace;
mod shown;

pub use read::{read_text, read_text_or_pipe, read_text_up_to};
pub use replace::replace_file;
pub use shown::{
    MAX_NAME, MAX_SHOWN, blanked, escaped, escaped_json, escaped_lines, escaped_output, shown, shown_up_to,
};
