//! What several tests share.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use windlass_gguf::{TinySpec, tiny_llama};

/// Writes a program into a folder.
pub fn program(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Every line as JSON.
pub fn json_lines(text: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(text)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect()
}

/// Whether a process is there, a zombie not counted.
pub fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .trim()
            .starts_with('Z')
    })
}

/// A small random model of this many layers, with a tokenizer.
pub fn tiny_model(path: &Path, layers: u32) {
    let spec = TinySpec {
        layers,
        context: 4096,
        ..TinySpec::default()
    };
    tiny_llama(&spec, path).unwrap();
}
