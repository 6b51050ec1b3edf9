//! The copying and the comparing, by the worker's program on both hosts: bytes go from one to the
//! other, never through this machine. Must not know what is copied.

use std::pin::pin;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncWriteExt, BufReader};
use windlass_wire::carry::{End, GIVER, Giving, Read, Reading, TAKER, Taking};
use windlass_wire::host::{Listening, line};

use super::STEP;
use super::compare::{self, Digests, Verdict};
use crate::deploy::keys;
use crate::deploy::remote::conditions;
use crate::deploy::remote::locks::next_line;
use crate::deploy::remote::probe::{Endpoint, scoped};
use crate::event::{Emitter, Event, Failure, Level, Scope};
use crate::ssh::Stream;

/// How long a program on a host may take to begin.
const STARTING: Duration = Duration::from_secs(20);
/// How long a connection between the hosts may be missing, seconds.
const PATIENCE: u64 = 60;
/// How long an end may say nothing: a file may be long in being written out at the end.
const SILENCE: Duration = Duration::from_secs(600);
/// How long the sending end has for its own word when the receiving one ended badly.
const MOMENT: Duration = Duration::from_secs(3);
/// How long a whole transfer may take; the receiving end says nothing before its end.
const WHOLE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Folders that are asked for at once, file by file.
const FOLDERS: usize = 256;

const PACK: &str = "tar --create --format=posix --no-recursion --null --verbatim-files-from --files-from=- --sparse --numeric-owner";
const UNPACK: &str =
    "tar --extract --preserve-permissions --same-owner --numeric-owner --delay-directory-restore";
const WITH: &str = "--xattrs --xattrs-include=* --acls";

/// A folder that is carried.
pub struct Folder {
    /// On the source.
    pub from: String,
    /// On the target.
    pub to: String,
    /// Paths below it that are left out.
    pub leave: Vec<String>,
    /// Whether the file system knows neither owners nor attributes.
    pub plain: bool,
    /// Whether it may change meanwhile.
    pub live: bool,
    /// Whether files may be there already.
    pub again: bool,
    /// Bytes of its files, about.
    pub bytes: u64,
    /// What it is called.
    pub name: String,
}

/// What copying came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes of the stream.
    pub bytes: u64,
    /// Bytes over the network.
    pub sent: u64,
    /// Files that were there already.
    pub kept: u64,
    /// The source's clock when it began, nanoseconds since 1970.
    pub began: u64,
}

/// Both hosts.
pub struct Pair<'a> {
    /// The source.
    pub from: &'a Endpoint,
    /// The target.
    pub to: &'a Endpoint,
    /// Tells how far it is.
    pub emitter: &'a Emitter,
    /// The run.
    pub run: &'a str,
}

async fn start<T: serde::Serialize>(
    end: &Endpoint,
    what: &str,
    order: &T,
) -> Result<Stream, Failure> {
    let script = end.base.worker(&end.worker_sha256, &["carry", what]);
    let host = end.session.host();
    let mut stream = end
        .session
        .open("copy", &script, end.base.root)
        .await
        .map_err(|error| error.failure(host))?;
    stream
        .stdin
        .write_all(&line(order))
        .await
        .map_err(|error| failed(host, error.to_string()))?;
    let _ = stream.stdin.flush().await;
    Ok(stream)
}

fn failed(host: &str, message: impl std::fmt::Display) -> Failure {
    Failure::new(
        crate::event::FailureKind::Host,
        format!("{host}: {message}"),
    )
    .on(host)
    .at(STEP)
}

fn program(words: &str, plain: bool, folder: &str) -> Vec<String> {
    let mut words = words.split(' ').map(str::to_owned);
    let mut all: Vec<String> = words.by_ref().take(2).collect();
    // Before the names: it counts for those behind it.
    all.extend(["-C".to_owned(), folder.to_owned(), "--file=-".to_owned()]);
    all.extend(words);
    if !plain {
        all.extend(WITH.split(' ').map(str::to_owned));
    }
    all
}

/// Carries a folder.
///
/// # Errors
/// In one sentence, with the host where it failed.
pub async fn carry(pair: &Pair<'_>, folder: &Folder) -> Result<Copied, Failure> {
    let (a, b) = (pair.from.session.host(), pair.to.session.host());
    let name = format!("clone-{}", pair.run);
    // Of this stream alone.
    let mut identities = keys::mint(&name, 2)
        .map_err(|error| Failure::internal(error.to_string()))?
        .into_iter();
    let mut order = |stage: u32, address: String, port: u16, words: &str, at: &str| {
        let identity = identities.next();
        debug_assert!(stage <= TAKER);
        identity.map(|identity| End {
            deployment: name.clone(),
            identity,
            address,
            port,
            patience: PATIENCE,
            program: program(words, folder.plain, at),
            folder: at.to_owned(),
            leave: folder.leave.clone(),
            again: folder.again,
        })
    };
    let missing = || Failure::internal("a key is missing");
    let ip = pair.to.address.ip().to_string();
    let address = scoped(&pair.to.address);
    let giver = order(GIVER, address.clone(), 0, PACK, &folder.from);
    let taker = order(TAKER, address, pair.to.address.port(), UNPACK, &folder.to);
    let (Some(mut giver), Some(mut taker)) = (giver, taker) else {
        return Err(missing());
    };
    let mut taking = loop {
        let mut stream = start(pair.to, "take", &taker).await?;
        let said = {
            let mut reader = BufReader::new(&mut stream.stdout);
            next_line::<Listening>(&mut reader, STARTING).await
        };
        let reason = match said {
            Ok(Listening::Bound { address }) => {
                let port = address
                    .rsplit_once(':')
                    .and_then(|(_, port)| port.parse().ok());
                giver.port = port.ok_or_else(|| failed(b, format!("it listens at {address}")))?;
                break stream;
            }
            // Its worker has the port.
            Ok(Listening::Busy { .. }) if taker.port != 0 => {
                taker.port = 0;
                continue;
            }
            Ok(Listening::Busy { by }) => {
                conditions::port_taken(&ip, taker.port, by.as_deref()).message
            }
            Ok(Listening::NoAddress { has }) => conditions::no_address(&ip, &has).message,
            Ok(Listening::Failed { reason }) | Err(reason) => reason,
        };
        return Err(failed(b, format!("it does not listen at {ip}: {reason}")));
    };
    let mut giving = start(pair.from, "give", &giver).await?;
    let mut reader = BufReader::new(&mut giving.stdout);
    let mut copied = Copied::default();
    let scope = Scope::host(b).in_task("copy");
    let begun = Instant::now();
    let transfer = |done: u64, total: Option<u64>| {
        let what = folder.name.clone();
        pair.emitter
            .emit(scope.clone(), Event::Transfer { what, done, total });
    };
    let gives = async {
        loop {
            match next_line::<Giving>(&mut reader, SILENCE).await {
                Ok(Giving::Begins { at }) => copied.began = at,
                Ok(Giving::Moved { bytes, .. }) => {
                    transfer(bytes, Some(folder.bytes.max(bytes + 1)));
                }
                Ok(Giving::Again { reason }) => pair.emitter.emit(
                    scope.clone(),
                    Event::log(
                        Level::Warn,
                        format!("the connection from {a} broke ({reason}); it is made anew, for {PATIENCE} s"),
                    ),
                ),
                Ok(Giving::Done { sum, sent, said, kept }) => {
                    transfer(sum.bytes, Some(sum.bytes));
                    for line in said {
                        pair.emitter.emit(
                            Scope::host(a).in_task("copy"),
                            Event::log(Level::Warn, line),
                        );
                    }
                    (copied.bytes, copied.sent, copied.kept) = (sum.bytes, sent, kept);
                    return Ok(sum);
                }
                Ok(Giving::Failed { reason }) => {
                    // What the other end says counts there.
                    return Err(match reason.strip_prefix("the other end: ") {
                        Some(reason) => failed(b, reason),
                        None => failed(a, reason),
                    });
                }
                Err(reason) => {
                    return Err(failed(a, format!("the sending program was lost: {reason}")));
                }
            }
        }
    };
    let mut theirs = BufReader::new(&mut taking.stdout);
    let takes = async {
        match next_line::<Taking>(&mut theirs, WHOLE).await {
            Ok(Taking::Done { sum }) => Ok(sum),
            Ok(Taking::Failed { reason }) => Err(failed(b, reason)),
            Err(reason) => Err(failed(
                b,
                format!("the receiving program was lost: {reason}"),
            )),
        }
    };
    let (sum, theirs) = both(gives, takes, (SILENCE, MOMENT), || {
        failed(
            b,
            format!(
                "the receiving program said nothing for {} s",
                SILENCE.as_secs()
            ),
        )
    })
    .await?;
    if sum != theirs {
        return Err(failed(b, "other bytes came than were sent"));
    }
    let seconds = begun.elapsed().as_secs_f64().max(0.001);
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let rate = copied.bytes as f64 * 8e-6 / seconds;
    pair.emitter.emit(
        scope,
        Event::log(
            Level::Info,
            format!(
                "{}: {} in {:.1} s ({}), {} over the network, {} files were there",
                folder.name,
                crate::figures::size(copied.bytes),
                seconds,
                crate::figures::rate(rate),
                crate::figures::size(copied.sent),
                copied.kept
            ),
        ),
    );
    Ok(copied)
}

/// What both ends come to; the first that fails ends it: a receiving end that is lost is told of at once,
/// and not when the sending one has waited for it in vain. The receiving one has `silence` after the
/// other and fails with `silent` then; the sending one has a `moment` when the receiving one failed.
async fn both<A, B>(
    giving: impl Future<Output = Result<A, Failure>>,
    taking: impl Future<Output = Result<B, Failure>>,
    (silence, moment): (Duration, Duration),
    silent: impl FnOnce() -> Failure,
) -> Result<(A, B), Failure> {
    let (mut giving, mut taking) = (pin!(giving), pin!(taking));
    tokio::select! {
        biased;
        sum = &mut giving => {
            let sum = sum?;
            let theirs = tokio::time::timeout(silence, taking).await;
            Ok((sum, theirs.unwrap_or_else(|_| Err(silent()))?))
        }
        theirs = &mut taking => match theirs {
            Ok(theirs) => Ok((giving.await?, theirs)),
            // It may only say that the other gave up, which says itself why.
            Err(failure) => match tokio::time::timeout(moment, giving).await {
                Ok(Err(first)) => Err(first),
                _ => Err(failure),
            },
        },
    }
}

/// What comparing came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Files of every kind.
    pub files: u64,
    /// SHA-256 over all folders' digests at the target.
    pub sha256: String,
    /// Folders in which something changed on the source while it was copied; all else in them is the same.
    pub moved: Vec<String>,
}

/// Reads both to the last byte.
///
/// # Errors
/// When something differs that did not change meanwhile, or cannot be read.
pub async fn compare(pair: &Pair<'_>, folder: &Folder, since: u64) -> Result<Compared, Failure> {
    let order = |at: &str, since: Option<u64>| Read {
        folder: at.to_owned(),
        leave: folder.leave.clone(),
        since,
        plain: folder.plain,
        each: Vec::new(),
    };
    let own = order(&folder.from, folder.live.then_some(since));
    let theirs = order(&folder.to, None);
    let ((ours, _), (copy, files)) = tokio::try_join!(
        read(pair, pair.from, &own, folder, false),
        read(pair, pair.to, &theirs, folder, true)
    )?;
    let mut compared = Compared {
        files,
        ..Compared::default()
    };
    let mut digest = Sha256::new();
    for (path, (sha256, _)) in &copy {
        digest.update(path.as_bytes());
        digest.update(sha256.as_bytes());
    }
    let Verdict { moved, mut bad } = compare::folders(ours, &copy, folder.live);
    compared.moved = moved;
    // Of a folder in which something changed all else must be the same.
    for some in compared.moved.chunks(FOLDERS) {
        let part = |order: &Read| Read {
            each: some.to_vec(),
            ..order.clone()
        };
        let (own, theirs) = (part(&own), part(&theirs));
        let ((ours, _), (theirs, _)) = tokio::try_join!(
            read(pair, pair.from, &own, folder, false),
            read(pair, pair.to, &theirs, folder, false)
        )?;
        bad.extend(compare::files(ours, theirs, &copy));
    }
    compared.sha256 = digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    match bad.first() {
        None => Ok(compared),
        Some(first) => Err(failed(
            pair.to.session.host(),
            format!(
                "the copy differs in {}, as in /{first} of {}: it is not finished; clone again",
                crate::figures::counted(bad.len(), "place", "places"),
                folder.name
            ),
        )),
    }
}

async fn read(
    pair: &Pair<'_>,
    end: &Endpoint,
    order: &Read,
    folder: &Folder,
    tells: bool,
) -> Result<(Digests, u64), Failure> {
    let host = end.session.host();
    let mut stream = start(end, "read", order).await?;
    let mut reader = BufReader::new(&mut stream.stdout);
    let mut all = Digests::new();
    loop {
        match next_line::<Reading>(&mut reader, SILENCE).await {
            Ok(
                Reading::Folder {
                    path,
                    sha256,
                    changed,
                }
                | Reading::File {
                    path,
                    sha256,
                    changed,
                },
            ) => {
                // Two names may read the same where they are no text.
                all.entry(path)
                    .and_modify(|(all, moved): &mut (String, bool)| {
                        all.push_str(&sha256);
                        *moved |= changed;
                    })
                    .or_insert((sha256, changed));
            }
            Ok(Reading::Moved { bytes }) => {
                if tells {
                    let scope = Scope::host(host).in_task("compare");
                    let (what, total) = (folder.name.clone(), Some(folder.bytes.max(bytes + 1)));
                    pair.emitter.emit(
                        scope,
                        Event::Transfer {
                            what,
                            done: bytes,
                            total,
                        },
                    );
                }
            }
            Ok(Reading::Done { files, bytes }) => {
                if tells {
                    let scope = Scope::host(host).in_task("compare");
                    let (what, total) = (folder.name.clone(), Some(bytes));
                    pair.emitter.emit(
                        scope,
                        Event::Transfer {
                            what,
                            done: bytes,
                            total,
                        },
                    );
                }
                return Ok((all, files));
            }
            Ok(Reading::Failed { reason }) => return Err(failed(host, reason)),
            Err(reason) => {
                return Err(failed(
                    host,
                    format!("the comparing program was lost: {reason}"),
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    type Said = Result<u8, Failure>;

    fn bad(host: &str) -> Said {
        Err(failed(host, "it broke"))
    }

    async fn later(said: Said) -> Said {
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        said
    }

    async fn came(
        gives: impl Future<Output = Said>,
        takes: impl Future<Output = Said>,
    ) -> Result<(u8, u8), String> {
        let short = Duration::from_millis(20);
        let silent = || failed("silent", "it broke");
        both(gives, takes, (short, short), silent)
            .await
            .map_err(|failure| failure.message.split(':').next().unwrap().to_owned())
    }

    #[tokio::test]
    async fn the_first_end_that_fails_ends_a_transfer_and_the_one_that_gave_up_says_why() {
        assert_eq!(came(later(Ok(1)), ready(Ok(2))).await, Ok((1, 2)));
        assert_eq!(came(ready(Ok(1)), later(Ok(2))).await, Ok((1, 2)));
        // Killed, while the sender waits for it to come back.
        assert_eq!(came(pending(), ready(bad("b"))).await, Err("b".into()));
        assert_eq!(
            came(later(bad("a")), ready(bad("b"))).await,
            Err("a".into())
        );
        assert_eq!(came(ready(bad("a")), pending()).await, Err("a".into()));
        assert_eq!(came(ready(Ok(1)), pending()).await, Err("silent".into()));
    }
}
