//! `vtysh` at a terminal: a user types line by line, and the typed configuration comes into force as a whole.

use super::{Command, command};

/// First words of lines that open a level of their own, which `exit` leaves.
const LEVELS: [&str; 7] = ["vrf", "segment-routing", "srv6", "locators", "locator", "static-sids", "encapsulation"];

/// The meaning of a typed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    /// The line is a command.
    Ask(String),
    /// The lines are a complete part of the configuration.
    Configure(Vec<String>),
    /// More lines have to follow.
    More,
    /// The session ends.
    Leave,
}

/// State of the session.
#[derive(Debug, Default)]
pub struct Prompt {
    /// Lines typed since `configure terminal`.
    lines: Option<Vec<String>>,
    /// Number of open levels below `configure terminal`.
    depth: usize,
}

impl Prompt {
    /// Returns the prompt for the next line.
    pub fn text(&self, host: &str) -> String {
        format!("{host}{}# ", if self.lines.is_some() { "(config)" } else { "" })
    }

    /// Handles a typed line. `None`: there are no more lines.
    pub fn take(&mut self, line: Option<&str>) -> Typed {
        let line = line.map(str::trim);
        let Some(lines) = &mut self.lines else {
            return match line {
                None | Some("exit" | "quit") => Typed::Leave,
                Some("") => Typed::More,
                Some(line) if command(line) == Ok(Command::Configure) => {
                    self.lines = Some(Vec::new());
                    Typed::More
                }
                Some(line) => Typed::Ask(line.to_owned()),
            };
        };
        let first = line.unwrap_or("end").split(' ').next().unwrap_or_default();
        match first {
            "end" => return self.complete(),
            "exit" | "quit" | "exit-vrf" if self.depth == 0 => return self.complete(),
            "exit" | "quit" | "exit-vrf" => self.depth -= 1,
            "do" => return Typed::Ask(line.unwrap_or_default().to_owned()),
            level if LEVELS.contains(&level) => self.depth += 1,
            _ => {}
        }
        lines.extend(line.map(str::to_owned));
        Typed::More
    }

    fn complete(&mut self) -> Typed {
        self.depth = 0;
        Typed::Configure(self.lines.take().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(lines: &[&str]) -> (Vec<Typed>, String) {
        let mut prompt = Prompt::default();
        let steps = lines.iter().map(|line| prompt.take(Some(line))).filter(|step| *step != Typed::More).collect();
        (steps, prompt.text("leaf0"))
    }

    fn configured(lines: &[&str]) -> Typed {
        Typed::Configure(lines.iter().map(|line| (*line).to_owned()).collect())
    }

    #[test]
    fn commands_are_answered_one_by_one() {
        let (steps, prompt) = typed(&["", "show version", " exit"]);
        assert_eq!(steps, [Typed::Ask("show version".to_owned()), Typed::Leave]);
        assert_eq!(prompt, "leaf0# ");
        assert_eq!(Prompt::default().take(None), Typed::Leave);
    }

    #[test]
    fn lines_come_into_force_together() {
        let (steps, prompt) = typed(&["conf t", "ip route 10.0.0.0/8 Null0"]);
        assert_eq!((steps.len(), prompt.as_str()), (0, "leaf0(config)# "));
        let route = "ipv6 route ::/0 blackhole";
        let (steps, prompt) = typed(&["conf t", route, "do show version", "end"]);
        assert_eq!(steps, [Typed::Ask("do show version".to_owned()), configured(&[route])]);
        assert_eq!(prompt, "leaf0# ");
        // Each level is left by an `exit` of its own.
        let lines = ["segment-routing", "srv6", "static-sids", "sid fcbb:bbbb:1::/48 locator MAIN behavior uN"];
        let out = ["exit", "exit", "exit", "exit"];
        let (steps, _) = typed(&[&["configure terminal"], &lines[..], &out[..]].concat());
        assert_eq!(steps, [configured(&[&lines[..], &out[..3]].concat())]);
        let mut prompt = Prompt::default();
        assert_eq!((prompt.take(Some("conf t")), prompt.take(None)), (Typed::More, configured(&[])));
    }
}
