//! The HTTP client of a controller's task. Every answer is limited in size and time, and all answers that are being
//! read share one limit on memory.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::{Attempt, Policy};
use reqwest::{Certificate, Method, RequestBuilder, StatusCode, Url};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::failure::Failure;
use crate::snapshot::Cause;
use srv6d_text::shown;

/// Default limit on the bytes of answers that are held at a time: 32 MiB, which a topology of a hundred thousand links
/// needs.
pub const MAX_ANSWER: usize = 32 * 1024 * 1024;
/// Maximum number of bytes that are read of an error's body; more is not needed to report the error.
const MAX_ERROR: usize = 64 * 1024;
/// Limit in bytes up to which an answer is parsed on the current thread. A larger one is parsed on a thread for
/// blocking work.
const SMALL: usize = 64 * 1024;
/// Maximum number of redirects within one host that are followed.
const MAX_REDIRECTS: usize = 3;
/// Maximum number of attempts at an idempotent request whose connection the server closes.
const ATTEMPTS: usize = 3;

/// Settings of a client.
#[derive(Clone, Copy, Debug)]
pub struct Options<'s> {
    /// CA certificates (PEM) for an `https` endpoint; `None` means those of the system.
    pub ca: Option<&'s str>,
    /// Maximum time for making a connection.
    pub connect_timeout: Duration,
    /// Maximum number of bytes of answers that are held at a time.
    pub max_answer: usize,
}

/// Whether a request may be sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The request has no side effects. It is sent again at once if the server has closed the connection.
    Safe,
    /// The request has side effects at the server. It is sent once, over a connection of its own.
    Never,
}

/// An HTTP client with limits on size, time and memory.
#[derive(Clone, Debug)]
pub struct Http {
    pooled: reqwest::Client,
    /// Client that makes a new connection for every request, because the server may be closing an idle one.
    single: reqwest::Client,
    /// Number of bytes that further answers may use.
    budget: Arc<Semaphore>,
    max_answer: usize,
}

impl Http {
    /// Creates a client for one endpoint.
    ///
    /// # Errors
    /// If `ca` does not contain a certificate.
    pub fn new(endpoint: &Url, options: Options<'_>) -> Result<Self, String> {
        Ok(Self {
            pooled: client(endpoint, options, 8)?,
            single: client(endpoint, options, 0)?,
            budget: Arc::new(Semaphore::new(options.max_answer)),
            max_answer: options.max_answer,
        })
    }

    /// Sends a request and reads its answer, whatever its status, until `deadline`.
    ///
    /// # Errors
    /// If there is no answer in time, no connection, or if the answer exceeds the limit.
    pub async fn ask(
        &self,
        (method, url): (Method, Url),
        body: Option<&Value>,
        repeat: Repeat,
        deadline: Instant,
    ) -> Result<HttpAnswer, Failure> {
        let text = url.to_string();
        let asked = timeout_at(deadline, self.exchange((method, url), body, repeat)).await;
        asked.unwrap_or_else(|_| Err(late(&text)))
    }

    async fn exchange(
        &self,
        (method, url): (Method, Url),
        body: Option<&Value>,
        repeat: Repeat,
    ) -> Result<HttpAnswer, Failure> {
        let text = url.to_string();
        let client = if repeat == Repeat::Safe { &self.pooled } else { &self.single };
        let mut attempts = if repeat == Repeat::Safe { ATTEMPTS } else { 1 };
        loop {
            attempts -= 1;
            let mut request: RequestBuilder = client.request(method.clone(), url.clone());
            if let Some(body) = body {
                request = request.json(body);
            }
            match request.send().await {
                Ok(response) => return self.read(text, response).await,
                Err(why) if attempts > 0 && is_closed(&why) => {}
                Err(why) => return Err(transport(&text, &why)),
            }
        }
    }

    /// Opens a stream of events. Returns `None` if the server has none, or does not answer in time.
    pub async fn stream(&self, url: Url, deadline: Instant) -> Option<reqwest::Response> {
        let sent = timeout_at(deadline, self.single.get(url).send()).await.ok()?.ok()?;
        sent.status().is_success().then_some(sent)
    }

    async fn read(&self, url: String, mut response: reqwest::Response) -> Result<HttpAnswer, Failure> {
        let status = response.status();
        let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let controller = response.remote_addr().map(|address| address.ip());
        let mut held = Held { bytes: Vec::new(), permit: None };
        while let Some(chunk) = response.chunk().await.map_err(|why| transport(&url, &why))? {
            if !status.is_success() && held.bytes.len() + chunk.len() > MAX_ERROR {
                break;
            }
            self.hold(&mut held, &chunk).map_err(|why| Failure::new(Cause::Body, format!("{url}: {why}")))?;
        }
        Ok(HttpAnswer { url, status, retry_after: retry_after.map(Duration::from_secs), controller, held })
    }

    fn hold(&self, held: &mut Held, chunk: &[u8]) -> Result<(), String> {
        let bound = || format!("{} MiB (max_answer)", self.max_answer / (1024 * 1024));
        if held.bytes.len() + chunk.len() > self.max_answer {
            return Err(format!("the answer is larger than {}", bound()));
        }
        let bytes = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        let Ok(more) = Arc::clone(&self.budget).try_acquire_many_owned(bytes) else {
            return Err(format!("the answers that are being read are together larger than {}", bound()));
        };
        match &mut held.permit {
            Some(permit) => permit.merge(more),
            none => *none = Some(more),
        }
        held.bytes.extend_from_slice(chunk);
        Ok(())
    }
}

/// A body, and the part of the memory limit that it uses.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    permit: Option<OwnedSemaphorePermit>,
}

/// A complete answer, whatever its status.
#[derive(Debug)]
pub struct HttpAnswer {
    /// URL of the request.
    pub url: String,
    /// HTTP status.
    pub status: StatusCode,
    /// Time for which the server asks clients to send no requests (`Retry-After`).
    pub retry_after: Option<Duration>,
    /// Address of the server that answered.
    pub controller: Option<std::net::IpAddr>,
    held: Held,
}

impl HttpAnswer {
    /// Returns the body. The body of an error may be cut.
    pub fn bytes(&self) -> &[u8] {
        &self.held.bytes
    }

    /// Parses the body. A large body is parsed on another thread. The memory that it uses is released when parsing has
    /// ended, even if nobody waits for the result any more.
    ///
    /// # Errors
    /// If `parse` refuses the body, or has not ended at `deadline`.
    pub async fn parse<T: Send + 'static>(
        self,
        deadline: Instant,
        parse: impl FnOnce(&[u8]) -> serde_json::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let Self { url, held, .. } = self;
        let parsed = if held.bytes.len() <= SMALL {
            parse(&held.bytes)
        } else {
            let parsing = tokio::task::spawn_blocking(move || {
                let parsed = parse(&held.bytes);
                drop(held);
                parsed
            });
            match timeout_at(deadline, parsing).await {
                Err(_) => return Err(late(&url)),
                Ok(Err(why)) => return Err(Failure::new(Cause::Body, format!("{url}: {why}"))),
                Ok(Ok(parsed)) => parsed,
            }
        };
        parsed.map_err(|why| Failure::new(Cause::Body, format!("{url}: {}", words_of(&why))))
    }
}

fn words_of(why: &serde_json::Error) -> String {
    let why_text = shown(&why.to_string());
    if why.is_data() { why_text } else { format!("not JSON: {why_text}") }
}

/// Creates a client for one endpoint that keeps at most `idle` idle connections.
fn client(endpoint: &Url, options: Options<'_>, idle: usize) -> Result<reqwest::Client, String> {
    let is_https = endpoint.scheme() == "https";
    let mut builder = reqwest::Client::builder()
        // The controller is close to the fabric: a proxy of the environment is for other traffic.
        .no_proxy()
        .user_agent(concat!("srv6d/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(options.connect_timeout)
        .pool_max_idle_per_host(idle)
        .redirect(Policy::custom(redirect))
        // A redirect must not lead from `https` to `http`.
        .https_only(is_https)
        // The system has more than a hundred certificates, which take time and memory to load.
        .tls_built_in_root_certs(is_https && options.ca.is_none());
    if let Some(pem) = options.ca {
        let certificates = Certificate::from_pem_bundle(pem.as_bytes()).map_err(|why| format!("ca_file: {why}"))?;
        if certificates.is_empty() {
            return Err("ca_file: there is no certificate in it (BEGIN CERTIFICATE)".to_owned());
        }
        builder = certificates.into_iter().fold(builder, reqwest::ClientBuilder::add_root_certificate);
    }
    builder.build().map_err(|why| innermost(&why))
}

/// Follows a redirect only to another path of the same host and port, which a missing or trailing slash can cause.
fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let place = |url: &Url| (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default());
    let stays = attempt.previous().first().is_some_and(|first| place(first) == place(attempt.url()));
    if attempt.previous().len() > MAX_REDIRECTS {
        return attempt.error("redirected again and again");
    }
    if stays {
        return attempt.follow();
    }
    let elsewhere = shown(attempt.url().as_str());
    attempt.error(format!("redirected to {elsewhere}, which is another server: name that as `endpoint` if it is right"))
}

/// Returns whether an existing connection was closed, for example by a server that closes it after each answer.
fn is_closed(why: &reqwest::Error) -> bool {
    why.is_request() && !why.is_connect() && !why.is_timeout() && !why.is_redirect()
}

fn late(url: &str) -> Failure {
    Failure::new(Cause::Timeout, format!("{url}: no answer in time"))
}

fn transport(url: &str, why: &reqwest::Error) -> Failure {
    let (cause, what) = if why.is_timeout() {
        (Cause::Timeout, "no answer in time".to_owned())
    } else if why.is_body() || why.is_decode() {
        (Cause::Body, "the answer was cut off".to_owned())
    } else if why.is_redirect() {
        (Cause::Refused, innermost(why))
    } else {
        (Cause::Connect, innermost(why))
    };
    Failure { is_unsent: why.is_connect(), ..Failure::new(cause, format!("{url}: {what}")) }
}

/// Returns the text of the innermost error, which is usually the system's. The outer errors only repeat the URL.
pub fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
