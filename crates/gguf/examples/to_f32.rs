//! Writes the same model with all weights dequantised to F32: `to_f32 IN.gguf OUT.gguf`.

use std::path::Path;
use std::process::ExitCode;

use windlass_gguf::{MappedGguf, write_f32};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [source, out] = args.as_slice() else {
        eprintln!("usage: to_f32 IN.gguf OUT.gguf");
        return ExitCode::from(2);
    };
    match MappedGguf::open(source).and_then(|model| write_f32(&model, Path::new(out))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
