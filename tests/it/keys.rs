//! The keys of a deployment, checked by another library than the one that makes them.

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{RootCertStore, client::WebPkiServerVerifier, server::WebPkiClientVerifier};
use windlass::deploy::keys::mint;
use windlass_wire::assignment::{Identity, stage_name};

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn roots(identity: &Identity) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&identity.authority)).unwrap();
    Arc::new(roots)
}

fn as_server(
    authority: &Identity,
    shown: &Identity,
    name: &str,
    at: UnixTime,
) -> Result<(), String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(authority), provider)
        .build()
        .unwrap();
    verifier
        .verify_server_cert(
            &certificate(&shown.certificate),
            &[],
            &ServerName::try_from(name.to_owned()).unwrap(),
            &[],
            at,
        )
        .map(|_| ())
        .map_err(|error| error.to_string())
}

fn now_plus(hours: i64) -> UnixTime {
    let now = UnixTime::now().as_secs();
    let at = now.checked_add_signed(hours * 3600).unwrap();
    UnixTime::since_unix_epoch(std::time::Duration::from_secs(at))
}

#[test]
fn a_stages_certificate_serves_both_ends_under_its_own_name_only() {
    let stages = mint("demo-7f3a", 3).unwrap();
    assert_eq!(stages.len(), 3);
    for (stage, identity) in stages.iter().enumerate() {
        let own = stage_name("demo-7f3a", stage as u32);
        as_server(&stages[0], identity, &own, UnixTime::now()).unwrap();
        let other = stage_name("demo-7f3a", stage as u32 + 1);
        as_server(&stages[0], identity, &other, UnixTime::now()).unwrap_err();
        let other = stage_name("demo-0000", stage as u32);
        as_server(&stages[0], identity, &other, UnixTime::now()).unwrap_err();

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        WebPkiClientVerifier::builder_with_provider(roots(&stages[0]), provider)
            .build()
            .unwrap()
            .verify_client_cert(&certificate(&identity.certificate), &[], UnixTime::now())
            .unwrap();
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
        rustls::crypto::ring::sign::any_ecdsa_type(&key).unwrap();
    }
    assert_ne!(stages[0].key, stages[1].key);
}

#[test]
fn another_deployments_authority_is_not_trusted() {
    let ours = mint("demo-1", 1).unwrap();
    let theirs = mint("demo-1", 1).unwrap();
    let name = stage_name("demo-1", 0);
    as_server(&ours[0], &theirs[0], &name, UnixTime::now()).unwrap_err();
}

#[test]
fn a_clock_that_is_most_of_a_day_behind_is_no_reason_to_refuse() {
    let stages = mint("demo-1", 1).unwrap();
    let name = stage_name("demo-1", 0);
    as_server(&stages[0], &stages[0], &name, now_plus(-23)).unwrap();
    as_server(&stages[0], &stages[0], &name, now_plus(-25)).unwrap_err();
    // Rebooted hosts rejoin for years.
    as_server(&stages[0], &stages[0], &name, now_plus(9 * 365 * 24)).unwrap();
}

#[test]
fn a_stages_key_cannot_sign_for_another_stage() {
    // A certificate of stage 1 taken as an authority must not be one.
    let stages = mint("demo-1", 2).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&stages[1].certificate)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .unwrap();
    verifier
        .verify_server_cert(
            &certificate(&stages[0].certificate),
            &[],
            &ServerName::try_from(stage_name("demo-1", 0)).unwrap(),
            &[],
            UnixTime::now(),
        )
        .unwrap_err();
}
