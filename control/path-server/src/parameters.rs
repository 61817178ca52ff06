//! Query parameters: declared once per route, read in that order, and the answers to what is missing or of the wrong
//! type.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::store::Direction;

/// Parameters of one request as written; of several of one name the last counts.
pub type Query = BTreeMap<String, String>;

/// What a parameter is, and what it is when left out.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A text that must be there.
    Required,
    /// A text.
    Text(Option<&'static str>),
    /// A whole number.
    Integer(Option<i64>),
    /// A truth value.
    Boolean(Option<bool>),
}

/// One parameter of a route.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
}

/// Short forms for tables of routes.
pub const fn required(name: &'static str) -> Parameter {
    Parameter { name, kind: Kind::Required }
}

pub const fn text(name: &'static str, default: Option<&'static str>) -> Parameter {
    Parameter { name, kind: Kind::Text(default) }
}

pub const fn integer(name: &'static str, default: Option<i64>) -> Parameter {
    Parameter { name, kind: Kind::Integer(default) }
}

pub const fn boolean(name: &'static str, default: Option<bool>) -> Parameter {
    Parameter { name, kind: Kind::Boolean(default) }
}

impl Parameter {
    /// Type as `OpenAPI` and the messages call it.
    pub const fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Required | Kind::Text(_) => "string",
            Kind::Integer(_) => "integer",
            Kind::Boolean(_) => "boolean",
        }
    }

    pub const fn is_required(&self) -> bool {
        matches!(self.kind, Kind::Required)
    }

    pub fn default(&self) -> Value {
        match self.kind {
            Kind::Required => Value::Null,
            Kind::Text(default) => json!(default),
            Kind::Integer(default) => json!(default),
            Kind::Boolean(default) => json!(default),
        }
    }

    /// The value of what was written.
    fn read(&self, written: &str) -> Option<Value> {
        match self.kind {
            Kind::Required | Kind::Text(_) => Some(json!(written)),
            Kind::Integer(_) => written.parse::<i64>().ok().map(Value::from),
            Kind::Boolean(_) => match written.to_ascii_lowercase().as_str() {
                "1" | "true" | "t" | "yes" | "y" | "on" => Some(json!(true)),
                "0" | "false" | "f" | "no" | "n" | "off" => Some(json!(false)),
                _ => None,
            },
        }
    }

    fn wrong(&self, written: &str) -> Value {
        let (kind, message) = match self.kind {
            Kind::Boolean(_) => ("bool_parsing", "Input should be a valid boolean, unable to interpret input"),
            _ => ("int_parsing", "Input should be a valid integer, unable to parse string as an integer"),
        };
        problem(kind, self.name, message, &json!(written))
    }
}

fn problem(kind: &str, name: &str, message: &str, input: &Value) -> Value {
    let url = format!("https://errors.pydantic.dev/2.4/v/{kind}");
    json!({ "type": kind, "loc": ["query", name], "msg": message, "input": input, "url": url })
}

/// The parameters of one request, read.
#[derive(Debug, Default)]
pub struct Values(BTreeMap<&'static str, Value>);

impl Values {
    /// Reads what is declared, and collects every problem before it refuses. What is not declared is passed over.
    pub fn read(declared: &[Parameter], query: &Query) -> Result<Self, Refusal> {
        let (mut values, mut problems) = (BTreeMap::new(), Vec::new());
        for parameter in declared {
            match query.get(parameter.name) {
                None if parameter.is_required() => {
                    problems.push(problem("missing", parameter.name, "Field required", &Value::Null));
                }
                None => drop(values.insert(parameter.name, parameter.default())),
                Some(written) => match parameter.read(written) {
                    Some(value) => drop(values.insert(parameter.name, value)),
                    None => problems.push(parameter.wrong(written)),
                },
            }
        }
        if problems.is_empty() { Ok(Self(values)) } else { Err(Refusal::Parameters(problems)) }
    }

    /// A text that is required or has a default.
    pub fn text(&self, name: &str) -> &str {
        self.written(name).unwrap_or_default()
    }

    /// A text that may be left out.
    pub fn written(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// A whole number.
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.0.get(name).and_then(Value::as_i64)
    }

    /// A truth value.
    pub fn boolean(&self, name: &str) -> Option<bool> {
        self.0.get(name).and_then(Value::as_bool)
    }

    /// A number of entries, of which 0 and absence mean all; negative ones are the database's to refuse.
    pub fn limit(&self, name: &str) -> Result<usize, Refusal> {
        match self.integer(name) {
            None | Some(0) => Ok(usize::MAX),
            Some(limit) => count(limit),
        }
    }

    /// A number that goes into the query text as it is.
    pub fn count(&self, name: &str) -> Result<usize, Refusal> {
        count(self.integer(name).unwrap_or(0))
    }
}

fn count(number: i64) -> Result<usize, Refusal> {
    usize::try_from(number)
        .map_err(|_| Refusal::Internal(format!("the database refuses {number} as a number of entries")))
}

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

    pub const fn not_found(text: String) -> Self {
        Self::Status(StatusCode::NOT_FOUND, text)
    }

    pub const fn bad_request(text: String) -> Self {
        Self::Status(StatusCode::BAD_REQUEST, text)
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

/// `direction`; `None`: none of the three.
pub fn direction(text: &str) -> Option<Direction> {
    match text.to_ascii_lowercase().as_str() {
        "outbound" => Some(Direction::Outbound),
        "inbound" => Some(Direction::Inbound),
        "any" => Some(Direction::Any),
        _ => None,
    }
}
