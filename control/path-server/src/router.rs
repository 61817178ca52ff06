//! The service: the table of routes, and the layers around it (limits, faults, origins, metrics).

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, MatchedPath, Query as AxumQuery, RawPathParams, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, patch, post};
use axum::{Json, Router};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use crate::answers::{NO_PATH, not_found};
use crate::parameters::{Query, Refusal, Values};
use crate::request::RouteRequest;
use crate::routes::{Answers, ROUTES, Route};
use crate::server::{Inner, Shared};
use crate::work::{Client, Watch, Work};
use crate::{extras, faults, openapi, origin, paths, placement};

/// Prefix of the path of every API route.
pub const BASE: &str = "/api/v1";

/// Maximum time in which the body of a request must arrive.
const BODY: Duration = Duration::from_secs(30);

/// Number of bytes of a body that every connection may hold. Longer bodies share the memory for the rest of their
/// bytes.
const SHORT: usize = 64 * 1024;

/// Prefix of the path of every route of one graph.
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
    Router::new()
        .nest(BASE, api)
        .route("/health", only_get(get(health)))
        .route("/openapi.json", only_get(get(|| async { Json(openapi::document()) })))
        .route("/docs", only_get(get(|| async { Html(openapi::page()) })))
        .layer(middleware::from_fn_with_state(shared.clone(), faults::apply))
        .route("/metrics", only_get(get(scrape)))
        .fallback(elsewhere)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(shared.clone(), body_in_time))
        .layer(middleware::from_fn(origin::refuse_foreign_changes))
        .layer(origin::cors())
        .layer(middleware::from_fn_with_state(shared.clone(), observe))
        .with_state(shared)
}

/// Accepts only GET. HEAD is refused, as Jalapeno does.
fn only_get(route: MethodRouter<Shared>) -> MethodRouter<Shared> {
    let refused = || async { ([(header::ALLOW, "GET")], method_not_allowed().await).into_response() };
    route.head(refused).fallback(refused)
}

async fn method_not_allowed() -> Refusal {
    Refusal::Status(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed".to_owned())
}

fn answering(route: &'static Route) -> MethodRouter<Shared> {
    let handler = move |State(shared): State<Shared>, path: RawPathParams, AxumQuery(query): AxumQuery<Query>| async move {
        // The path of a route contains one name or none.
        let name = path.iter().next().map_or("", |(_, name)| name).to_owned();
        beside(shared, move |shared, client| answer(route, shared, &name, &query, client)).await
    };
    let answering = only_get(get(handler));
    match route.answers {
        Answers::Allocating => answering.layer(middleware::from_fn(origin::refuse_foreign)),
        Answers::Reading(_) | Answers::Polled(_) => answering,
    }
}

/// Computes an answer on a thread of its own, so that connections are served meanwhile. Only some requests are
/// processed at a time.
pub async fn beside<T: Send + 'static>(
    shared: Shared,
    answer: impl FnOnce(&Shared, &Watch) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let stopped =
        |why: String| Refusal::Status(StatusCode::INTERNAL_SERVER_ERROR, format!("the search stopped: {why}"));
    let turn = Arc::clone(&shared.searches).acquire_owned().await.map_err(|why| stopped(why.to_string()))?;
    // If the client goes away, this future is dropped, and `client` with it: then the search ends.
    let client = Client::default();
    let watched = client.watch();
    let searching = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        answer(&shared, &watched)
    });
    searching.await.map_err(|why| stopped(why.to_string()))?
}

/// Reads the whole body before the request is answered. So a client that sends nothing occupies its connection, but no
/// permit to be answered. Only some of the requests with a body are answered at a time.
async fn body_in_time(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let (bytes, _room) = match tokio::time::timeout(BODY, whole(&shared, body)).await {
        Ok(Ok(brought)) => brought,
        Ok(Err(refusal)) => return refusal.into_response(),
        Err(_) => {
            let what = format!("no more came for {BODY:?}");
            return Refusal::Status(StatusCode::REQUEST_TIMEOUT, what).into_response();
        }
    };
    let Ok(_turn) = shared.bodies.acquire().await else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    next.run(Request::from_parts(parts, Body::from(bytes))).await
}

/// Reads a body. Returns it with its share of the memory for bodies longer than [`SHORT`].
async fn whole(shared: &Shared, body: Body) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), Refusal> {
    let too_long = || Refusal::Status(StatusCode::PAYLOAD_TOO_LARGE, "too long, or cut".to_owned());
    let (mut bytes, mut room) = (Vec::new(), None::<OwnedSemaphorePermit>);
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| too_long())?;
        let length = bytes.len() + chunk.len();
        if length > placement::MOST_BYTES {
            return Err(too_long());
        }
        let beyond = length.saturating_sub(bytes.len().max(SHORT));
        if beyond > 0 {
            let full = "the bodies of other requests take all memory that bodies may take; send yours again later";
            let full = || Refusal::Status(StatusCode::SERVICE_UNAVAILABLE, full.to_owned());
            let beyond = u32::try_from(beyond).map_err(|_| too_long())?;
            let more = Arc::clone(&shared.room).try_acquire_many_owned(beyond).map_err(|_| full())?;
            match &mut room {
                Some(room) => room.merge(more),
                none => *none = Some(more),
            }
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes, room))
}

/// Redirects a path that ends in a slash to the route without it, as Jalapeno does.
async fn elsewhere(uri: Uri, headers: HeaderMap) -> Response {
    let without = uri.path().strip_suffix('/').filter(|path| is_route(path));
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let Some((path, host)) = without.zip(host) else {
        return (StatusCode::NOT_FOUND, Json(json!({ "detail": "Not Found" }))).into_response();
    };
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, format!("http://{host}{path}{query}"))]).into_response()
}

/// Returns true if Jalapeno has a route with this path.
fn is_route(path: &str) -> bool {
    let fits = |template: &str, path: &str| {
        let (template, path) = (template.split('/'), path.split('/'));
        template.clone().count() == path.clone().count()
            && template.zip(path).all(|(part, written)| part.starts_with('{') && !written.is_empty() || part == written)
    };
    ["/health", "/docs", "/openapi.json"].contains(&path)
        || path.strip_prefix(BASE).is_some_and(|below| ROUTES.iter().any(|route| fits(route.path, below)))
}

fn answer(route: &Route, shared: &Shared, name: &str, query: &Query, client: &Watch) -> Result<Response, Refusal> {
    let values = Values::read(route.parameters, query)?;
    let (edition, work) = (shared.edition, Work::new(client));
    match route.answers {
        Answers::Reading(answer) => {
            let answer = answer(&RouteRequest { store: &shared.read().store, name, values, edition, work })?;
            Ok(Json(answer).into_response())
        }
        Answers::Polled(answer) => {
            let store = &shared.read().store;
            let key = format!("{name} {values:?}");
            let make = || {
                answer(&RouteRequest { store, name, values, edition, work })
                    .map(|answer| Bytes::from(answer.to_string()))
            };
            let body = shared.cache.get_or_make(key, store.version(), make)?;
            Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
        }
        Answers::Allocating => {
            // The search and the booking happen under one lock, so that no increment is lost.
            let mut inner = shared.write();
            let Inner { store, book } = &mut *inner;
            let lightest = paths::lightest(&RouteRequest { store, name, values, edition, work })?;
            let answer = lightest.map_or_else(|| not_found(NO_PATH), |allocation| allocation.write(book, store));
            Ok(Json(answer).into_response())
        }
    }
}

/// Answers `/health` without reading documents, as Jalapeno answers it without asking its database.
async fn health() -> Json<Value> {
    Json(json!({ "status": "healthy", "database_server": "none", "database_name": "srv6d path-server" }))
}

async fn scrape(State(shared): State<Shared>) -> Result<Response, Refusal> {
    let text = beside(shared, |shared, _| {
        let inner = shared.read();
        Ok(shared.metrics.exposition(&inner.store, &inner.book))
    });
    Ok(([(header::CONTENT_TYPE, crate::metrics::OPEN_METRICS)], text.await?).into_response())
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
