//! Builds TOML text line by line.

/// A TOML text to which lines are appended.
#[derive(Default)]
pub(super) struct Toml {
    text: String,
}

impl Toml {
    pub(super) fn comment(&mut self, text: &str) {
        self.line(&format!("# {text}"));
    }

    /// Adds the header of a table, such as `[node]` or `[[sid]]`.
    pub(super) fn table(&mut self, header: &str) {
        self.text.push('\n');
        self.line(header);
    }

    pub(super) fn text(&mut self, key: &str, value: &str) {
        // Names with control characters would be refused by the configuration. They only serve display, so they are
        // left out.
        if !value.is_empty() && !value.chars().any(char::is_control) {
            self.line(&format!("{key} = {}", quoted(value)));
        }
    }

    /// Adds an address, if there is one.
    pub(super) fn address(&mut self, key: &str, address: Option<impl ToString>) {
        if let Some(address) = address {
            self.text(key, &address.to_string());
        }
    }

    pub(super) fn number(&mut self, key: &str, value: u32) {
        self.line(&format!("{key} = {value}"));
    }

    pub(super) fn switch(&mut self, key: &str, on: bool) {
        self.line(&format!("{key} = {on}"));
    }

    /// Adds a list of texts.
    pub(super) fn texts(&mut self, key: &str, values: impl IntoIterator<Item = String>) {
        let values: Vec<String> = values.into_iter().map(|value| quoted(&value)).collect();
        self.line(&format!("{key} = [{}]", values.join(", ")));
    }

    /// Adds a list of inline tables, one per line.
    pub(super) fn tables(&mut self, key: &str, values: &[String]) {
        self.line(&format!("{key} = ["));
        for value in values {
            self.line(&format!("  {{ {value} }},"));
        }
        self.line("]");
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// Returns a text as a basic string of TOML.
pub(super) fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}
