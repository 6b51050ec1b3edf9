//! Who may use the API over TCP: those with the key, or, without one, those who came here on purpose.
//!
//! Without a key the API listens on loopback only. A page in a browser on the same machine can
//! still reach it, by a request to this address from another origin or by a name that it points
//! here; both show in the headers `Origin` and `Host`. Decides only; knows no sockets.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, StatusCode, Uri, header, uri::Authority};
use sha2::{Digest, Sha256};

use super::error::ApiError;

/// What requests are checked against.
#[derive(Clone)]
pub struct Gate {
    key: Option<[u8; 32]>,
    listen: SocketAddr,
}

impl Gate {
    /// `key_sha256` is the SHA-256 of the key, in hex. `None` if it is not.
    pub fn new(key_sha256: Option<&str>, listen: SocketAddr) -> Option<Self> {
        let key = match key_sha256 {
            Some(hex) => Some(parse_hex(hex)?),
            None => None,
        };
        Some(Self { key, listen })
    }

    /// Whether a key is needed.
    pub fn keyed(&self) -> bool {
        self.key.is_some()
    }

    /// Lets a request pass or says why not. `/health` needs no key.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        match &self.key {
            Some(_) if uri.path() == "/health" => Ok(()),
            Some(key) => check_key(key, headers),
            None => self.check_origin(uri, headers),
        }
    }

    fn check_origin(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let host = authority(headers.get(header::HOST).map(|v| v.as_bytes()));
        let Some(host) = host.filter(|host| self.is_here(host)) else {
            return Err(forbidden(
                "the Host header does not name this server; use its address, or set an API key",
            ));
        };
        if uri.authority().is_some_and(|a| !self.is_here(a)) {
            return Err(forbidden("the request's address is not this server"));
        }
        for origin in headers.get_all(header::ORIGIN) {
            let same = origin
                .as_bytes()
                .strip_prefix(b"http://")
                .and_then(|rest| authority(Some(rest)))
                .is_some_and(|a| a.as_str().eq_ignore_ascii_case(host.as_str()));
            if !same {
                return Err(forbidden(
                    "pages of another origin may not use this server without an API key",
                ));
            }
        }
        Ok(())
    }

    fn is_here(&self, authority: &Authority) -> bool {
        if authority.as_str().contains('@') {
            return false;
        }
        let host = authority.host();
        let bare = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        match bare.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback() || ip == self.listen.ip(),
            Err(_) => bare.eq_ignore_ascii_case("localhost"),
        }
    }
}

fn authority(bytes: Option<&[u8]>) -> Option<Authority> {
    Authority::try_from(bytes?).ok()
}

fn check_key(key: &[u8; 32], headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().split_at_checked(7))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))
        .map(|(_, rest)| Sha256::digest(rest.trim_ascii()));
    let message = match given {
        None => "no API key given; send it as `Authorization: Bearer KEY`",
        // Every byte is looked at, so the time does not tell where digests part.
        Some(digest) if digest.iter().zip(key).fold(0, |d, (a, b)| d | (a ^ b)) == 0 => {
            return Ok(());
        }
        Some(_) => "the API key is not the one of this deployment",
    };
    Err(ApiError::new(
        StatusCode::UNAUTHORIZED,
        "authentication_error",
        Some("invalid_api_key"),
        message.to_owned(),
    ))
}

fn forbidden(message: &str) -> ApiError {
    ApiError::new(
        StatusCode::FORBIDDEN,
        "permission_error",
        Some("foreign_origin"),
        message.to_owned(),
    )
}

fn parse_hex(hex: &str) -> Option<[u8; 32]> {
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    if pairs.len() != 32 || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        let [high, low] = pair.map(|c| char::from(c).to_digit(16));
        *byte = u8::try_from(high? * 16 + low?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn without_a_key_only_this_servers_own_names_and_origin_pass() {
        let gate = Gate::new(None, "127.0.0.1:8080".parse().unwrap()).unwrap();
        let uri: Uri = "/v1/models".parse().unwrap();
        for (pairs, passes) in [
            (&[("host", "127.0.0.1:8080")][..], true),
            (&[("host", "localhost:9")], true),
            (&[("host", "LOCALHOST")], true),
            (&[("host", "[::1]:8080")], true),
            (&[("host", "127.8.8.8")], true),
            (&[], false),
            (&[("host", "evil.example")], false),
            (&[("host", "localhost.evil.example:8080")], false),
            (&[("host", "localhost@evil.example")], false),
            (&[("host", "x@localhost")], false),
            (&[("host", "192.168.1.5:8080")], false),
            (
                &[("host", "localhost:9"), ("origin", "http://localhost:9")],
                true,
            ),
            (
                &[("host", "localhost:9"), ("origin", "http://localhost:10")],
                false,
            ),
            (
                &[("host", "localhost:9"), ("origin", "https://localhost:9")],
                false,
            ),
            (
                &[("host", "localhost:9"), ("origin", "http://evil.example")],
                false,
            ),
            (&[("host", "localhost:9"), ("origin", "null")], false),
        ] {
            let checked = gate.check(&uri, &headers(pairs));
            assert_eq!(checked.is_ok(), passes, "{pairs:?}");
            if let Err(error) = checked {
                assert_eq!(error.status, StatusCode::FORBIDDEN);
            }
        }
        let foreign: Uri = "http://evil.example/v1/models".parse().unwrap();
        assert!(
            gate.check(&foreign, &headers(&[("host", "localhost")]))
                .is_err()
        );
    }

    #[test]
    fn the_listen_address_itself_is_a_known_host() {
        let gate = Gate::new(None, "10.1.2.3:80".parse().unwrap()).unwrap();
        let uri: Uri = "/".parse().unwrap();
        assert!(gate.check(&uri, &headers(&[("host", "10.1.2.3")])).is_ok());
        assert!(gate.check(&uri, &headers(&[("host", "10.1.2.4")])).is_err());
    }

    #[test]
    fn with_a_key_only_its_bearer_passes_from_anywhere() {
        // `printf %s sesame | sha256sum`
        let hash = "d0c04f4b1951e4aeaaec8223ed2039e542f3aae805a6fa7f6d794e5afff5d272";
        let gate = Gate::new(Some(hash), "0.0.0.0:80".parse().unwrap()).unwrap();
        let uri: Uri = "/v1/models".parse().unwrap();
        for (pairs, passes) in [
            (&[("authorization", "Bearer sesame")][..], true),
            (&[("authorization", "bearer sesame")], true),
            (
                &[
                    ("authorization", "Bearer sesame"),
                    ("origin", "http://x.example"),
                ],
                true,
            ),
            (&[("authorization", "Bearer sesam")], false),
            (&[("authorization", "Bearer ")], false),
            (&[("authorization", "Bearer")], false),
            (&[("authorization", "sesame")], false),
            (&[("authorization", "Basic sesame")], false),
            (&[], false),
        ] {
            assert_eq!(
                gate.check(&uri, &headers(pairs)).is_ok(),
                passes,
                "{pairs:?}"
            );
        }
        assert!(
            gate.check(&"/health".parse().unwrap(), &headers(&[]))
                .is_ok()
        );
        assert!(
            gate.check(&"/healthx".parse().unwrap(), &headers(&[]))
                .is_err()
        );
    }

    #[test]
    fn a_digest_that_is_no_sha256_is_refused() {
        let listen = "127.0.0.1:1".parse().unwrap();
        assert!(Gate::new(Some("abc"), listen).is_none());
        assert!(Gate::new(Some(&"g".repeat(64)), listen).is_none());
        assert!(Gate::new(Some(&"0".repeat(66)), listen).is_none());
        assert!(Gate::new(Some(&"aB".repeat(32)), listen).is_some());
    }
}
