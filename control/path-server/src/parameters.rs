//! Query parameters, and the answers to those that are missing or of the wrong type.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::search::Direction;

/// Parameters of one request; of several of one name the last counts.
pub type Query = BTreeMap<String, String>;

/// An answer that is no success.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// 422: what is missing or of the wrong type.
    Parameters(Vec<Value>),
    /// 500 with a text, which is empty more often than not.
    Internal(String),
    /// A status of its own.
    Status(StatusCode, String),
}

impl Refusal {
    /// An inner error that the API catches and raises again without its text.
    pub const fn swallowed() -> Self {
        Self::Internal(String::new())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, detail) = match self {
            Self::Parameters(problems) => (StatusCode::UNPROCESSABLE_ENTITY, json!(problems)),
            Self::Internal(text) => (StatusCode::INTERNAL_SERVER_ERROR, json!(text)),
            Self::Status(status, text) => (status, json!(text)),
        };
        (status, Json(json!({ "detail": detail }))).into_response()
    }
}

/// Reads parameters, and collects every problem before it refuses.
pub struct Parameters<'q> {
    query: &'q Query,
    problems: Vec<Value>,
}

impl<'q> Parameters<'q> {
    pub const fn new(query: &'q Query) -> Self {
        Self { query, problems: Vec::new() }
    }

    /// A text that must be there.
    pub fn required(&mut self, name: &str) -> &'q str {
        let Some(value) = self.query.get(name) else {
            self.problem("missing", name, "Field required", &Value::Null);
            return "";
        };
        value
    }

    /// A text that may be left out.
    pub fn text(&self, name: &str) -> Option<&'q str> {
        self.query.get(name).map(String::as_str)
    }

    /// A whole number.
    pub fn integer(&mut self, name: &str, default: i64) -> i64 {
        match self.query.get(name).map(|text| (text, text.trim().parse())) {
            None => default,
            Some((_, Ok(number))) => number,
            Some((text, Err(_))) => {
                let message = "Input should be a valid integer, unable to parse string as an integer";
                self.problem("int_parsing", name, message, &json!(text));
                default
            }
        }
    }

    /// A truth value.
    pub fn boolean(&mut self, name: &str, default: bool) -> bool {
        match self.query.get(name).map(|text| (text, text.to_ascii_lowercase())) {
            None => default,
            Some((_, word)) if matches!(word.as_str(), "1" | "true" | "t" | "yes" | "y" | "on") => true,
            Some((_, word)) if matches!(word.as_str(), "0" | "false" | "f" | "no" | "n" | "off") => false,
            Some((text, _)) => {
                let message = "Input should be a valid boolean, unable to interpret input";
                self.problem("bool_parsing", name, message, &json!(text));
                default
            }
        }
    }

    fn problem(&mut self, kind: &str, name: &str, message: &str, input: &Value) {
        let url = format!("https://errors.pydantic.dev/2.4/v/{kind}");
        self.problems.push(json!({
            "type": kind, "loc": ["query", name], "msg": message, "input": input, "url": url
        }));
    }

    /// Refuses if anything was wrong.
    pub fn finish(self) -> Result<(), Refusal> {
        if self.problems.is_empty() { Ok(()) } else { Err(Refusal::Parameters(self.problems)) }
    }
}

/// `direction`; anything but the three is refused without a word, as by the API.
pub fn direction(text: Option<&str>) -> Result<Direction, Refusal> {
    match text.unwrap_or("outbound").to_ascii_lowercase().as_str() {
        "outbound" => Ok(Direction::Outbound),
        "inbound" => Ok(Direction::Inbound),
        "any" => Ok(Direction::Any),
        _ => Err(Refusal::swallowed()),
    }
}
