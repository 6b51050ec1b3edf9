//! Mints the keys of a deployment: an authority, one certificate per stage, nothing kept of the
//! authority's key. Must not know where the keys are sent.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use thiserror::Error;
use windlass_wire::assignment::{Identity, stage_name};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Certificates begin before they are made: hosts' clocks are wrong by hours where a battery died.
const BACKDATED: Duration = DAY;
/// Ten years. A deployment outlives its controller and rejoins after reboots by itself, so nobody
/// is there to renew; the authority signs nothing else, and the next `up` makes a new one.
const VALID: Duration = Duration::from_secs(3653 * 24 * 60 * 60);

/// Why keys could not be made.
#[derive(Debug, Error)]
#[error("could not make the keys of deployment {deployment}: {source}")]
pub struct KeyError {
    deployment: String,
    source: rcgen::Error,
}

/// Makes one identity for each of `stages` stages of a deployment.
///
/// Every stage gets ECDSA P-256 key and certificate of its own, bound by name to deployment and
/// stage, good for both ends of a connection. The authority's key is wiped before this returns.
///
/// # Errors
/// When the system's random generator fails.
pub fn mint(deployment: &str, stages: u32) -> Result<Vec<Identity>, KeyError> {
    let mut authority_key =
        KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|source| KeyError {
            deployment: deployment.to_owned(),
            source,
        })?;
    let identities = sign_all(deployment, stages, &authority_key).map_err(|source| KeyError {
        deployment: deployment.to_owned(),
        source,
    });
    rcgen_zeroize(&mut authority_key);
    identities
}

fn rcgen_zeroize(key: &mut KeyPair) {
    zeroize::Zeroize::zeroize(key);
}

fn sign_all(
    deployment: &str,
    stages: u32,
    authority_key: &KeyPair,
) -> Result<Vec<Identity>, rcgen::Error> {
    let now = SystemTime::now();
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name = named(&format!("windlass deployment {deployment}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + VALID).into();
    let authority = params.self_signed(authority_key)?.pem();
    let issuer = Issuer::from_params(&params, authority_key);

    let mut identities = Vec::new();
    for stage in 0..stages {
        let name = stage_name(deployment, stage);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::new(vec![name.clone()])?;
        params.distinguished_name = named(&name);
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + VALID).into();
        identities.push(Identity {
            authority: authority.clone(),
            certificate: params.signed_by(&key, &issuer)?.pem(),
            key: key.serialize_pem(),
        });
    }
    Ok(identities)
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}
