//! Pages of the documentation as manual pages: Markdown becomes roff, with tables for tbl(1).

#![forbid(unsafe_code)]

use std::fmt::Write as _;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

/// Head of a manual page.
#[derive(Clone, Copy, Debug)]
pub struct Head<'h> {
    /// Name of the page, e.g. `srv6d.toml`.
    pub name: &'h str,
    /// Section of the manual.
    pub section: u8,
    /// What the page is about, in a few words.
    pub about: &'h str,
    /// Version of the program.
    pub version: &'h str,
}

/// Returns the manual page of a text in Markdown. Its first heading is left out, because the head of the page has a name.
pub fn page(head: Head<'_>, markdown: &str) -> String {
    let Head { name, section, about, version } = head;
    // The first line asks man(1) for tbl(1). Lines are not stretched to one width, which is ugly in the cells of a table.
    let begin = format!(
        "'\\\" t\n.TH {} {section} \"\" \"{}\" \"srv6d\"\n.ad l\n.SH NAME\n{} \\- {}\n.SH DESCRIPTION\n",
        escaped(name),
        escaped(version),
        escaped(name),
        escaped(about)
    );
    let mut page = Page { text: begin, ..Page::default() };
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        page.add(&event);
    }
    page.text
}

/// A page that is being written.
#[derive(Debug, Default)]
struct Page {
    text: String,
    /// Depth of lists.
    lists: usize,
    /// Whether the heading of the whole text is being read, which is left out.
    is_left_out: bool,
    /// Whether an example is being read, whose lines keep their form.
    is_example: bool,
    /// Whether a paragraph is the first thing of a list item, and so needs no request of its own.
    is_begin_of_item: bool,
    /// Columns of the table that is being read.
    columns: usize,
    /// Address of the link that is being read, if it leads out of the documentation.
    address: Option<String>,
}

impl Page {
    fn add(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(tag) => self.begin(tag),
            Event::End(tag) => self.end(*tag),
            Event::Text(_) | Event::Code(_) if self.is_left_out => {}
            Event::Text(text) if self.is_example => {
                text.split_inclusive('\n').for_each(|line| self.line(line));
            }
            Event::Text(text) => self.push(&escaped(text)),
            Event::Code(text) => self.push(&format!("\\fB{}\\fR", escaped(text))),
            Event::SoftBreak | Event::HardBreak => self.push("\n"),
            _ => {}
        }
    }

    fn begin(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Heading { level: HeadingLevel::H1, .. } => self.is_left_out = true,
            Tag::Heading { level: HeadingLevel::H2, .. } => self.request(".SH "),
            Tag::Heading { .. } => self.request(".SS "),
            Tag::Paragraph if self.is_begin_of_item => self.is_begin_of_item = false,
            Tag::Paragraph if self.lists > 0 => self.request(".IP\n"),
            Tag::Paragraph => self.request(".PP\n"),
            Tag::CodeBlock(_) => {
                self.is_example = true;
                self.request(".PP\n.RS 4\n.nf\n");
            }
            Tag::List(_) => {
                self.lists += 1;
                if self.lists > 1 {
                    self.request(".RS 4\n");
                }
            }
            Tag::Item => {
                self.is_begin_of_item = true;
                self.request(".IP \\(bu 2\n");
            }
            Tag::Table(columns) => {
                self.columns = columns.len();
                let format = vec!["lx"; self.columns].join(" ");
                self.request(&format!(".PP\n.TS\nallbox;\n{format}.\n"));
            }
            Tag::TableCell => self.push("T{\n"),
            Tag::Emphasis => self.push("\\fI"),
            Tag::Strong => self.push("\\fB"),
            Tag::Link { dest_url, .. } => {
                self.address = Some(dest_url.to_string()).filter(|url| url.starts_with("http"));
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(HeadingLevel::H1) => self.is_left_out = false,
            TagEnd::Heading(_) => self.push("\n"),
            TagEnd::CodeBlock => {
                self.is_example = false;
                self.request(".fi\n.RE\n");
            }
            TagEnd::List(_) => {
                self.lists -= 1;
                if self.lists > 0 {
                    self.request(".RE\n");
                }
            }
            TagEnd::Item => self.is_begin_of_item = false,
            TagEnd::Table => self.request(".TE\n"),
            TagEnd::TableHead | TagEnd::TableRow => {
                // The last cell of a line has no tab behind it.
                self.text.truncate(self.text.trim_end_matches('\t').len());
                self.push("\n");
            }
            TagEnd::TableCell => self.request("T}\t"),
            TagEnd::Emphasis | TagEnd::Strong => self.push("\\fR"),
            TagEnd::Link => {
                if let Some(address) = self.address.take() {
                    self.push(&format!(" <{}>", escaped(&address)));
                }
            }
            _ => {}
        }
    }

    /// Writes a request on a line of its own.
    fn request(&mut self, request: &str) {
        if !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text += request;
    }

    /// Writes a line of an example.
    fn line(&mut self, line: &str) {
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(self.text, "{guard}{}", escaped(line));
    }

    /// Writes running text. What would be a request at the beginning of a line gets a character without width in front.
    fn push(&mut self, text: &str) {
        if self.text.ends_with('\n') && text.starts_with(['.', '\'']) {
            self.text += "\\&";
        }
        self.text += text;
    }
}

/// Returns a text in which nothing is a request of roff.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head<'_> = Head { name: "a.toml", section: 5, about: "keys of a", version: "srv6d 1" };

    fn body(markdown: &str) -> String {
        let page = page(HEAD, markdown);
        page.split_once(".SH DESCRIPTION\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }

    #[test]
    fn the_head_asks_for_tables() {
        let page = page(HEAD, "# a.toml\n\nText.\n");
        assert!(
            page.starts_with(
                "'\\\" t\n.TH a.toml 5 \"\" \"srv6d 1\" \"srv6d\"\n.ad l\n.SH NAME\na.toml \\- keys of a\n"
            ),
            "{page}"
        );
        assert!(page.ends_with(".PP\nText."), "{page}");
    }

    #[test]
    fn headings_paragraphs_and_lists() {
        assert_eq!(
            body("## node\n\nOne `key`, *so*.\n\n* first [here](#x)\n* [there](https://a.b)\n  * inner\n"),
            ".SH node\n.PP\nOne \\fBkey\\fR, \\fIso\\fR.\n.IP \\(bu 2\nfirst here\n.IP \\(bu 2\nthere <https://a.b>\n.RS 4\n\
             .IP \\(bu 2\ninner\n.RE\n"
        );
    }

    #[test]
    fn tables_and_examples_keep_their_form() {
        assert_eq!(
            body("| key | is |\n|---|---|\n| `a` | x-y |\n"),
            ".PP\n.TS\nallbox;\nlx lx.\nT{\nkey\nT}\tT{\nis\nT}\nT{\n\\fBa\\fR\nT}\tT{\nx\\-y\nT}\n.TE\n"
        );
        assert_eq!(body("```toml\n.x = 'a\\n'\n\ny\n```\n"), ".PP\n.RS 4\n.nf\n\\&.x = 'a\\en'\n\ny\n.fi\n.RE\n");
    }

    #[test]
    fn a_line_that_begins_with_a_dot_is_no_request() {
        assert_eq!(body("one\n.two\n"), ".PP\none\n\\&.two");
    }
}
