//! The table of routes as a service, with what lies beside it.

use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, MatchedPath, Query as AxumQuery, RawPathParams, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, patch, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tower_http::cors::{Any, CorsLayer};

use crate::answers::{NO_PATH, not_found};
use crate::asking::Asking;
use crate::parameters::{Query, Refusal, Values};
use crate::routes::{Answers, ROUTES, Route};
use crate::server::{Inner, Shared};
use crate::{extras, faults, openapi, paths, placement};

/// What every route of the API lies below.
pub const BASE: &str = "/api/v1";

/// What every route of one graph lies below.
const GRAPH: &str = "/graphs/{graph}";

pub fn router(shared: Shared) -> Router {
    let mut api = Router::new();
    for route in ROUTES {
        api = api.route(route.path, answering(route));
    }
    let graph = |below: &str| format!("{GRAPH}{below}");
    let api = api
        .route(&graph("/shortest_path/load"), delete(extras::release))
        .route(&graph("/shortest_path/load/reset"), post(extras::reset))
        .route(&graph("/placement"), post(placement::place).layer(DefaultBodyLimit::max(placement::MOST_BYTES)))
        .route(&graph("/shortest_path/placed"), only_get(get(placement::placed)))
        .route(&graph("/edges/{key}"), patch(extras::switch_edge))
        .route(&graph("/vertices/{collection}/{key}"), patch(extras::switch_vertex))
        .route(&graph("/events"), only_get(get(extras::events)));
    let cors = CorsLayer::new().allow_origin(Any).allow_methods(Any).allow_headers(Any);
    Router::new()
        .nest(BASE, api)
        .route("/health", only_get(get(health)))
        .route("/openapi.json", only_get(get(|| async { Json(openapi::document()) })))
        .route("/docs", only_get(get(|| async { Html(openapi::page()) })))
        .layer(middleware::from_fn_with_state(shared.clone(), faults::apply))
        .route("/metrics", only_get(get(scrape)))
        .fallback(|| async { (StatusCode::NOT_FOUND, Json(json!({ "detail": "Not Found" }))) })
        .method_not_allowed_fallback(method_not_allowed)
        .layer(cors)
        .layer(middleware::from_fn_with_state(shared.clone(), observe))
        .with_state(shared)
}

/// HEAD is refused, as there.
fn only_get(route: MethodRouter<Shared>) -> MethodRouter<Shared> {
    let refused = || async { ([(header::ALLOW, "GET")], method_not_allowed().await).into_response() };
    route.head(refused).fallback(refused)
}

async fn method_not_allowed() -> Refusal {
    Refusal::Status(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed".to_owned())
}

fn answering(route: &'static Route) -> MethodRouter<Shared> {
    let handler = move |State(shared): State<Shared>, path: RawPathParams, AxumQuery(query): AxumQuery<Query>| async move {
        // Routes have one name in their path, or none.
        let name = path.iter().next().map_or("", |(_, name)| name).to_owned();
        answer(route, &shared, &name, &query)
    };
    only_get(get(handler))
}

fn answer(route: &Route, shared: &Shared, name: &str, query: &Query) -> Result<Response, Refusal> {
    let values = Values::read(route.parameters, query)?;
    let edition = shared.edition;
    match route.answers {
        Answers::Reading(answer) => {
            let answer = answer(&Asking { store: &shared.read().store, name, values, edition })?;
            Ok(Json(answer).into_response())
        }
        Answers::Polled(answer) => {
            let store = &shared.read().store;
            let key = format!("{name} {values:?}");
            let make =
                || answer(&Asking { store, name, values, edition }).map(|answer| Bytes::from(answer.to_string()));
            let body = shared.kept.get_or_make(key, store.version(), make)?;
            Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
        }
        Answers::Allocating => {
            // Search and writing are one step: no increment is lost.
            let mut inner = shared.write();
            let Inner { store, book } = &mut *inner;
            let lightest = paths::lightest(&Asking { store, name, values, edition })?;
            let answer = lightest.map_or_else(|| not_found(NO_PATH), |allocation| allocation.write(book, store));
            Ok(Json(answer).into_response())
        }
    }
}

/// Never asks for documents, as there it never asks the database.
async fn health() -> Json<Value> {
    Json(json!({ "status": "healthy", "database_server": "none", "database_name": "srv6d path-server" }))
}

async fn scrape(State(shared): State<Shared>) -> Response {
    let text = {
        let inner = shared.read();
        shared.metrics.exposition(&inner.store, &inner.book)
    };
    ([(header::CONTENT_TYPE, crate::metrics::OPEN_METRICS)], text).into_response()
}

/// Logs and counts every request.
async fn observe(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let (method, target) = (request.method().clone(), request.uri().to_string());
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let begun = Instant::now();
    let response = next.run(request).await;
    let status = response.status();
    if method != Method::GET || !target.starts_with("/metrics") {
        tracing::info!("{method} {target} {}", status.as_u16());
    }
    shared.metrics.answered(&method, route.as_deref(), status, begun.elapsed());
    response
}
