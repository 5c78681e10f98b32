//! Measurement of a language model: prompt and decode speed in tokens per second.
//!
//! Test `ppN` evaluates a prompt of N random tokens with an empty KV cache. Test `tgN` generates N tokens one by one
//! after a prompt of one token. Before the measured runs, each test runs once to warm up.

use std::io::Write;

use drift_runtime::{Draft, Generator, Request};
use serde::Serialize;

use super::BenchArgs;
use super::function_print::print_load;
use super::function_report::Load;
use super::opened::{Opened, Size};
use crate::failure::{Failure, Result};
use crate::output::{Out, note, three_digits};
use crate::progress::Progress;

/// Default number of measured runs of each test.
const REPETITIONS: u32 = 5;
/// Maximum number of decode steps in flight.
const FRAMES: usize = 4;

#[derive(Debug, Serialize)]
struct Report {
    device: String,
    driver: String,
    target: String,
    model: String,
    context_length: usize,
    vocabulary: usize,
    sizes: Vec<Size>,
    load: Load,
    tests: Vec<TestReport>,
}

#[derive(Debug, Serialize)]
struct TestReport {
    /// `pp` or `tg`, followed by the number of tokens.
    test: String,
    prompt_tokens: usize,
    decode_tokens: usize,
    repetitions: usize,
    /// Mean over the runs.
    tokens_per_s: f64,
    /// Sample standard deviation of the runs. 0 for a single run.
    deviation: f64,
    /// Tokens per second of each run.
    samples: Vec<f64>,
}

/// Measured phase, with its number of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    Prompt(usize),
    Decode(usize),
}

/// Measures a language model and prints the report.
pub(super) fn run(args: &BenchArgs, opened: Opened, out: &mut Out) -> Result<()> {
    if !opened.dims.is_empty() {
        return Err(Failure::usage(
            "--dim needs a model or a function, but this is the bundle of a language model",
        )
        .help("compile the model with --dim context=N, or add --function NAME"));
    }
    let (model, sizes) = (opened.bundle.manifest().provenance.model_name.clone(), opened.fixed.clone());
    let (session, total) = opened.load(args, FRAMES)?;
    let load = Load::from_session(&session, total);
    let mut generator = Generator::new(session)?;
    let tests = requested_tests(args, generator.context_length());
    let repetitions = args.repeat.unwrap_or(REPETITIONS);
    let progress = Progress::steps("measuring", tests.len().saturating_mul(repetitions as usize));
    let mut reports = Vec::with_capacity(tests.len());
    for test in tests {
        let mut samples = Vec::with_capacity(repetitions as usize);
        measure(&mut generator, test)?;
        for _ in 0..repetitions {
            samples.push(measure(&mut generator, test)?);
            progress.step();
        }
        reports.push(test_report(test, samples));
    }
    drop(progress);
    let session = generator.session();
    let report = Report {
        device: session.device().name.clone(),
        driver: format!("{} {}", session.device().driver_name, session.device().driver_info)
            .trim()
            .to_owned(),
        target: session.variant().target.clone(),
        model,
        context_length: generator.context_length(),
        vocabulary: generator.vocabulary_size(),
        sizes,
        load,
        tests: reports,
    };
    if args.json { out.json(&report) } else { print(&report, out) }
}

/// Tests of the command line. The numbers of tokens are limited by the context length; a note says so.
fn requested_tests(args: &BenchArgs, context: usize) -> Vec<Test> {
    // A prompt leaves room for the token that ends its measurement. Generation starts from one token.
    let limited = |tokens: &[u32], room: usize| -> Vec<usize> {
        let limit = context.saturating_sub(room).max(1);
        let mut counts: Vec<usize> = tokens.iter().map(|n| (*n as usize).min(limit)).collect();
        counts.dedup();
        counts
    };
    let prompts = limited(&args.prompt_tokens, 1);
    let decodes = limited(&args.decode_tokens, 2);
    let longest = args.prompt_tokens.iter().chain(&args.decode_tokens).max().copied().unwrap_or(0);
    if longest as usize + 2 > context {
        note(&format!("the context length is {context} tokens: longer prompts and texts are cut to fit"));
    }
    prompts.into_iter().map(Test::Prompt).chain(decodes.into_iter().map(Test::Decode)).collect()
}

/// Runs a test once. Returns tokens per second.
fn measure(generator: &mut Generator, test: Test) -> Result<f64> {
    let (prompt, max_tokens) = match test {
        Test::Prompt(n) => (n, 1),
        // The first token belongs to the prompt's time.
        Test::Decode(n) => (1, n + 1),
    };
    generator.truncate(0);
    generator.append(&random_tokens(prompt, generator.vocabulary_size()))?;
    let request = Request { max_tokens, ..Request::default() };
    let report = generator.generate(&request, &mut Draft::None, &mut |_| true)?;
    let (tokens, took) = match test {
        Test::Prompt(_) => (report.prompt_tokens, report.prompt_time),
        Test::Decode(_) => (report.tokens.saturating_sub(1), report.decode_time),
    };
    Ok(tokens as f64 / took.as_secs_f64().max(1e-9))
}

/// Token ids of a prompt: the same pseudo-random ids in every run.
fn random_tokens(n: usize, vocabulary: usize) -> Vec<u32> {
    let mut state = 1u64;
    let mut next = || {
        // Multiplier and increment of Knuth's MMIX generator. The upper bits are the most random ones.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((state >> 33) % (vocabulary as u64).max(1)).unwrap_or(0)
    };
    (0..n).map(|_| next()).collect()
}

fn test_report(test: Test, samples: Vec<f64>) -> TestReport {
    let (name, prompt_tokens, decode_tokens) = match test {
        Test::Prompt(n) => (format!("pp{n}"), n, 0),
        Test::Decode(n) => (format!("tg{n}"), 0, n),
    };
    let (tokens_per_s, deviation) = mean_and_deviation(&samples);
    TestReport {
        test: name,
        prompt_tokens,
        decode_tokens,
        repetitions: samples.len(),
        tokens_per_s,
        deviation,
        samples,
    }
}

/// Mean and sample standard deviation. The deviation of fewer than two values is 0.
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0).max(1.0)).sqrt())
}

fn print(report: &Report, out: &mut Out) -> Result<()> {
    let (device, driver, target) = (&report.device, &report.driver, &report.target);
    writeln!(out, "{device} ({driver}), variant {target}")?;
    let (context, vocabulary) = (report.context_length, report.vocabulary);
    writeln!(out, "model           {}, context {context} tokens, vocabulary {vocabulary}", report.model)?;
    print_load(&report.load, out)?;
    writeln!(out)?;
    let mut rows = vec![["test", "tokens/s", "deviation", "runs"].map(str::to_owned).to_vec()];
    for test in &report.tests {
        rows.push(vec![
            test.test.clone(),
            three_digits(test.tokens_per_s),
            format!("± {}", three_digits(test.deviation)),
            test.repetitions.to_string(),
        ]);
    }
    out.table(&[false, true, true, true], &rows)
}

#[cfg(test)]
mod tests {
    use super::{mean_and_deviation, random_tokens};

    #[test]
    fn deviations_are_of_samples() {
        assert_eq!(mean_and_deviation(&[2.0, 4.0, 6.0]), (4.0, 2.0));
        assert_eq!(mean_and_deviation(&[3.0]), (3.0, 0.0));
    }

    #[test]
    fn tokens_are_in_the_vocabulary_and_repeatable() {
        let tokens = random_tokens(1000, 20);
        assert_eq!(tokens, random_tokens(1000, 20));
        assert!((0..20).all(|id| tokens.contains(&id)) && tokens.iter().all(|id| *id < 20));
    }
}
