//! Evaluates `sonic-cfggen -v EXPRESSION`.

use serde_json::Value;

use crate::config_db::indented;

/// Returns the value of a path like `DEVICE_METADATA.localhost.hwsku` or `DEVICE_METADATA['localhost']['mac']`, as
/// Python would print it. A missing value is the empty text.
pub fn value(document: &Value, expression: &str) -> String {
    let mut place = document;
    for step in steps(expression) {
        let Some(inner) = place.get(&step) else { return String::new() };
        place = inner;
    }
    python(place)
}

/// Splits `a.b['c']["d"]` into `a`, `b`, `c`, `d`.
fn steps(expression: &str) -> Vec<String> {
    let mut steps = Vec::new();
    for part in expression.trim().split('[') {
        match part.split_once(']') {
            Some((quoted, rest)) => {
                steps.push(quoted.trim().trim_matches(['\'', '"']).to_owned());
                steps.extend(names(rest));
            }
            None => steps.extend(names(part)),
        }
    }
    steps
}

fn names(dotted: &str) -> impl Iterator<Item = String> {
    dotted.split('.').filter(|name| !name.is_empty()).map(str::to_owned)
}

fn python(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Null => "None".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Array(elements) => format!("[{}]", elements.iter().map(quoted).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => fields_of(fields.iter().map(|(name, value)| (name.as_str(), quoted(value)))),
    }
}

fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{text}'"),
        other => python(other),
    }
}

/// Returns a row as Python prints a dictionary: `{'action': 'uN'}`.
pub fn fields_of<'a>(fields: impl Iterator<Item = (&'a str, String)>) -> String {
    let fields: Vec<String> = fields.map(|(name, value)| format!("'{name}': {value}")).collect();
    format!("{{{}}}", fields.join(", "))
}

/// Returns a value as JSON, for `--var-json`. A missing value is the empty text.
pub fn json(value: Option<&Value>) -> String {
    value.map(indented).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_dots_or_brackets() {
        let db = serde_json::json!({"DEVICE_METADATA": {"localhost": {"hwsku": "Force10-S6000", "asn": 65100}}});
        assert_eq!(value(&db, "DEVICE_METADATA.localhost.hwsku"), "Force10-S6000");
        assert_eq!(value(&db, "DEVICE_METADATA['localhost'][\"asn\"]"), "65100");
        assert_eq!(value(&db, "DEVICE_METADATA.localhost"), "{'hwsku': 'Force10-S6000', 'asn': 65100}");
        assert_eq!(value(&db, "DEVICE_METADATA.localhost.nothing"), "");
    }
}
