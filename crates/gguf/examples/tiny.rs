//! Writes a random small llama model: `tiny OUT.gguf [--layers N] [--type Q4_1] …`.

use std::path::PathBuf;
use std::process::ExitCode;

use windlass_gguf::{TensorType, TinySpec, TinyTokenizer, tiny_llama};

const USAGE: &str =
    "usage: tiny OUT.gguf [--layers N] [--embd N] [--ffn N] [--heads N] [--kv-heads N]
    [--head-dim N] [--vocab N] [--context N] [--rope-base X] [--rope-freqs] [--tied]
    [--type F32|F16|Q8_0|Q4_0|Q4_1] [--tokenizer llama|gpt2] [--pre NAME] [--seed N]";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let mut spec = TinySpec::default();
    let mut out: Option<PathBuf> = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--rope-freqs" => spec.rope_freqs = true,
            "--tied" => spec.tied = true,
            "--layers" => spec.layers = number(&value()?)?,
            "--embd" => spec.embd = number(&value()?)?,
            "--ffn" => spec.ffn = number(&value()?)?,
            "--heads" => spec.heads = number(&value()?)?,
            "--kv-heads" => spec.kv_heads = number(&value()?)?,
            "--head-dim" => spec.head_dim = number(&value()?)?,
            "--vocab" => spec.vocab = number(&value()?)?,
            "--context" => spec.context = number(&value()?)?,
            "--rope-base" => spec.rope_base = number(&value()?)?,
            "--seed" => spec.seed = number(&value()?)?,
            "--pre" => spec.pre = value()?,
            "--type" => {
                let name = value()?;
                spec.ty = TensorType::from_name(&name).ok_or(format!("{name}: no such type"))?;
            }
            "--tokenizer" => {
                spec.tokenizer = match value()?.as_str() {
                    "llama" => TinyTokenizer::Spm,
                    "gpt2" => TinyTokenizer::Bpe,
                    other => return Err(format!("{other}: tokenizers are llama and gpt2")),
                }
            }
            other if other.starts_with('-') || out.is_some() => {
                return Err(format!("unexpected {other}\n{USAGE}"));
            }
            path => out = Some(path.into()),
        }
    }
    let out = out.ok_or(USAGE)?;
    tiny_llama(&spec, &out).map_err(|e| e.to_string())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text}: not a number"))
}
