//! A report as data, and its forms: JSON, Markdown, and one HTML page with bar charts, line plots and heat maps.
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers become positions in pictures"
)]

mod document;
mod heat;
mod plot;
mod schema;
mod svg;

pub use document::{Bar, Chart, Document, Group, Line, Mark, Plot, Point, Section, Stroke, Table, Tick};
pub use heat::{HeatMap, HeatRow};
pub use schema::Schema;
