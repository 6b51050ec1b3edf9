//! A TLS session over a blocking socket, split in a reading and a writing half for two threads.
//!
//! rustls keeps one state for both directions. The lock on it is held only to move bytes in
//! memory, never across a system call, so a blocked reader does not stop the writer.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::Connection;

use super::NetError;

/// Ciphertext read from the socket at a time.
const READ_BYTES: usize = 64 << 10;
/// Plaintext encrypted per system call at most.
const WRITE_BYTES: usize = 256 << 10;
/// Longest handshake, so that a silent peer holds no thread for long.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long sent bytes may stay unacknowledged before the link counts as dead.
const USER_TIMEOUT: Duration = Duration::from_secs(10);
/// After how long without a byte the kernel asks whether the peer is there, how often it asks again
/// and how many times: a link that is silently dead is noticed after about as long as above.
const ALIVE: (Duration, Duration, u32) = (Duration::from_secs(3), Duration::from_secs(2), 3);

type Shared = Arc<Mutex<Connection>>;

fn lock(shared: &Shared) -> MutexGuard<'_, Connection> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reading half.
pub struct SecureReader {
    shared: Shared,
    socket: TcpStream,
    cipher: Vec<u8>,
    start: usize,
    end: usize,
}

/// The writing half.
pub struct SecureWriter {
    shared: Shared,
    socket: TcpStream,
    cipher: Vec<u8>,
}

/// Socket options of every link: no delay, dead peers noticed.
pub fn tune(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = socket2::SockRef::from(socket);
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    let (idle, every, times) = ALIVE;
    socket.set_tcp_keepalive(
        &socket2::TcpKeepalive::new()
            .with_time(idle)
            .with_interval(every)
            .with_retries(times),
    )
}

/// Finishes the handshake within [`HANDSHAKE_TIMEOUT`] and splits the session.
pub fn establish(
    mut session: Connection,
    socket: TcpStream,
) -> Result<(SecureReader, SecureWriter), NetError> {
    tune(&socket).map_err(NetError::io("set socket options"))?;
    set_timeout(&socket, Some(HANDSHAKE_TIMEOUT))?;
    session.set_buffer_limit(None);
    let mut io = &socket;
    let mut result = Ok(());
    while result.is_ok() && session.is_handshaking() {
        result = session.complete_io(&mut io).map(drop);
    }
    if result.is_ok() && session.wants_write() {
        result = session.write_tls(&mut io).map(drop);
    }
    result.map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => NetError::Tls(format!(
            "nothing valid came within {} s",
            HANDSHAKE_TIMEOUT.as_secs()
        )),
        _ => NetError::Tls(e.to_string()),
    })?;
    let clone = socket
        .try_clone()
        .map_err(NetError::io("duplicate a socket"))?;
    let shared = Arc::new(Mutex::new(session));
    Ok((
        SecureReader {
            shared: shared.clone(),
            socket: clone,
            cipher: vec![0; READ_BYTES],
            start: 0,
            end: 0,
        },
        SecureWriter {
            shared,
            socket,
            cipher: Vec::new(),
        },
    ))
}

fn set_timeout(socket: &TcpStream, timeout: Option<Duration>) -> Result<(), NetError> {
    socket
        .set_read_timeout(timeout)
        .map_err(NetError::io("set a read timeout"))
}

impl SecureReader {
    /// Ends the time limit of the handshake: frames may be far apart.
    pub fn wait_forever(&self) -> Result<(), NetError> {
        set_timeout(&self.socket, None)
    }

    /// From now on waits that long at most for the peer to say something.
    pub fn wait_at_most(&self, patience: Duration) -> Result<(), NetError> {
        set_timeout(&self.socket, Some(patience))
    }

    /// The certificate the peer proved to own.
    pub fn peer_certificate(&self) -> Option<rustls::pki_types::CertificateDer<'static>> {
        lock(&self.shared)
            .peer_certificates()
            .and_then(|c| c.first().cloned())
    }
}

impl Read for SecureReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            {
                let mut session = lock(&self.shared);
                loop {
                    match session.reader().read(out) {
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                        other => return other,
                    }
                    let Some(mut pending) = self
                        .cipher
                        .get(self.start..self.end)
                        .filter(|p| !p.is_empty())
                    else {
                        break;
                    };
                    let taken = session.read_tls(&mut pending)?;
                    self.start += taken;
                    session
                        .process_new_packets()
                        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                }
            }
            self.start = 0;
            self.end = self.socket.read(&mut self.cipher)?;
            if self.end == 0 {
                // Without a closing alert this is a cut, which the frame reader tells apart by
                // where it happened.
                return Ok(0);
            }
        }
    }
}

impl SecureWriter {
    /// Encrypts and sends all of `parts`, in order, as one message.
    pub fn write_all_parts(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        for part in parts {
            for chunk in part.chunks(WRITE_BYTES) {
                lock(&self.shared).writer().write_all(chunk)?;
                if self.cipher.len() + chunk.len() >= WRITE_BYTES {
                    self.flush_cipher()?;
                }
            }
        }
        self.flush_cipher()
    }

    fn flush_cipher(&mut self) -> io::Result<()> {
        {
            let mut session = lock(&self.shared);
            while session.wants_write() {
                session.write_tls(&mut self.cipher)?;
            }
        }
        self.socket.write_all(&self.cipher)?;
        self.cipher.clear();
        Ok(())
    }

    /// Ends the connection in both directions: the reading half wakes too.
    pub fn close(&mut self) {
        lock(&self.shared).send_close_notify();
        let _ = self.flush_cipher();
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// A handle that can end the connection from another thread.
    pub fn closer(&self) -> io::Result<Closer> {
        Ok(Closer(self.socket.try_clone()?))
    }
}

/// Ends a connection from another thread.
pub struct Closer(TcpStream);

impl Closer {
    /// Ends it; both halves see the end.
    pub fn close(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
