//! What speculative decoding gains: `cargo bench -p drift-benches --bench drafts -- [--prompt N] [--tokens N] MODEL.drift
//! DRAFT.drift`. The models may have random weights, so that guesses are right as often as is asked for: the draft computes
//! its guesses, of which the bench replaces each with what the model goes on with, or with another id, by chance. A draft's
//! caches hold its own guesses, as they would of guesses that were taken over.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drift_benches::language::{self, Arguments};
use drift_runtime::{Draft, Error, Generator, Options, Request, Session};

/// How often a guess is right, in percent, while all before it in its run are.
const CHANCES: [u32; 8] = [0, 50, 60, 70, 80, 90, 95, 100];
/// Repetitions, of which the fastest counts.
const REPEATS: usize = 3;
/// Runs at most until guesses leave the text as it is so often.
const ATTEMPTS: usize = 30;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Arguments { prompt, tokens, bundles } = language::arguments()?;
    let [model, draft] = bundles.as_slice() else { return Err("MODEL.drift DRAFT.drift are missing".into()) };
    let (mut model, draft) = (load(model)?, Arc::new(Mutex::new(load(draft)?)));
    let ids = language::prompt(prompt);
    let request = Request { max_tokens: tokens, ..Request::default() };
    let mut plain = f64::INFINITY;
    for _ in 0..REPEATS {
        plain = plain.min(timed(&mut model, &ids, &request, &mut Draft::None)?.0);
    }
    let plain_text = model.text().to_vec();
    println!("plain: {plain:.1} us a token");
    println!(
        "| chance of a guess | guesses | of them right | runs | us a token | of plain | tokens as without |"
    );
    println!("|---|---|---|---|---|---|---|");
    for chance in CHANCES {
        let mut best: Option<(f64, usize, usize, usize)> = None;
        // Where logits are nearly equal, several rows at a time may give another token than one row: the text is then
        // what guesses give.
        let (mut text, mut left) = (plain_text.clone(), REPEATS);
        for _ in 0..ATTEMPTS {
            // The draft has read the prompt too, as the model has when its time begins.
            let first = Request { max_tokens: 1, ..Request::default() };
            timed(&mut locked(&draft), &ids, &first, &mut Draft::None)?;
            let mut guesses = Draft::Function(Box::new(guesses(draft.clone(), text.clone(), chance)));
            let (time, report) = timed(&mut model, &ids, &request, &mut guesses)?;
            if model.text() != text {
                text = model.text().to_vec();
                continue;
            }
            if best.is_none_or(|best| time < best.0) {
                best = Some((time, report.drafted, report.accepted.iter().sum(), report.accepted.len()));
            }
            left -= 1;
            if left == 0 {
                break;
            }
        }
        let same = text.iter().zip(&plain_text).take_while(|(a, b)| a == b).count() - prompt;
        let Some((time, drafted, right, runs)) = best else {
            println!("| {chance} % | no text that guesses do not change was found |");
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

/// Microseconds a token behind a prompt, and the report.
fn timed(
    model: &mut Generator,
    prompt: &[u32],
    request: &Request,
    draft: &mut Draft,
) -> Result<(f64, drift_runtime::Report), Error> {
    model.shorten(0);
    model.append(prompt)?;
    let report = model.generate(request, draft, &mut |_| true)?;
    Ok((report.decode_time.as_secs_f64() * 1e6 / report.tokens.saturating_sub(1).max(1) as f64, report))
}

/// Guesses that cost what those of `draft` do, and are right by chance: `text` is what the model goes on with.
fn guesses(
    draft: Arc<Mutex<Generator>>,
    text: Vec<u32>,
    chance: u32,
) -> impl FnMut(&[u32], usize) -> Result<Vec<u32>, Error> + Send {
    let (mut state, vocabulary) = (7u32, u32::try_from(locked(&draft).vocabulary()).unwrap_or(u32::MAX));
    move |so_far, most| {
        let Some((last, before)) = so_far.split_last() else { return Ok(Vec::new()) };
        let mut draft = locked(&draft);
        draft.shorten(before.len());
        let known = draft.text().len();
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
