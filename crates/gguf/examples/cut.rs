//! Cuts a model into all its pieces, or only the named ones: `cut IN.gguf FOLDER [SLICE…]`.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use sha2::{Digest, Sha256};
use windlass_gguf::{MappedGguf, Slice, cut, model_size};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [source, dir, slices @ ..] = args.as_slice() else {
        eprintln!("usage: cut IN.gguf FOLDER [SLICE…]");
        return ExitCode::from(2);
    };
    match run(source, Path::new(dir), slices) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(source: &str, dir: &Path, slices: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let model = MappedGguf::open(source)?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut File::open(source)?, &mut hasher)?;
    let digest: String = hasher
        .finalize()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let wanted = if slices.is_empty() {
        Slice::all(model_size(model.header())?.layers)
    } else {
        slices.iter().map(|s| s.parse()).collect::<Result<_, _>>()?
    };
    let manifest = cut(&model, &digest, dir, &wanted, &mut |_| {})?;
    for piece in manifest.pieces {
        println!("{} {} {}", piece.sha256, piece.bytes, piece.file);
    }
    Ok(())
}
