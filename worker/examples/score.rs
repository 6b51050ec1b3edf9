//! Scores token ids with a model file, for comparison with other implementations.
//!
//! `score MODEL.gguf IDS.json [--chunk N] [--threads N] [--greedy N] [--ban ID,ID] [--rows FILE] [--time]`
//!
//! IDS.json is a list of ids or a list of such lists. Without `--greedy`, writes teacher-forced
//! log-probabilities: with `--rows` full rows as little-endian f32, list after list, else the mean
//! of the given tokens'. With `--greedy`, prints for each list the ids that follow, and the two best
//! log-probabilities at each step. With `--time`, prints the speed of both parts.
#![allow(
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a command for tests; a bad index ends it"
)]

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use windlass_wire::frame::RowEntry;
use windlass_worker::engine::{Engine, FileOptions};

struct Options {
    model: PathBuf,
    lists: Vec<Vec<u32>>,
    chunk: usize,
    threads: u32,
    greedy: usize,
    ban: Vec<usize>,
    rows: Option<PathBuf>,
    time: bool,
}

fn options() -> Result<Options> {
    let mut args = std::env::args().skip(1);
    let model = args
        .next()
        .context("usage: score MODEL.gguf IDS.json ...")?;
    let ids = args.next().context("the file with the ids is missing")?;
    let text = std::fs::read_to_string(&ids).with_context(|| format!("reading {ids}"))?;
    let lists = serde_json::from_str(&text)
        .or_else(|_| serde_json::from_str(&text).map(|list: Vec<u32>| vec![list]))
        .with_context(|| format!("{ids} is not a list of ids"))?;
    let mut options = Options {
        model: model.into(),
        lists,
        chunk: 256,
        threads: 1,
        greedy: 0,
        ban: Vec::new(),
        rows: None,
        time: false,
    };
    while let Some(flag) = args.next() {
        if flag == "--time" {
            options.time = true;
            continue;
        }
        let value = args
            .next()
            .with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--chunk" => options.chunk = value.parse()?,
            "--threads" => options.threads = value.parse()?,
            "--greedy" => options.greedy = value.parse()?,
            "--ban" => {
                options.ban = value.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            "--rows" => options.rows = Some(value.into()),
            _ => bail!("unknown option {flag}"),
        }
    }
    Ok(options)
}

/// Runs tokens of sequence 0 from position `from`; leaves their hidden states in `hidden`.
fn advance(engine: &mut Engine, ids: &[u32], from: usize, hidden: &mut Vec<f32>) -> Result<()> {
    engine.embed(ids, hidden)?;
    let rows: Vec<RowEntry> = (from..from + ids.len())
        .map(|pos| RowEntry {
            seq: 0,
            pos: pos as u32,
            flags: 0,
        })
        .collect();
    Ok(engine.forward(&rows, hidden)?)
}

fn log_softmax(row: &mut [f32]) {
    let best = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    let sum: f64 = row.iter().map(|&l| f64::from(l - best).exp()).sum();
    let norm = f64::from(best) + sum.ln();
    row.iter_mut()
        .for_each(|l| *l = (f64::from(*l) - norm) as f32);
}

fn main() -> Result<()> {
    let options = options()?;
    let longest = options.lists.iter().map(Vec::len).max().unwrap_or(0) + options.greedy;
    let mut engine = Engine::load_file(
        &options.model,
        &FileOptions {
            context: longest as u32,
            kv_blocks: longest.div_ceil(32) as u32,
            threads: options.threads,
            ..FileOptions::default()
        },
    )?;
    let (width, vocab) = (engine.hidden(), engine.vocab());
    let (mut hidden, mut logits) = (Vec::new(), Vec::new());
    let mut file = match &options.rows {
        Some(path) => Some(std::io::BufWriter::new(std::fs::File::create(path)?)),
        None => None,
    };
    for list in &options.lists {
        engine.reset();
        let started = Instant::now();
        let (mut sum, mut counted) = (0.0f64, 0);
        for (i, part) in list.chunks(options.chunk).enumerate() {
            let from = i * options.chunk;
            advance(&mut engine, part, from, &mut hidden)?;
            if options.greedy > 0 || options.time {
                continue;
            }
            engine.logits(&hidden, &mut logits)?;
            for (j, row) in logits.chunks_exact_mut(vocab).enumerate() {
                log_softmax(row);
                if let Some(&next) = list.get(from + j + 1) {
                    sum += f64::from(row[next as usize]);
                    counted += 1;
                }
                if let Some(file) = &mut file {
                    for value in row {
                        file.write_all(&value.to_le_bytes())?;
                    }
                }
            }
        }
        let prefill = started.elapsed().as_secs_f64();
        if options.time {
            println!(
                "prefill: {} tokens, {:.1} tokens/s",
                list.len(),
                list.len() as f64 / prefill
            );
        } else if options.greedy == 0 {
            println!(
                "{{\"tokens\":{counted},\"mean_logprob\":{}}}",
                sum / f64::from(counted.max(1))
            );
        }
        if options.greedy == 0 {
            continue;
        }
        let started = Instant::now();
        let (mut ids, mut best_two) = (Vec::new(), Vec::new());
        let mut last = hidden[hidden.len() - width..].to_vec();
        for step in 0..options.greedy {
            engine.logits(&last, &mut logits)?;
            log_softmax(&mut logits);
            for &id in &options.ban {
                logits[id] = f32::NEG_INFINITY;
            }
            let mut best = [(0, f32::NEG_INFINITY); 2];
            for (id, &l) in logits.iter().enumerate() {
                if l > best[0].1 {
                    best = [(id, l), best[0]];
                } else if l > best[1].1 {
                    best[1] = (id, l);
                }
            }
            ids.push(best[0].0);
            best_two.push([best[0].1, best[1].1]);
            if step + 1 < options.greedy {
                advance(
                    &mut engine,
                    &[best[0].0 as u32],
                    list.len() + step,
                    &mut last,
                )?;
            }
        }
        if options.time {
            let decode = started.elapsed().as_secs_f64();
            println!(
                "decode: {} tokens, {:.1} tokens/s",
                ids.len(),
                ids.len() as f64 / decode
            );
        } else {
            println!(
                "{}",
                serde_json::json!({ "ids": ids, "best_two": best_two })
            );
        }
    }
    Ok(())
}
