//! Requests to a collector. Each takes no longer than it may, on a connection of its own; an answer has at most [`ANSWER_BYTES_MAX`]. Redirections
//! are not followed and no proxy is asked. For `https` those certificates count that a file names, otherwise those that the machine
//! trusts (`SSL_CERT_FILE` names others).

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use ureq::http::Uri;
use ureq::http::uri::Authority;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Why what was sent is not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// It did not get there, or nothing came back.
    #[error("{0}")]
    Unreachable(String),
    /// The answer is another than one of success.
    #[error("it answers {0}")]
    Refused(u16),
    /// A part of it is not taken.
    #[error("{0} values are not taken: {1}")]
    Rejected(u64, String),
}

/// Who is asked.
#[derive(Debug)]
pub struct Endpoint {
    shown: String,
    address: Uri,
    agent: ureq::Agent,
}

/// Certificates of a file, or those that the machine trusts.
fn trusted(file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = match file {
        "" => rustls_native_certs::load_native_certs().certs,
        path => {
            let refuse = |error: &dyn Display| format!("certificates of {path}: {error}");
            let all = CertificateDer::pem_file_iter(path).map_err(|error| refuse(&error))?;
            all.collect::<Result<_, _>>().map_err(|error| refuse(&error))?
        }
    };
    match (found.is_empty(), file) {
        (false, _) => Ok(found),
        (true, "") => Err("this machine trusts nobody's certificates: name a file of them".to_owned()),
        (true, path) => Err(format!("{path} has no certificate in PEM")),
    }
}

impl Endpoint {
    /// From an address like `https://collector.example:4318/base`, a path below it, and a PEM file of whose certificates are trusted.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(base: &str, below: &str, certificate: &str) -> Result<Self, String> {
        let expected = || "it is an address like http://collector.example:4318".to_owned();
        let whole: Uri = format!("{}/{below}", base.trim_end_matches('/')).parse().map_err(|_| expected())?;
        let is_encrypted = whole.scheme_str() == Some("https");
        if !matches!(whole.scheme_str(), Some("http" | "https"))
            || whole.host().is_none_or(str::is_empty)
            || whole.query().is_some()
        {
            return Err(expected());
        }
        if whole.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(
                "an address is shown to those who may see settings, so it has no password in it: headers are for that"
                    .to_owned(),
            );
        }
        // What stands behind the last colon outside of brackets is a number.
        let has_colon =
            |authority: &Authority| authority.as_str().rsplit(']').next().is_some_and(|rest| rest.contains(':'));
        if whole.authority().is_some_and(|authority| has_colon(authority) && authority.port_u16().is_none()) {
            return Err(expected());
        }
        let mut agent =
            ureq::Agent::config_builder().https_only(is_encrypted).max_redirects(0).proxy(None).max_idle_connections(0);
        agent = agent.user_agent(concat!("mainstem/", env!("CARGO_PKG_VERSION")));
        if is_encrypted {
            let roots = RootCerts::from(trusted(certificate)?.iter().map(|one| Certificate::from_der(one).to_owned()));
            agent = agent.tls_config(
                TlsConfig::builder()
                    .root_certs(roots)
                    .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
                    .build(),
            );
        } else if !certificate.is_empty() {
            return Err("there is a certificate to trust, and the address does not begin with https".to_owned());
        }
        Ok(Self { shown: base.to_owned(), address: whole, agent: agent.build().into() })
    }

    /// For logs.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Sends a body; what is answered with a status of success.
    ///
    /// # Errors
    /// Why it did not get there, or another status.
    pub fn post(
        &self,
        headers: &[(String, String)],
        content_type: &str,
        body: &[u8],
        timeout: Duration,
    ) -> Result<Vec<u8>, Trouble> {
        let mut request = self
            .agent
            .post(self.address.clone())
            .config()
            .timeout_global(Some(timeout))
            .build()
            .content_type(content_type);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let answer = request
            .send(body)
            .and_then(|mut answer| answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec());
        answer.map_err(|error| match error {
            ureq::Error::StatusCode(status) => Trouble::Refused(status),
            ureq::Error::Timeout(_) => Trouble::Unreachable("it takes too long".to_owned()),
            other => Trouble::Unreachable(other.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    fn of(base: &str) -> Result<String, String> {
        Endpoint::of(base, "v1/metrics", "").map(|one| one.address.to_string())
    }

    #[test]
    fn addresses_are_read_or_refused() {
        assert_eq!(of("http://collector:4318"), Ok("http://collector:4318/v1/metrics".to_owned()));
        assert_eq!(of("http://[::1]:4318/base/"), Ok("http://[::1]:4318/base/v1/metrics".to_owned()));
        for wrong in [
            "collector:4318",
            "ftp://c",
            "http://",
            "http://c:port",
            "http://user:secret@c",
            "http://c/a b",
            "http://c?a",
        ] {
            let refused = of(wrong).expect_err(wrong);
            assert!(!refused.contains("secret"), "{refused}");
        }
        assert!(
            Endpoint::of("http://c", "v1/metrics", "ca.pem").is_err()
                && Endpoint::of("https://c", "v1/metrics", "no such file").is_err()
        );
    }

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let base = format!("http://{}", listener.local_addr().expect("an address"));
        let endpoint = Endpoint::of(&base, "v1/metrics", "").expect("an endpoint");
        let begin = Instant::now();
        let outcome = endpoint.post(&[], "text/plain", &[0; 1 << 20], Duration::from_millis(150));
        assert_eq!(outcome, Err(Trouble::Unreachable("it takes too long".to_owned())));
        assert!(begin.elapsed() < Duration::from_secs(60));
        drop(listener);
        let refused = endpoint.post(&[], "text/plain", b"", Duration::from_secs(5));
        assert!(matches!(refused, Err(Trouble::Unreachable(_))), "{refused:?}");
    }
}
