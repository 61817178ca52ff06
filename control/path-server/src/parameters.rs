//! Query parameters. Each route declares its parameters, and they are read in that order. Missing values and wrong
//! types are answered as Jalapeno does.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::store::Direction;

/// Parameters of one request as written. If a name occurs several times, the last value counts.
pub type Query = BTreeMap<String, String>;

/// Type of a parameter, with its default.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A text that the request must have.
    Required,
    /// A text.
    Text(Option<&'static str>),
    /// A whole number.
    Integer(Option<i64>),
    /// `true` or `false`.
    Boolean(Option<bool>),
}

/// One parameter of a route.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
}

/// Short forms of constructors for the tables of routes.
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
    /// Returns the type as `OpenAPI` and the messages name it.
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

    /// Converts a written value, if it has the right type.
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

/// Parsed parameters of one request.
#[derive(Debug, Default)]
pub struct Values(BTreeMap<&'static str, Value>);

impl Values {
    /// Reads the declared parameters. If some are wrong, all of them are named in the refusal. Undeclared parameters
    /// are ignored.
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

    /// Returns a text that is required or has a default.
    pub fn text(&self, name: &str) -> &str {
        self.written(name).unwrap_or_default()
    }

    /// Returns an optional text.
    pub fn written(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// Returns an integer.
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.0.get(name).and_then(Value::as_i64)
    }

    /// Returns a Boolean value.
    pub fn boolean(&self, name: &str) -> Option<bool> {
        self.0.get(name).and_then(Value::as_bool)
    }

    /// Returns a maximum number of entries. Both 0 and a missing value mean all. The database refuses negative values.
    pub fn limit(&self, name: &str) -> Result<usize, Refusal> {
        match self.integer(name) {
            None | Some(0) => Ok(usize::MAX),
            Some(limit) => count(limit),
        }
    }

    /// Returns a number that the API puts into the query text without a check.
    pub fn count(&self, name: &str) -> Result<usize, Refusal> {
        count(self.integer(name).unwrap_or(0))
    }
}

fn count(number: i64) -> Result<usize, Refusal> {
    usize::try_from(number)
        .map_err(|_| Refusal::Internal(format!("the database refuses {number} as a number of entries")))
}

/// The answer of a route: its JSON, or an error.
pub type Answer = Result<Value, Refusal>;

/// An error answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// Status 422, with the parameters that are missing or of the wrong type.
    Parameters(Vec<Value>),
    /// Status 500 with a text, which is often empty.
    Internal(String),
    /// Any other status, with a text.
    Status(StatusCode, String),
}

impl Refusal {
    /// Returns an inner error that the API catches and raises again without its text.
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

/// Parses `direction`. Returns `None` if it is none of the three.
pub fn direction(text: &str) -> Option<Direction> {
    match text.to_ascii_lowercase().as_str() {
        "outbound" => Some(Direction::Outbound),
        "inbound" => Some(Direction::Inbound),
        "any" => Some(Direction::Any),
        _ => None,
    }
}
