//! Times speculative decoding with two models:
//! `cargo bench -p drift-benches --bench drafts -- [--prompt N] [--tokens N] MODEL.drift DRAFT.drift`.
//!
//! The models may have random weights, because the bench sets the acceptance rate. The draft model computes its draft tokens, so
//! that their time counts. The bench then replaces each draft token: with a given probability by the large model's next token, or
//! else by a wrong token. The KV cache of the draft model keeps the tokens before the replacement.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drift_benches::language::{self, Arguments};
use drift_runtime::{Draft, Error, Generator, Options, Request, Session};

/// Simulated probabilities in percent that a draft token is right, if all earlier draft tokens of its run are right.
const CHANCES: [u32; 8] = [0, 50, 60, 70, 80, 90, 95, 100];
/// Number of timed repetitions. The fastest one counts.
const REPEATS: usize = 3;
/// Maximum number of generated texts at one probability. Generation is repeated until [`REPEATS`] texts equal the text from which
/// the right draft tokens are taken.
const ATTEMPTS: usize = 30;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { prompt, tokens, bundles } = language::arguments()?;
    let [model, draft] = bundles.as_slice() else {
        return Err("usage: drafts [--prompt N] [--tokens N] MODEL.drift DRAFT.drift".into());
    };
    let (mut model, draft) = (load(model)?, Arc::new(Mutex::new(load(draft)?)));
    let ids = language::prompt(prompt);
    let request = Request { max_tokens: tokens, ..Request::default() };
    let mut plain = f64::INFINITY;
    for _ in 0..REPEATS {
        plain = plain.min(timed(&mut model, &ids, &request, &mut Draft::None)?.0);
    }
    let plain_text = model.tokens().to_vec();
    println!("plain: {plain:.1} us a token");
    println!(
        "| probability that a draft token is correct | draft tokens | accepted draft tokens | verify runs | us per token | time relative to plain decoding | first tokens equal to plain decoding |"
    );
    println!("|---|---|---|---|---|---|---|");
    for chance in CHANCES {
        let mut best: Option<(f64, usize, usize, usize)> = None;
        // If two logits are nearly equal, a kernel for several rows may select another token than a kernel for one row. The
        // text with draft tokens is then the expected text.
        let (mut text, mut left) = (plain_text.clone(), REPEATS);
        for _ in 0..ATTEMPTS {
            // The draft model has read the prompt too before its time begins.
            let first = Request { max_tokens: 1, ..Request::default() };
            timed(&mut locked(&draft), &ids, &first, &mut Draft::None)?;
            let mut draft_tokens =
                Draft::Function(Box::new(simulated_draft(draft.clone(), text.clone(), chance)));
            let (time, report) = timed(&mut model, &ids, &request, &mut draft_tokens)?;
            if model.tokens() != text {
                text = model.tokens().to_vec();
                continue;
            }
            if best.is_none_or(|best| time < best.0) {
                best = Some((time, report.draft_tokens, report.accepted.iter().sum(), report.accepted.len()));
            }
            left -= 1;
            if left == 0 {
                break;
            }
        }
        let same = text.iter().zip(&plain_text).take_while(|(a, b)| a == b).count() - prompt;
        let Some((time, drafted, right, runs)) = best else {
            println!(
                "| {chance} % | no time: the text differed at every attempt, because logits are nearly equal |"
            );
            continue;
        };
        println!(
            "| {chance} % | {drafted} | {:.0} % | {runs} | {time:.1} | {:.2} | {same} |",
            100.0 * right as f64 / drafted.max(1) as f64,
            time / plain
        );
    }
    Ok(())
}

fn load(path: impl AsRef<Path>) -> Result<Generator, Error> {
    Generator::new(Session::load(path.as_ref(), &Options { frames: 4, ..Options::default() })?)
}

fn locked(draft: &Mutex<Generator>) -> MutexGuard<'_, Generator> {
    draft.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Generates after a prompt; returns the microseconds per generated token and the generator's report.
fn timed(
    model: &mut Generator,
    prompt: &[u32],
    request: &Request,
    draft: &mut Draft,
) -> Result<(f64, drift_runtime::Report), Error> {
    model.truncate(0);
    model.append(prompt)?;
    let report = model.generate(request, draft, &mut |_| true)?;
    Ok((report.decode_time.as_secs_f64() * 1e6 / report.tokens.saturating_sub(1).max(1) as f64, report))
}

/// Draft function that runs `draft`, but returns tokens of `text` (the large model's own continuation) with a probability of
/// `chance` percent, and wrong tokens otherwise.
fn simulated_draft(
    draft: Arc<Mutex<Generator>>,
    text: Vec<u32>,
    chance: u32,
) -> impl FnMut(&[u32], usize) -> Result<Vec<u32>, Error> + Send {
    let (mut state, vocabulary) = (7u32, u32::try_from(locked(&draft).vocabulary_size()).unwrap_or(u32::MAX));
    move |so_far, most| {
        let Some((last, before)) = so_far.split_last() else { return Ok(Vec::new()) };
        let mut draft = locked(&draft);
        draft.truncate(before.len());
        let known = draft.tokens().len();
        draft.append(before.get(known..).unwrap_or_default())?;
        draft.append(&[*last])?;
        let request = Request { max_tokens: most, ..Request::default() };
        let mut ids = Vec::with_capacity(most);
        draft.generate(&request, &mut Draft::None, &mut |id| {
            ids.push(id);
            true
        })?;
        let next = text.get(so_far.len()..).unwrap_or_default();
        Ok(next
            .iter()
            .take(ids.len())
            .map(|id| if language::draw(&mut state) % 100 < chance { *id } else { (id + 1) % vocabulary })
            .collect())
    }
}
