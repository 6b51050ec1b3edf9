//! From a name to a TCP connection: all addresses, the first that answers. Must not know SSH.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::config::Family;

/// How long one address is waited for before the next is tried beside it (RFC 8305, 5).
const NEXT: Duration = Duration::from_millis(250);

/// The addresses of a name or literal, scoped IPv6 ones too, in the order to try them.
///
/// # Errors
/// When there are none.
pub(super) async fn resolve(host: &str, port: u16, family: Family) -> io::Result<Vec<SocketAddr>> {
    let mut found: Vec<_> = tokio::net::lookup_host((host, port)).await?.collect();
    found.retain(|address| match family {
        Family::Any => true,
        Family::V4 => address.is_ipv4(),
        Family::V6 => address.is_ipv6(),
    });
    if found.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "none of the wanted family",
        ));
    }
    Ok(interleaved(found))
}

/// One of each family in turn, the resolver's first one first (RFC 8305, 4).
fn interleaved(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let six = found.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|address| address.is_ipv6() == six);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut all = Vec::new();
    loop {
        let pair = (first.next(), second.next());
        if pair == (None, None) {
            return all;
        }
        all.extend(pair.0);
        all.extend(pair.1);
    }
}

/// A connection to the first address that takes one.
///
/// # Errors
/// What each address said, as far as it is different.
pub(super) async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, String> {
    let mut tries = JoinSet::new();
    let mut rest = addresses.iter().copied();
    let mut said: Vec<String> = Vec::new();
    loop {
        match rest.next() {
            Some(address) => {
                tries.spawn(async move {
                    let stream = TcpStream::connect(address)
                        .await
                        .map_err(|error| format!("{address}: {}", words(&error)))?;
                    stream
                        .set_nodelay(true)
                        .map_err(|error| format!("{address}: {error}"))?;
                    Ok(stream)
                });
            }
            None if tries.is_empty() => return Err(said.join("; ")),
            None => {}
        }
        let more = rest.len() > 0;
        let done = tokio::select! {
            done = tries.join_next() => done,
            () = tokio::time::sleep(NEXT), if more => None,
        };
        match done {
            Some(Ok(Ok(stream))) => return Ok(stream),
            Some(Ok(Err(error))) if !said.contains(&error) => said.push(error),
            _ => {}
        }
    }
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
        io::ErrorKind::HostUnreachable => "no host answers at this address".to_owned(),
        io::ErrorKind::NetworkUnreachable => "there is no way to this network".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let all = |text: &str| -> Vec<SocketAddr> {
            text.split(' ').map(|one| one.parse().unwrap()).collect()
        };
        assert_eq!(
            interleaved(all("[::1]:1 [::2]:1 [::3]:1 1.1.1.1:1 2.2.2.2:1")),
            all("[::1]:1 1.1.1.1:1 [::2]:1 2.2.2.2:1 [::3]:1")
        );
        assert_eq!(
            interleaved(all("1.1.1.1:1 [::1]:1")),
            all("1.1.1.1:1 [::1]:1")
        );
    }

    #[tokio::test]
    async fn a_closed_address_does_not_keep_the_next_from_being_tried() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        let closed = {
            let other = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
            other.local_addr().unwrap()
        };
        let stream = connect(&[closed, open]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), open);
        let error = connect(&[closed]).await.unwrap_err();
        assert!(error.contains("nothing listens there"), "{error}");
        assert!(error.contains(&closed.to_string()), "{error}");
    }
}
