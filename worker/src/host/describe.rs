//! `describe`: what this program is, as a proof that it runs here.

use std::fs::File;
use std::io;

use sha2::{Digest, Sha256};
use windlass_wire::host::Description;

use super::intake::{hash_file, hex};

/// Describes this program. `tier`: what its kernels would use here.
pub fn describe(tier: &str) -> Description {
    let digest = || -> io::Result<String> {
        let mut hasher = Sha256::new();
        hash_file(&mut File::open(std::env::current_exe()?)?, &mut hasher)?;
        Ok(hex(hasher))
    };
    Description {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        system: std::env::consts::OS.to_owned(),
        tier: tier.to_owned(),
        cores: std::thread::available_parallelism()
            .map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
        libc: if cfg!(target_env = "gnu") {
            "gnu"
        } else if cfg!(target_env = "musl") {
            "musl"
        } else {
            ""
        }
        .to_owned(),
        sha256: digest().unwrap_or_default(),
        pid: std::process::id(),
    }
}
