//! Refuses an upward dependency between modules. The lists are the order of the architecture text.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The orchestrator's modules, low to high; modules of one rank may not use each other.
const ORCHESTRATOR: &[&[&str]] = &[
    &["paths", "figures", "nearest", "secret"],
    &["event"],
    &["ssh", "inventory", "model"],
    &["reach"],
    &["facts", "plan"],
    &["provision", "deploy"],
    &["bench", "clone"],
    &["playbook"],
    &["report"],
    &["tui"],
    &["cli"],
];

/// The worker's modules, low to high.
const WORKER: &[&[&str]] = &[
    &["engine", "text", "host"],
    &["net"],
    &["stage", "carry"],
    &["head"],
    &["api"],
    &["service"],
    &["run"],
    &["unit"],
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The top-level module a source file belongs to; `None` for the crate's root files.
fn module_of(src: &Path, file: &Path) -> Option<String> {
    let relative = file.strip_prefix(src).unwrap();
    let first = relative.components().next()?.as_os_str().to_str()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!["lib", "main"].contains(&name)).then(|| name.to_owned())
}

/// Code without comments and without the contents of strings.
fn code_only(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        let mut in_string = false;
        let mut previous = ' ';
        let mut rest = line.chars().peekable();
        while let Some(c) = rest.next() {
            if !in_string && c == '/' && rest.peek() == Some(&'/') {
                break;
            }
            if c == '"' && previous != '\\' && previous != '\'' {
                in_string = !in_string;
            }
            if !in_string {
                code.push(c);
            }
            previous = c;
        }
        code.push('\n');
    }
    code
}

/// Top-level modules of its own crate that code names: `crate::a`, `crate::{a, b::c}`, and the
/// same by the crate's outward name, as its program's root does.
fn named_modules(code: &str, crate_name: &str) -> BTreeSet<String> {
    let squeezed: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let word = |text: &str| -> String {
        text.trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let mut modules = BTreeSet::new();
    for prefix in ["crate::", &format!("{crate_name}::")] {
        for (at, _) in squeezed.match_indices(prefix) {
            let before = squeezed[..at].chars().next_back().unwrap_or(' ');
            if before.is_alphanumeric() || before == '_' {
                continue;
            }
            let after = &squeezed[at + prefix.len()..];
            if let Some(list) = after.strip_prefix('{') {
                let mut depth = 0;
                let mut item = String::new();
                for c in list.chars() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => {
                            modules.insert(word(&item));
                            item.clear();
                            continue;
                        }
                        _ => {}
                    }
                    item.push(c);
                }
                modules.insert(word(&item));
            } else {
                modules.insert(word(after));
            }
        }
    }
    modules.remove("");
    modules
}

fn rank(order: &[&[&str]], module: &str) -> Option<usize> {
    order.iter().position(|same| same.contains(&module))
}

/// What is wrong with one file's dependencies.
fn upward(order: &[&[&str]], module: &str, code: &str, crate_name: &str) -> Vec<String> {
    let Some(own) = rank(order, module) else {
        return vec![format!("module {module} has no place in the order")];
    };
    named_modules(code, crate_name)
        .into_iter()
        .filter(|used| used != module)
        .filter_map(|used| match rank(order, &used) {
            // A type or function of the crate's root.
            None => None,
            Some(other) if other < own => None,
            Some(_) => Some(format!("{module} uses {used}")),
        })
        .collect()
}

fn check(crate_folder: &str, crate_name: &str, order: &[&[&str]]) {
    let src = root().join(crate_folder).join("src");
    let mut wrong = Vec::new();
    for file in rust_files(&src) {
        let Some(module) = module_of(&src, &file) else {
            continue;
        };
        let code = code_only(&fs::read_to_string(&file).unwrap());
        for reason in upward(order, &module, &code, crate_name) {
            wrong.push(format!("{}: {reason}", file.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "upward dependencies:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_orchestrator_depends_downward_only() {
    check(".", "windlass", ORCHESTRATOR);
}

#[test]
fn the_worker_depends_downward_only() {
    check("worker", "windlass_worker", WORKER);
}

#[test]
fn crates_used_by_both_sides_use_neither() {
    for name in ["wire", "gguf"] {
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        for line in text.lines().map(str::trim) {
            let package = line.split(['.', ' ', '=']).next().unwrap_or("");
            assert!(
                !package.starts_with("windlass-") && package != "windlass",
                "{}: {line}",
                manifest.display()
            );
        }
    }
}

#[test]
fn neither_side_takes_the_others_heavy_parts() {
    let depends_on = |manifest: &str, package: &str| {
        let text = fs::read_to_string(root().join(manifest)).unwrap();
        let own = text.split("[package]").nth(1).unwrap().to_owned();
        own.lines().any(|line| {
            line.trim()
                .strip_prefix(package)
                .is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
        })
    };
    for package in ["candle-core", "candle-nn", "candle-transformers"] {
        assert!(
            !depends_on("Cargo.toml", package),
            "windlass uses {package}"
        );
    }
    for package in ["russh", "ratatui", "hf-hub"] {
        assert!(
            !depends_on("worker/Cargo.toml", package),
            "windlass-worker uses {package}"
        );
    }
}

#[test]
fn the_check_itself_sees_upward_uses_in_every_form() {
    let seen = |code: &str| upward(ORCHESTRATOR, "event", &code_only(code), "windlass");
    assert!(seen("use crate::paths::Paths;").is_empty());
    assert!(seen("// use crate::cli::Run;\nlet a = \"crate::cli\";").is_empty());
    for code in [
        "use crate::cli::Run;",
        "use crate::{paths, cli::Run};",
        "use crate::{\n    paths::{A, B},\n    cli,\n};",
        "let x = crate::report::show();",
        "use windlass::deploy;",
        "use crate::model;",
    ] {
        assert_eq!(seen(code).len(), 1, "{code}");
    }
    assert_eq!(
        upward(ORCHESTRATOR, "model", "use crate::inventory;", "windlass"),
        ["model uses inventory"]
    );
    assert_eq!(upward(ORCHESTRATOR, "extra", "", "windlass").len(), 1);
}
