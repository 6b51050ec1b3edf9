//! A real OpenSSH server of the test's own: own keys, own configuration, any free port.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use windlass::event::{Asker, Bus, Event, Mailbox};
use windlass::ssh::{Connector, Options, Target};

/// A folder with a client's key, a known-hosts file, and what servers need.
pub struct Place {
    folder: TempDir,
}

impl Place {
    /// With a client key that all servers of this place let in.
    pub fn new() -> Self {
        let place = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        keygen(&place.path("id"), "ed25519", "");
        fs::copy(place.path("id.pub"), place.path("authorized_keys")).unwrap();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn known_hosts(&self) -> PathBuf {
        self.path("known_hosts")
    }

    pub fn options(&self) -> Options {
        Options {
            home: self.path("home"),
            user: "root".into(),
            known_hosts: Some(self.known_hosts()),
            ssh_config: Some(self.path("ssh_config")),
            agent: None,
            accept_new: false,
            limit: Duration::from_secs(10),
        }
    }

    /// With nobody to ask.
    pub fn connector(&self, options: Options) -> Connector {
        let bus = Bus::new("test");
        let emitter = bus.emitter();
        Connector::new(options, Asker::new(emitter.clone(), false, true), emitter)
    }

    /// With a person who answers each question by the first answer whose key is in it.
    pub fn asking(&self, options: Options, answers: &[(&str, &str)]) -> (Connector, Person) {
        let bus = Bus::new("test");
        let emitter = bus.emitter();
        let asker = Asker::new(emitter.clone(), true, false);
        let person = Person::start(bus.subscribe(), asker.clone(), answers);
        (Connector::new(options, asker, emitter), person)
    }

    /// What the server of this target is known by.
    pub fn know(&self, server: &Server, key: &str) {
        let public = fs::read_to_string(self.path(&format!("{key}.pub"))).unwrap();
        let mut words = public.split(' ');
        let line = format!(
            "[127.0.0.1]:{} {} {}\n",
            server.address.port(),
            words.next().unwrap(),
            words.next().unwrap()
        );
        let mut text = fs::read_to_string(self.known_hosts()).unwrap_or_default();
        text.push_str(&line);
        fs::write(self.known_hosts(), text).unwrap();
    }

    /// A server with an ed25519 host key that is known.
    pub fn server(&self, more: &str) -> Server {
        let server = self.stranger(&["host_ed25519"], more);
        self.know(&server, "host_ed25519");
        server
    }

    /// A server that is not known, with these host keys, named by their kind.
    pub fn stranger(&self, keys: &[&str], more: &str) -> Server {
        for key in keys {
            let path = self.path(key);
            if !path.exists() {
                keygen(&path, key.rsplit('_').next().unwrap(), "");
            }
        }
        Server::start(self, keys, more)
    }
}

/// Someone at the terminal.
pub struct Person {
    asked: Arc<Mutex<Vec<String>>>,
}

impl Person {
    fn start(mailbox: Mailbox, asker: Asker, answers: &[(&str, &str)]) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (heard, answers) = (asked.clone(), owned(answers));
        std::thread::spawn(move || {
            while let Some(envelope) = mailbox.next() {
                if let Event::Question { id, text, .. } = &envelope.event {
                    heard.lock().unwrap().push(text.clone());
                    let answer = answers.iter().find(|(key, _)| text.contains(key));
                    asker.answer(
                        id,
                        answer.map_or(String::new(), |(_, answer)| answer.clone()),
                    );
                }
            }
        });
        Self { asked }
    }

    /// The questions so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

/// Makes a key pair with OpenSSH's own tool.
///
/// One ECDSA key in 256 has a secret that begins with a zero byte, which the library for key files
/// does not read; such a key is made anew.
pub fn keygen(path: &Path, kind: &str, passphrase: &str) {
    loop {
        keygen_once(path, kind, passphrase);
        if kind != "ecdsa" || russh::keys::load_secret_key(path, Some(passphrase)).is_ok() {
            return;
        }
        for file in [path.to_owned(), path.with_extension("pub")] {
            std::fs::remove_file(file).unwrap();
        }
    }
}

fn keygen_once(path: &Path, kind: &str, passphrase: &str) {
    let bits: &[&str] = if kind == "rsa" { &["-b", "2048"] } else { &[] };
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", kind, "-N", passphrase, "-C", "test", "-f"])
        .arg(path)
        .args(bits)
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

/// A key's fingerprint, as OpenSSH prints it.
pub fn fingerprint(path: &Path) -> String {
    let output = Command::new("ssh-keygen")
        .arg("-lf")
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split(' ').nth(1).unwrap().to_owned()
}

/// The server: each connection gets a process of its own, on a listener of ours.
pub struct Server {
    pub address: SocketAddr,
    key: PathBuf,
    log: PathBuf,
    connections: Arc<AtomicUsize>,
    children: Arc<Mutex<Vec<Child>>>,
}

static NUMBER: AtomicUsize = AtomicUsize::new(0);

impl Server {
    fn start(place: &Place, keys: &[&str], more: &str) -> Self {
        // The folder that the server locks itself into until someone is logged in.
        let _ = fs::create_dir_all("/run/sshd");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let config = place.path(&format!("sshd_config_{number}"));
        let log = place.path(&format!("sshd_log_{number}"));
        let mut text = String::new();
        for key in keys {
            text.push_str(&format!("HostKey {}\n", place.path(key).display()));
        }
        text.push_str(&format!(
            "UsePAM no\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPrintMotd no\nPrintLastLog no\n\
             AuthorizedKeysFile {}\n{more}\n",
            place.path("authorized_keys").display()
        ));
        fs::write(&config, text).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            key: place.path("id"),
            log: log.clone(),
            connections: Arc::default(),
            children: Arc::default(),
        };
        let (connections, children) = (server.connections.clone(), server.children.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream: OwnedFd = stream.unwrap().into();
                connections.fetch_add(1, Ordering::Relaxed);
                let child = Command::new("/usr/sbin/sshd")
                    .args(["-i", "-f"])
                    .arg(&config)
                    .arg("-E")
                    .arg(&log)
                    .stdin(stream.try_clone().unwrap())
                    .stdout(stream)
                    .spawn()
                    .unwrap();
                children.lock().unwrap().push(child);
            }
        });
        server
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// What the server wrote down, for messages of tests.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends all connections at once, as a power cut would.
    pub fn cut(&self) {
        for child in self.children.lock().unwrap().iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The server as a host.
    pub fn target(&self) -> Target {
        Target {
            host: "lab".into(),
            address: self.address.ip().to_string(),
            port: Some(self.address.port()),
            user: Some("root".into()),
            identity: Some(self.key.clone()),
            ..Target::default()
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.cut();
    }
}

/// An agent of the test's own.
pub struct Agent {
    pub socket: PathBuf,
    child: Child,
}

impl Agent {
    pub fn start(socket: PathBuf) -> Self {
        let child = Command::new("ssh-agent")
            .arg("-D")
            .arg("-a")
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(
                std::time::Instant::now() < deadline,
                "the agent did not start"
            );
            std::thread::yield_now();
        }
        Self { socket, child }
    }

    pub fn add(&self, key: &Path) {
        fs::set_permissions(key, fs::Permissions::from_mode(0o600)).unwrap();
        let status = Command::new("ssh-add")
            .arg("-q")
            .arg(key)
            .env("SSH_AUTH_SOCK", &self.socket)
            .status()
            .unwrap();
        assert!(status.success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A listener that takes connections and says nothing, or only this.
pub fn silent(says: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut held: Vec<TcpStream> = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::io::Write::write_all(&mut stream, says.as_bytes()).unwrap();
            held.push(stream);
        }
    });
    address
}
