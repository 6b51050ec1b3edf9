//! A stage's key and the rules for its peers: TLS 1.3, both sides prove their stage with a
//! certificate of the deployment's own authority, and no other root counts.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use windlass_wire::assignment::{Identity, stage_name};

use super::NetError;

/// TLS settings of one stage, made once.
#[derive(Clone)]
pub struct StageTls {
    deployment: String,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl StageTls {
    /// Reads the PEM of an assignment.
    pub fn new(deployment: &str, identity: &Identity) -> Result<Self, NetError> {
        let bad = |what: &'static str| {
            move |error: &dyn std::fmt::Display| NetError::Identity { what, reason: error.to_string() }
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(identity.authority.as_bytes())
            .map_err(|e| bad("the authority's certificate")(&e))?;
        roots.add(authority).map_err(|e| bad("the authority's certificate")(&e))?;
        let roots = Arc::new(roots);
        let chain = vec![
            CertificateDer::from_pem_slice(identity.certificate.as_bytes())
                .map_err(|e| bad("the certificate")(&e))?,
        ];
        let key = || PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|e| bad("the key")(&e));

        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|e| bad("the authority's certificate")(&e))?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| bad("TLS 1.3")(&e))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key()?)
            .map_err(|e| bad("the certificate or key")(&e))?;
        // Nobody resumes: a peer that comes back proves itself again.
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| bad("TLS 1.3")(&e))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key()?)
            .map_err(|e| bad("the certificate or key")(&e))?;
        client.resumption = rustls::client::Resumption::disabled();
        Ok(Self { deployment: deployment.to_owned(), server: Arc::new(server), client: Arc::new(client) })
    }

    /// Deployment the identity is bound to.
    pub fn deployment(&self) -> &str {
        &self.deployment
    }

    /// A session that accepts a peer.
    pub fn accept(&self) -> Result<ServerConnection, NetError> {
        ServerConnection::new(self.server.clone()).map_err(|e| NetError::Tls(e.to_string()))
    }

    /// A session that will only talk to `stage` of this deployment.
    pub fn connect(&self, stage: u32) -> Result<ClientConnection, NetError> {
        ClientConnection::new(self.client.clone(), self.name_of(stage)?).map_err(|e| NetError::Tls(e.to_string()))
    }

    /// Checks that a certificate, already verified against the authority, is that of `stage`.
    pub fn check_stage(&self, certificate: &CertificateDer<'_>, stage: u32) -> Result<(), NetError> {
        let name = self.name_of(stage)?;
        webpki::EndEntityCert::try_from(certificate)
            .and_then(|c| c.verify_is_valid_for_subject_name(&name))
            .map_err(|_| NetError::Refused(format!("the peer calls itself stage {stage}; its certificate is of another stage")))
    }

    fn name_of(&self, stage: u32) -> Result<ServerName<'static>, NetError> {
        ServerName::try_from(stage_name(&self.deployment, stage))
            .map_err(|e| NetError::Identity { what: "the deployment's name", reason: e.to_string() })
    }
}
