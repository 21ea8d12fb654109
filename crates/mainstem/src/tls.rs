//! TLS: certificate, key and trusted authorities from files, checked at the start and read again on SIGHUP. Connections that are there
//! keep what they began with.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Certificates of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Not asked for.
    #[default]
    None,
    /// Verified where there is one.
    Optional,
    /// Nobody comes in without.
    Required,
}

impl fmt::Display for ClientCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Optional => "optional",
            Self::Required => "required",
        })
    }
}

/// What of a client's certificate is the name of its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoginFrom {
    /// All of its subject, as RFC 4514 writes it.
    #[default]
    DistinguishedName,
    /// The common name in its subject.
    CommonName,
}

/// Where everything is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Present unless clients show no certificates.
    pub ca: Option<PathBuf>,
    pub clients: ClientCertificates,
    pub login_from: LoginFrom,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Not there, or no PEM.
    #[error("{flag} {path}: {reason}")]
    File {
        /// Which setting names it.
        flag: &'static str,
        path: String,
        reason: String,
    },
    /// Key and certificate, which do not belong together, or are of a kind that is not known.
    #[error("--tls-certificate {certificate} and --tls-key {key}: {source}")]
    Pair { certificate: String, key: String, source: rustls::Error },
}

/// Files that were read again and can be used.
pub struct Loaded(Arc<ServerConfig>);

/// TLS as new connections have it.
pub struct Tls {
    files: TlsFiles,
    current: RwLock<Arc<ServerConfig>>,
}

fn unusable(flag: &'static str, path: &Path, reason: impl fmt::Display) -> TlsError {
    TlsError::File { flag, path: path.display().to_string(), reason: reason.to_string() }
}

fn explain(error: pem::Error, what: &str) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => format!("the file has no {what} in PEM"),
        other => format!("the file is no PEM: {other:?}"),
    }
}

fn certificates(flag: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let refuse = |error| unusable(flag, path, explain(error, "certificate"));
    let all: Vec<_> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(refuse)?;
    if all.is_empty() { Err(refuse(pem::Error::NoItemsFound)) } else { Ok(all) }
}

impl TlsFiles {
    fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(default_provider());
        let chain = certificates("--tls-certificate", &self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|error| unusable("--tls-key", &self.key, explain(error, "private key")))?;
        let pair = |source| TlsError::Pair { certificate: self.certificate.display().to_string(), key: self.key.display().to_string(), source };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().map_err(pair)?;
        let builder = match (&self.ca, self.clients) {
            (None, _) | (_, ClientCertificates::None) => builder.with_no_client_auth(),
            (Some(path), wanted) => {
                let mut roots = RootCertStore::empty();
                for one in certificates("--tls-ca", path)? {
                    roots.add(one).map_err(|error| unusable("--tls-ca", path, error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if wanted == ClientCertificates::Optional { verifier.allow_unauthenticated() } else { verifier };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| unusable("--tls-ca", path, error))?)
            }
        };
        Ok(Arc::new(builder.with_single_cert(chain, key).map_err(pair)?))
    }
}

impl Tls {
    /// # Errors
    /// The first file that cannot be used.
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let current = RwLock::new(files.load()?);
        Ok(Self { files, current })
    }

    /// Reads the files again, and changes nothing yet.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn load(&self) -> Result<Loaded, TlsError> {
        self.files.load().map(Loaded)
    }

    /// New connections have this from now on.
    pub fn put(&self, Loaded(loaded): Loaded) {
        *self.current.write().expect("nobody panics with it") = loaded;
    }

    /// For a new connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().expect("nobody panics with it"))
    }

    /// What of a certificate is a user's name.
    pub fn login_from(&self) -> LoginFrom {
        self.files.login_from
    }
}
