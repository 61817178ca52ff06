//! The HTTP client of a controller's task.

use reqwest::{Certificate, ClientBuilder, Url};

/// With the system's certificates for `https`, or with `ca` alone, which are in PEM.
///
/// # Errors
/// `ca` holds no certificate.
pub(crate) fn client(endpoint: &Url, ca: Option<&str>) -> Result<ClientBuilder, String> {
    let is_https = endpoint.scheme() == "https";
    let mut builder = reqwest::Client::builder()
        // The controller is beside the fabric: a proxy of the environment is for other traffic.
        .no_proxy()
        .user_agent(concat!("srv6d/", env!("CARGO_PKG_VERSION")))
        // No redirect leads out of TLS.
        .https_only(is_https)
        // A hundred and more, which take time and memory.
        .tls_built_in_root_certs(is_https && ca.is_none());
    if let Some(pem) = ca {
        let certificates = Certificate::from_pem_bundle(pem.as_bytes()).map_err(|why| format!("ca_file: {why}"))?;
        if certificates.is_empty() {
            return Err("ca_file: there is no certificate in it (BEGIN CERTIFICATE)".to_owned());
        }
        builder = certificates.into_iter().fold(builder, ClientBuilder::add_root_certificate);
    }
    Ok(builder)
}
