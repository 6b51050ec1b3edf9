//! Keys for tests: an authority and stage certificates, as the orchestrator mints them.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use windlass_wire::assignment::{Identity, stage_name};

/// An authority of a test deployment.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    pub fn stage(&self, deployment: &str, stage: u32) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![stage_name(deployment, stage)]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity {
            authority: self.issuer.pem(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}
