//! The pages `/openapi.json` and `/docs`, which describe the routes for programs and for people.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::parameters::Parameter;
use crate::router::BASE;
use crate::routes::{ROUTES, Route};

/// A route that Jalapeno does not have.
struct Extra {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    query: &'static [&'static str],
    body: Option<fn() -> Value>,
}

const EXTRAS: [Extra; 7] = [
    Extra {
        method: "delete",
        path: "/graphs/{graph}/shortest_path/load",
        summary: "Gives the newest allocation of a pair back",
        query: &["source", "destination"],
        body: None,
    },
    Extra {
        method: "post",
        path: "/graphs/{graph}/shortest_path/load/reset",
        summary: "Forgets every allocation; all loads are zero",
        query: &[],
        body: None,
    },
    Extra {
        method: "post",
        path: "/graphs/{graph}/placement",
        summary: "Places a job's flows so that the busiest link carries as little as possible; books nothing",
        query: &[],
        body: Some(job),
    },
    Extra {
        method: "get",
        path: "/graphs/{graph}/shortest_path/placed",
        summary: "The path of one pair when all the hosts send to each other and are placed together; books nothing",
        query: &["source", "destination", "hosts"],
        body: None,
    },
    Extra {
        method: "patch",
        path: "/graphs/{graph}/edges/{key}",
        summary: "Takes an edge out, or back in",
        query: &[],
        body: Some(up),
    },
    Extra {
        method: "patch",
        path: "/graphs/{graph}/vertices/{collection}/{key}",
        summary: "Takes a vertex out, or back in",
        query: &[],
        body: Some(up),
    },
    Extra {
        method: "get",
        path: "/graphs/{graph}/events",
        summary: "Server-sent events: one at the beginning, one per change of the topology",
        query: &[],
        body: None,
    },
];

/// Returns the description of the API as `OpenAPI` 3.1.
pub fn document() -> Value {
    let mut paths = Map::new();
    let mut add = |path: &str, method: &str, operation: Value| {
        let methods = paths.entry(format!("{BASE}{path}")).or_insert_with(|| json!({}));
        if let Some(methods) = methods.as_object_mut() {
            methods.insert(method.to_owned(), operation);
        }
    };
    for route in ROUTES {
        add(route.path, "get", get(route));
    }
    for extra in &EXTRAS {
        add(extra.path, extra.method, operation_of(extra));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "srv6d path-server",
            "description": "Paths over a topology file, by Jalapeno's API",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": paths,
        "components": { "schemas": { "Refusal": refusal() } },
    })
}

/// Returns the names in braces.
fn names_in(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn in_path(path: &str) -> Vec<Value> {
    let parameter = |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
    names_in(path).map(parameter).collect()
}

fn in_query(parameter: &Parameter) -> Value {
    let mut schema = Map::from_iter([("type".to_owned(), json!(parameter.type_name()))]);
    if parameter.name == "direction" {
        schema.insert("enum".to_owned(), json!(["outbound", "inbound", "any"]));
    }
    if !parameter.default().is_null() {
        schema.insert("default".to_owned(), parameter.default());
    }
    json!({ "name": parameter.name, "in": "query", "required": parameter.is_required(), "schema": schema })
}

fn get(route: &Route) -> Value {
    let parameters: Vec<Value> = in_path(route.path).into_iter().chain(route.parameters.iter().map(in_query)).collect();
    let mut responses = Map::from_iter([("200".to_owned(), answer("The answer"))]);
    if !route.parameters.is_empty() {
        responses.insert("422".to_owned(), refused("A parameter is missing or of the wrong type"));
    }
    responses.insert("500".to_owned(), refused("Refused inside; the text may be empty"));
    json!({ "summary": route.summary, "parameters": parameters, "responses": responses })
}

fn operation_of(extra: &Extra) -> Value {
    let query = |name: &&str| json!({ "name": name, "in": "query", "required": *name != "hosts", "schema": { "type": "string" } });
    let parameters: Vec<Value> = in_path(extra.path).into_iter().chain(extra.query.iter().map(query)).collect();
    let success = if extra.path.ends_with("/events") {
        json!({ "description": "The events", "content": { "text/event-stream": {} } })
    } else {
        answer("Done")
    };
    let responses = json!({ "200": success, "404": refused("There is none of that name") });
    let Some(schema) = extra.body else {
        return json!({ "summary": extra.summary, "parameters": parameters, "responses": responses });
    };
    let body = json!({ "required": true, "content": { "application/json": { "schema": schema() } } });
    json!({ "summary": extra.summary, "parameters": parameters, "requestBody": body, "responses": responses })
}

/// Returns the schema of a body that switches a vertex or an edge.
fn up() -> Value {
    json!({ "type": "object", "required": ["up"], "properties": { "up": { "type": "boolean" } } })
}

/// Returns the schema of a body with a job to place.
fn job() -> Value {
    let names = json!({ "type": "array", "items": { "type": "string" } });
    let number = json!({ "type": "integer", "minimum": 0 });
    let tenant = json!({
        "type": "object",
        "required": ["name", "hosts"],
        "properties": { "name": { "type": "string" }, "hosts": names, "spines": names, "planes": names },
    });
    json!({
        "type": "object",
        "properties": {
            "pattern": { "type": "string", "enum": ["ring", "all-to-all", "permutation", "list"] },
            "hosts": names,
            "pairs": { "type": "array", "items": {} },
            "demand": number,
            "tenants": { "type": "array", "items": tenant },
            "disjoint": { "type": "array", "items": names },
            "detour": number,
            "seed": number,
            "ecmp_seed": number,
            "flows": number,
        },
    })
}

fn answer(description: &str) -> Value {
    json!({ "description": description, "content": { "application/json": { "schema": {} } } })
}

fn refused(description: &str) -> Value {
    let schema = json!({ "$ref": "#/components/schemas/Refusal" });
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

fn refusal() -> Value {
    let problem = json!({ "type": "object", "properties": {
        "type": { "type": "string" }, "loc": { "type": "array" }, "msg": { "type": "string" },
    } });
    let detail = json!({ "oneOf": [{ "type": "string" }, { "type": "array", "items": problem }] });
    json!({ "type": "object", "required": ["detail"], "properties": { "detail": detail } })
}

/// Returns a page that loads nothing from other servers.
pub fn page() -> String {
    let mut rows = String::new();
    let mut row = |method: &str, path: &str, parameters: &str, summary: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(rows, "<tr><td>{method}<td><code>{BASE}{path}</code><td>{parameters}<td>{summary}</tr>");
    };
    for route in ROUTES {
        let parameters: Vec<String> = route.parameters.iter().map(shown).collect();
        row("GET", route.path, &parameters.join("<br>"), route.summary);
    }
    for extra in &EXTRAS {
        row(&extra.method.to_uppercase(), extra.path, &extra.query.join("<br>"), extra.summary);
    }
    format!(
        "<!doctype html><meta charset=utf-8><title>srv6d path-server</title>\n\
         <style>body{{font:14px sans-serif}}td,th{{text-align:left;vertical-align:top;padding:2px 1em 2px 0}}</style>\n\
         <h1>srv6d path-server</h1><p>For programs: <a href=/openapi.json>openapi.json</a></p>\n\
         <table><tr><th><th>Route<th>Parameters<th></tr>\n{rows}</table>\n"
    )
}

fn shown(parameter: &Parameter) -> String {
    match (parameter.is_required(), parameter.default()) {
        (true, _) => format!("<b>{}</b>", parameter.name),
        (false, Value::Null) => parameter.name.to_owned(),
        (false, default) => format!("{}={}", parameter.name, default.to_string().trim_matches('"')),
    }
}
