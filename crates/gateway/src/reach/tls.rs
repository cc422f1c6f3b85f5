//! The certificate that a gateway serves with: read from files, and read again while it serves.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// A certificate chain and its key, in use.
#[derive(Debug)]
pub struct Tls {
    /// What new connections are served with. Those that are open keep what they began with.
    current: RwLock<Arc<ServerConfig>>,
}

/// Why a certificate cannot be served with. Each names the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {why}; it must exist and be readable by the user that runs the gateway")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: std::io::Error,
    },
    /// A file holds something else.
    #[error("{path} holds no {what}: {why}; it must be a PEM file with one")]
    NotPem {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The two do not belong together, or cannot be used.
    #[error("the certificate in {certificate} cannot be used with the key in {key}: {why}")]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong with them.
        why: rustls::Error,
    },
}

impl Tls {
    /// Reads a PEM certificate chain, the gateway's own certificate first, and its PEM key.
    ///
    /// # Errors
    /// Which file is wrong, and how.
    pub fn load(certificate: &Path, key: &Path) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self { current: RwLock::new(read(certificate, key)?) }))
    }

    /// Serves new connections with what the files hold now. When they cannot be used, everything stays as it was.
    ///
    /// # Errors
    /// Which file is wrong, and how.
    pub fn reload(&self, certificate: &Path, key: &Path) -> Result<(), TlsError> {
        let fresh = read(certificate, key)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)).into()
    }
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let not_pem = |path: &Path, what, error| match error {
        pem::Error::Io(why) => TlsError::Unreadable { path: path.to_owned(), why },
        pem::Error::NoItemsFound => {
            TlsError::NotPem { path: path.to_owned(), what, why: "there is none in it".to_owned() }
        }
        error => TlsError::NotPem { path: path.to_owned(), what, why: error.to_string() },
    };
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| not_pem(certificate, "certificate", error))?;
    if chain.is_empty() {
        return Err(not_pem(certificate, "certificate", pem::Error::NoItemsFound));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| not_pem(key, "private key", error))?;
    let built = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
    let mut config = built.map_err(|why| TlsError::Unusable {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        why,
    })?;
    // The one protocol that is spoken here.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
