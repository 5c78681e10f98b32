//! Times how fast bundles of language models read a prompt and generate:
//! `cargo bench -p drift-benches --bench generate -- [--prompt N] [--tokens N] MODEL.drift ...`.
//!
//! The host receives each token id as it comes. The breakdown of each function is from one run with timestamps: time by kernel,
//! and the number of dispatches and phases.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use drift_benches::language::{self, Arguments};
use drift_runtime::{Draft, Generator, Options, Request, Session};

/// Number of timed repetitions after the first. The fastest one counts.
const REPEATS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { prompt, tokens, bundles } = language::arguments()?;
    println!(
        "| bundle | weights MB | load ms | prompt tok/s | decode tok/s | us per token | time to read the weights at 4.5 TB/s, in % of the time per token |"
    );
    println!("|---|---|---|---|---|---|---|");
    for bundle in bundles {
        measure(Path::new(&bundle), prompt, tokens)?;
    }
    Ok(())
}

fn measure(path: &Path, prompt: usize, tokens: usize) -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let session = Session::load(path, &Options { frames: 4, ..Options::default() })?;
    let load = start.elapsed().as_secs_f64() * 1e3;
    let long = session.variant().functions.iter().any(|function| function.name == "prefill_long");
    let weights: u64 = session.variant().weights.iter().map(|slot| slot.size).sum();
    let mut generator = Generator::new(session)?;
    let ids = language::prompt(prompt);
    let (mut reading, mut writing) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..=REPEATS {
        generator.truncate(0);
        generator.append(&ids)?;
        let request = Request { max_tokens: tokens, ..Request::default() };
        let report = generator.generate(&request, &mut Draft::None, &mut |_| true)?;
        reading = reading.min(report.prompt_time.as_secs_f64());
        writing = writing.min(report.decode_time.as_secs_f64() / report.tokens.max(1) as f64);
    }
    // Time to read all weights once at 4.5 TB/s, the floor of the breakdown.
    let floor = weights as f64 / 4.5e12;
    println!(
        "| {} | {:.0} | {load:.0} | {:.0} | {:.1} | {:.1} | {:.0} % |",
        path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default(),
        weights as f64 / 1e6,
        prompt as f64 / reading,
        1.0 / writing,
        writing * 1e6,
        100.0 * floor / writing
    );
    for function in ["decode", "prefill"].into_iter().chain(long.then_some("prefill_long")) {
        budget(path, function, prompt)?;
    }
    Ok(())
}

/// Prints the total time of the eight slowest kernels in a run of the function `name` after `past` tokens.
fn budget(path: &Path, name: &str, past: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut session = Session::load(path, &Options::default())?;
    let ids = session.smallest_input(name, "ids")?;
    session.write_input(name, "ids", ids.as_ref())?;
    let symbols = session.function(name)?.symbols.clone();
    for symbol in &symbols {
        let value = if symbol.name == "past" { symbol.max.min(past as i64) } else { symbol.max };
        session.set_symbol(name, &symbol.name, value)?;
    }
    session.replay_on_device(name)?;
    let times = session.replay_timed(name)?;
    let function = session.function(name)?;
    let pipelines = &session.variant().pipelines;
    let mut sums: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for time in &times {
        let kernel = function
            .dispatches
            .get(time.dispatch)
            .and_then(|dispatch| pipelines.get(dispatch.pipeline as usize))
            .map_or("", |pipeline| pipeline.name.as_str());
        let sum = sums.entry(kernel).or_default();
        *sum = (sum.0 + 1, sum.1 + (time.end - time.start) / 1e3);
    }
    let phases = function.dispatches.iter().filter(|dispatch| dispatch.barrier_before).count() + 1;
    let whole = times.last().map_or(0.0, |time| time.end / 1e3);
    println!(
        "  function {name}: {} dispatches in {phases} phases, {whole:.1} us in a run with timestamps",
        times.len()
    );
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
    for (kernel, (count, us)) in sums.into_iter().take(8) {
        println!("    {us:>9.1} us  {count:>4} x {kernel}");
    }
    Ok(())
}
