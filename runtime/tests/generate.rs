//! Tests of text generation with a language model of one kernel, whose tokens a reference implementation gives. Every
//! chunk size, source of draft tokens and number of frames must give the same tokens.

mod common;

use common::language::{Toy, VOCABULARY};
use drift_runtime::format::HostType;
use drift_runtime::{
    Draft, Error, Generator, Observer, Options, Report, Request, Sampling, Session, StopReason,
};

const PROMPT: [u32; 5] = [3, 14, 15, 9, 26];

fn load(toy: Toy, frames: usize) -> Generator {
    let options = Options { frames, conversations: 3, ..Options::default() };
    Generator::new(Session::from_bundle(toy.bundle(), &options).unwrap()).unwrap()
}

fn prompt(length: usize) -> Vec<u32> {
    (0..length).map(|at| u32::try_from(at * at * 7 % VOCABULARY).unwrap()).collect()
}

fn tokens(n: usize) -> Request {
    Request { max_tokens: n, ..Request::default() }
}

/// Generates tokens. Returns the tokens passed to the callback, and the report.
fn run(generator: &mut Generator, request: &Request, draft: &mut Draft) -> (Vec<u32>, Report) {
    let mut ids = Vec::new();
    let report = generator.generate(request, draft, &mut |id| {
        ids.push(id);
        true
    });
    (ids, report.unwrap())
}

#[test]
fn greedy_decoding_selects_the_most_likely_tokens() {
    for frames in [1, 2, 5] {
        for ids in [HostType::I32, HostType::I64] {
            let toy = Toy { ids, ..Toy::default() };
            let mut generator = load(toy, frames);
            assert_eq!((generator.vocabulary_size(), generator.context_length()), (VOCABULARY, 200));
            generator.append(&PROMPT).unwrap();
            let before = generator.session().stats();
            let (given, report) = run(&mut generator, &tokens(40), &mut Draft::None);
            let expected = toy.greedy(&PROMPT, 40);
            assert_eq!(generator.tokens(), expected);
            assert_eq!(given, expected[5..]);
            assert_eq!(
                (report.stop_reason, report.tokens, report.prompt_tokens),
                (StopReason::MaxTokens, 40, 5)
            );
            // Cached tokens are not evaluated again.
            let (_, report) = run(&mut generator, &tokens(10), &mut Draft::None);
            assert_eq!(report.prompt_tokens, 1);
            assert_eq!(generator.tokens(), toy.greedy(&PROMPT, 50));
            let after = generator.session().stats();
            assert_eq!((after.pipelines, after.allocations), (before.pipelines, before.allocations));
        }
    }
}

#[test]
fn chunk_sizes_do_not_change_the_tokens() {
    for (long, prefill, verify) in [
        (0, 0, 0),
        (0, 32, 0),
        (0, 0, 8),
        (0, 7, 3),
        (0, 64, 16),
        (0, 200, 2),
        (0, 1, 1),
        (32, 8, 4),
        (64, 7, 3),
        (9, 8, 0),
        (40, 0, 8),
        (16, 0, 0),
    ] {
        let toy = Toy { long, prefill, verify, counted: verify == 3, ..Toy::default() };
        let mut generator = load(toy, 3);
        for length in [1, 2, 3, 8, 9, 31, 32, 33, 65, 150, 190] {
            let prompt = prompt(length);
            generator.set_tokens(&[]).unwrap();
            generator.append(&prompt).unwrap();
            let (_, report) = run(&mut generator, &tokens(8), &mut Draft::None);
            assert_eq!(
                generator.tokens(),
                toy.greedy(&prompt, 8),
                "prompt of {length} tokens, chunks of {long} (`prefill_long`), {prefill} (`prefill`), {verify} (`verify`)"
            );
            assert_eq!(report.prompt_tokens, length);
        }
    }
}

#[test]
fn conversations_are_truncated_and_extended() {
    let toy = Toy::default();
    let mut generator = load(toy, 4);
    generator.append(&PROMPT).unwrap();
    run(&mut generator, &tokens(20), &mut Draft::None);
    let mut other = toy.greedy(&PROMPT, 12);
    other.extend([1, 2, 3]);
    // The last generated token was not evaluated, so 17 of 25 tokens are reused.
    assert_eq!(generator.set_tokens(&other).unwrap(), 17);
    let (_, report) = run(&mut generator, &tokens(9), &mut Draft::None);
    assert_eq!(report.prompt_tokens, 3);
    assert_eq!(generator.tokens(), toy.greedy(&other, 9));
    // Equal tokens require only the last token to be evaluated.
    generator.set_tokens(&other).unwrap();
    let (_, report) = run(&mut generator, &tokens(9), &mut Draft::None);
    assert_eq!(report.prompt_tokens, 1);
    assert_eq!(generator.tokens(), toy.greedy(&other, 9));
    generator.truncate(4);
    run(&mut generator, &tokens(3), &mut Draft::None);
    assert_eq!(generator.tokens(), toy.greedy(&PROMPT[..4], 3));
}

#[test]
fn stop_tokens_and_the_callback_stop_generation() {
    let toy = Toy::default();
    let expected = toy.greedy(&PROMPT, 30);
    let stop = expected[5 + 11];
    let first = expected[5..].iter().position(|id| *id == stop).unwrap();
    let request = Request { max_tokens: 30, stop_tokens: vec![99, stop], ..Request::default() };
    for frames in [1, 4] {
        for draft in [&mut Draft::None, &mut Draft::NGram] {
            let mut generator = load(toy, frames);
            generator.append(&PROMPT).unwrap();
            let (given, report) = run(&mut generator, &request, draft);
            assert_eq!(report.stop_reason, StopReason::StopToken(stop));
            assert_eq!(given, expected[5..5 + first]);
            assert_eq!(generator.tokens(), &expected[..=5 + first]);
            // Steps submitted ahead have no lasting effect.
            generator.append(&[7, 8]).unwrap();
            let longer = generator.tokens().to_vec();
            run(&mut generator, &tokens(10), draft);
            assert_eq!(generator.tokens(), toy.greedy(&longer, 10));
            let mut n = 0;
            let report = generator.generate(&tokens(30), draft, &mut |_| {
                n += 1;
                n < 4
            });
            assert_eq!(report.unwrap().stop_reason, StopReason::Callback);
            assert_eq!(generator.tokens(), toy.greedy(&longer, 14));
            let report = generator.generate(&tokens(0), draft, &mut |_| true).unwrap();
            assert_eq!((report.tokens, report.stop_reason), (0, StopReason::MaxTokens));
        }
    }
}

/// Returns a draft function that proposes the expected tokens in every other run, and wrong tokens in the other runs.
/// The draft function also returns an invalid token id after the requested ids.
fn every_other_run(expected: Vec<u32>) -> impl FnMut(&[u32], usize) -> Result<Vec<u32>, Error> + Send {
    let (mut run, vocabulary) = (0, u32::try_from(VOCABULARY).unwrap());
    move |tokens, max_draft| {
        let next = &expected[tokens.len()..(tokens.len() + max_draft).min(expected.len())];
        let wrong = run % 2;
        run += 1;
        Ok(next.iter().map(|id| (id + wrong) % vocabulary).chain([u32::MAX]).collect())
    }
}

#[test]
fn draft_tokens_change_only_the_number_of_runs() {
    for memory in [false, true] {
        let toy = Toy { memory, ..Toy::default() };
        let expected = toy.greedy(&PROMPT, 120);
        let similar = Toy { salt: 5, verify: 0, prefill: 16, ..toy };
        let same = Toy { context: 60, ..toy };
        let drafts = [
            ("n-gram", Draft::NGram),
            ("draft model that is often wrong", Draft::Model(Box::new(load(similar, 4)))),
            ("draft model with a context of 60 tokens", Draft::Model(Box::new(load(same, 2)))),
            ("function", Draft::Function(Box::new(every_other_run(expected.clone())))),
        ];
        for (name, mut draft) in drafts {
            let mut generator = load(toy, 2);
            generator.append(&PROMPT).unwrap();
            let (given, report) = run(&mut generator, &tokens(120), &mut draft);
            assert_eq!(given, expected[5..], "{name}");
            let accepted: usize = report.accepted.iter().sum();
            assert!(accepted <= report.draft_tokens && report.accepted.iter().all(|n| *n <= 7), "{name}");
            // After the first runs, the number of draft tokens depends on measured times.
            let first = &report.accepted[..3];
            match name {
                "n-gram" => {
                    let expected = if memory { [0; 3] } else { [4; 3] };
                    assert_eq!(first, expected, "{name}");
                }
                "function" => assert!(
                    report.accepted.iter().enumerate().all(|(run, n)| (*n > 0) == (run % 2 == 0)),
                    "{name}: {:?}",
                    report.accepted
                ),
                "draft model that is often wrong" => {
                    assert_eq!(first, if memory { [0, 0, 4] } else { [2, 4, 0] }, "{name}");
                    assert!(accepted < report.draft_tokens, "{name}: {accepted}");
                }
                // Every draft token is accepted until the draft's context is full.
                _ => assert_eq!(first, [4; 3], "{name}"),
            }
        }
    }
}

#[test]
fn samples_depend_only_on_the_seed() {
    let toy = Toy { memory: false, ..Toy::default() };
    let sampling = Sampling {
        temperature: 0.9,
        top_k: 12,
        top_p: 0.95,
        repetition_penalty: 1.1,
        seed: 7,
        ..Sampling::default()
    };
    let request = Request { max_tokens: 60, sampling: sampling.clone(), ..Request::default() };
    let mut texts = Vec::new();
    for (frames, mut draft) in [
        (1, Draft::None),
        (3, Draft::None),
        (2, Draft::NGram),
        (2, Draft::Model(Box::new(load(Toy { salt: 5, ..toy }, 2)))),
    ] {
        let mut generator = load(toy, frames);
        generator.append(&PROMPT).unwrap();
        run(&mut generator, &request, &mut draft);
        texts.push(generator.tokens().to_vec());
    }
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    assert_ne!(texts[0], toy.greedy(&PROMPT, 60));
    let mut generator = load(toy, 1);
    generator.append(&PROMPT).unwrap();
    let other = Sampling { seed: 8, ..sampling };
    run(&mut generator, &Request { sampling: other, ..request }, &mut Draft::None);
    assert_ne!(generator.tokens(), texts[0]);
    let greedy = Sampling { temperature: 1.0, top_k: 1, ..Sampling::default() };
    generator.set_tokens(&PROMPT).unwrap();
    run(&mut generator, &Request { sampling: greedy, ..tokens(60) }, &mut Draft::None);
    assert_eq!(generator.tokens(), toy.greedy(&PROMPT, 60));
}

#[test]
fn min_p_limits_sampling_to_likely_tokens() {
    let toy = Toy { memory: false, ..Toy::default() };
    // Draws tokens. Returns them, and the lowest probability of one of them relative to the most likely token.
    let drawn = |min_p: f32, draft: &mut Draft| {
        let mut generator = load(toy, 2);
        generator.append(&PROMPT).unwrap();
        let sampling = Sampling { temperature: 2.0, min_p, seed: 3, ..Sampling::default() };
        run(&mut generator, &Request { sampling, ..tokens(80) }, draft);
        let tokens = generator.tokens().to_vec();
        let relative = (5..tokens.len()).map(|at| {
            let logits = toy.logits(&tokens[..at]);
            let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            ((logits[tokens[at] as usize] - most) / 2.0).exp()
        });
        let least = relative.fold(1.0, f32::min);
        (tokens, least)
    };
    let (unlimited, least) = drawn(0.0, &mut Draft::None);
    assert!(least < 0.3, "{least}");
    let (limited, least) = drawn(0.3, &mut Draft::None);
    assert!((0.3..0.9).contains(&least), "{least}");
    assert_ne!(limited, unlimited);
    assert_eq!(drawn(0.3, &mut Draft::NGram).0, limited);
    assert_eq!(drawn(1.0, &mut Draft::None).1, 1.0);
}

/// Observer that records the events of a generation, and stops it once `stop_at` prompt tokens are read.
#[derive(Default)]
struct Record {
    progress: Vec<(usize, usize)>,
    tokens: Vec<(u32, Option<Vec<f32>>)>,
    stop_at: Option<usize>,
}

impl Observer for Record {
    fn prompt(&mut self, read: usize, total: usize) -> bool {
        self.progress.push((read, total));
        self.stop_at.is_none_or(|stop| read < stop)
    }

    fn token(&mut self, id: u32, logits: Option<&[f32]>) -> bool {
        self.tokens.push((id, logits.map(<[f32]>::to_vec)));
        true
    }
}

#[test]
fn the_progress_of_a_prompt_is_reported() {
    let toy = Toy::default();
    let text = prompt(100);
    for frames in [1, 3] {
        let mut generator = load(toy, frames);
        generator.append(&text).unwrap();
        let mut record = Record::default();
        generator.generate_observed(&tokens(3), &mut Draft::None, &mut record).unwrap();
        assert_eq!(record.progress, [(0, 100), (32, 100), (64, 100), (96, 100)]);
        let ids: Vec<u32> = record.tokens.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, toy.greedy(&text, 3)[100..]);
        assert!(record.tokens.iter().all(|(_, logits)| logits.is_none()));
        // Only tokens that the KV cache lacks are counted: the last generated token, and 40 new tokens.
        generator.append(&text[..40]).unwrap();
        let mut record = Record::default();
        let before = generator.tokens().to_vec();
        generator.generate_observed(&tokens(1), &mut Draft::NGram, &mut record).unwrap();
        assert_eq!(record.progress, [(0, 41), (32, 41)]);
        assert_eq!(generator.tokens(), toy.greedy(&before, 1));
    }
}

#[test]
fn an_observer_stops_a_prompt() {
    let toy = Toy::default();
    let text = prompt(100);
    for draft in [&mut Draft::None, &mut Draft::NGram] {
        let mut generator = load(toy, 2);
        generator.append(&text).unwrap();
        let mut record = Record { stop_at: Some(64), ..Record::default() };
        let report = generator.generate_observed(&tokens(3), draft, &mut record).unwrap();
        assert_eq!((report.stop_reason, report.tokens), (StopReason::Callback, 0));
        assert_eq!((report.prompt_tokens, record.tokens.len()), (64, 0));
        assert_eq!(generator.tokens(), text);
        // The tokens read so far stay in the KV cache.
        let (_, report) = run(&mut generator, &tokens(20), draft);
        assert_eq!(report.prompt_tokens, 36);
        assert_eq!(generator.tokens(), toy.greedy(&text, 20));
        // After a stop, another prompt with a common prefix is read too.
        let mut other = text[..70].to_vec();
        other.extend([1, 2, 3]);
        generator.set_tokens(&[]).unwrap();
        generator.append(&text).unwrap();
        let mut record = Record { stop_at: Some(1), ..Record::default() };
        generator.generate_observed(&tokens(3), draft, &mut record).unwrap();
        assert_eq!(generator.set_tokens(&other).unwrap(), 32);
        run(&mut generator, &tokens(9), draft);
        assert_eq!(generator.tokens(), toy.greedy(&other, 9));
    }
}

#[test]
fn an_observer_receives_the_logits_of_each_token() {
    let toy = Toy { memory: false, ..Toy::default() };
    let expected = toy.greedy(&PROMPT, 45);
    let sampling = Sampling { temperature: 1.0, seed: 2, ..Sampling::default() };
    for (mut draft, sampling) in [(Draft::None, None), (Draft::NGram, None), (Draft::NGram, Some(sampling))] {
        let mut generator = load(toy, 2);
        generator.append(&PROMPT).unwrap();
        let mut record = Record::default();
        let greedy = sampling.is_none();
        let request = Request { logits: true, sampling: sampling.unwrap_or_default(), ..tokens(45) };
        let report = generator.generate_observed(&request, &mut draft, &mut record).unwrap();
        if greedy {
            assert_eq!(report.draft_tokens > 0, matches!(draft, Draft::NGram));
        }
        assert_eq!(record.tokens.len(), 45);
        for (at, (id, logits)) in record.tokens.iter().enumerate() {
            let before = &generator.tokens()[..5 + at];
            assert_eq!(logits.as_deref(), Some(&toy.logits(before)[..]), "token {at}");
            assert_eq!(*id, generator.tokens()[5 + at]);
        }
        assert_eq!(generator.tokens() == expected, greedy);
    }
}

#[test]
fn a_generation_in_several_calls_gives_the_tokens_of_one_call() {
    let toy = Toy { memory: false, ..Toy::default() };
    let sampling = Sampling { temperature: 0.9, seed: 7, ..Sampling::default() };
    let mut generator = load(toy, 3);
    let request = Request { sampling, ..tokens(40) };
    generator.append(&PROMPT).unwrap();
    run(&mut generator, &request, &mut Draft::None);
    let whole = generator.tokens().to_vec();
    for slice in [1, 7] {
        generator.set_tokens(&PROMPT).unwrap();
        for generated in (0..40).step_by(slice) {
            let max_tokens = slice.min(40 - generated);
            let request = Request { max_tokens, generated, ..request.clone() };
            run(&mut generator, &request, &mut Draft::None);
        }
        assert_eq!(generator.tokens(), whole, "slices of {slice} tokens");
    }
    // Without the number of earlier tokens, the random numbers repeat.
    generator.set_tokens(&PROMPT).unwrap();
    for _ in 0..5 {
        run(&mut generator, &Request { max_tokens: 8, ..request.clone() }, &mut Draft::None);
    }
    assert_ne!(generator.tokens(), whole);
}

#[test]
fn exact_prompts_keep_only_runs_that_an_empty_conversation_needs() {
    let toy = Toy::default();
    let mut generator = load(toy, 2);
    let long = prompt(100);
    // A prompt of 100 tokens is read in chunks of 32, and the rest of 4 tokens by `verify`.
    assert_eq!(generator.set_tokens_exactly(&long).unwrap(), 0);
    run(&mut generator, &tokens(5), &mut Draft::None);
    let answer = generator.tokens().to_vec();
    assert_eq!(generator.set_tokens_exactly(&long).unwrap(), 96);
    run(&mut generator, &tokens(5), &mut Draft::None);
    assert_eq!(generator.tokens(), answer);
    // Generated tokens were cached by `decode`, but a prompt reads them in a chunk.
    let next: Vec<u32> = answer.iter().copied().chain(prompt(20)).collect();
    assert_eq!(generator.set_tokens_exactly(&next).unwrap(), 96);
    run(&mut generator, &tokens(3), &mut Draft::None);
    assert_eq!(generator.tokens(), toy.greedy(&next, 3));
    // The runs of 32 tokens end before the first different token.
    let mut other = long.clone();
    other[70] += 1;
    assert_eq!(generator.set_tokens_exactly(&other).unwrap(), 64);
    run(&mut generator, &tokens(3), &mut Draft::None);
    assert_eq!(generator.tokens(), toy.greedy(&other, 3));
    // A cached prompt that ends inside a run of the new one is no equal run.
    generator.set_tokens_exactly(&long[..50]).unwrap();
    run(&mut generator, &tokens(1), &mut Draft::None);
    assert_eq!(generator.set_tokens_exactly(&long).unwrap(), 32);
    // Runs of removed tokens do not count.
    run(&mut generator, &tokens(1), &mut Draft::None);
    generator.truncate(40);
    run(&mut generator, &tokens(1), &mut Draft::None);
    assert_eq!(generator.set_tokens_exactly(&long).unwrap(), 32);
    run(&mut generator, &tokens(4), &mut Draft::None);
    assert_eq!(generator.tokens(), toy.greedy(&long, 4));
}

#[test]
fn conversations_are_independent() {
    let toy = Toy::default();
    let mut generator = load(toy, 2);
    let prompts = [prompt(40), PROMPT.to_vec(), vec![5]];
    for (index, prompt) in prompts.iter().enumerate() {
        generator.choose_conversation(index).unwrap();
        generator.append(prompt).unwrap();
    }
    for round in 1..4 {
        for (index, prompt) in prompts.iter().enumerate() {
            generator.choose_conversation(index).unwrap();
            run(&mut generator, &tokens(5), &mut Draft::None);
            assert_eq!(generator.tokens(), toy.greedy(prompt, 5 * round));
        }
    }
    assert!(matches!(
        generator.choose_conversation(3),
        Err(Error::NoSuchConversation { given: 3, count: 3 })
    ));
    assert_eq!(generator.tokens(), toy.greedy(&prompts[2], 15));
}

#[test]
fn conversations_are_saved_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("conversation");
    let toy = Toy::default();
    let mut generator = load(toy, 3);
    generator.append(&PROMPT).unwrap();
    run(&mut generator, &tokens(20), &mut Draft::None);
    generator.save(&path).unwrap();
    let expected = toy.greedy(&PROMPT, 30);
    let mut other = load(toy, 1);
    other.choose_conversation(2).unwrap();
    other.append(&[1]).unwrap();
    other.restore(&path).unwrap();
    assert_eq!(other.tokens(), &expected[..25]);
    let (_, report) = run(&mut other, &tokens(10), &mut Draft::None);
    assert_eq!(other.tokens(), expected);
    assert_eq!(report.prompt_tokens, 1);
    // States saved without tokens are no conversation.
    let mut session = Session::from_bundle(toy.bundle(), &Options::default()).unwrap();
    session.save_states(&path, b"note").unwrap();
    assert!(matches!(other.restore(&path), Err(Error::States { .. })));
    let mut larger = load(Toy { context: 201, ..toy }, 1);
    assert!(matches!(larger.restore(&path), Err(Error::States { .. })));
}

#[test]
fn logits_of_every_position_are_correct() {
    for verify in [0, 8] {
        let toy = Toy { verify, ..Toy::default() };
        let mut generator = load(toy, 2);
        for length in [1, 8, 13, 200] {
            let text = prompt(length);
            let mut n = 0;
            let each = &mut |logits: &[f32]| {
                n += 1;
                assert_eq!(logits, toy.logits(&text[..n]), "position {n} of {length}");
                Ok(())
            };
            generator.logits(&text, each).unwrap();
            assert_eq!(n, length);
        }
    }
}

#[test]
fn prefill_logits_of_every_position_are_correct() {
    // The last chunk does not fit the context of 200 tokens.
    let toy = Toy { prefill: 32, ..Toy::default() };
    let mut generator = load(toy, 2);
    for length in [1, 32, 45, 200] {
        let text = prompt(length);
        let mut n = 0;
        let each = &mut |logits: &[f32]| {
            n += 1;
            assert_eq!(logits, toy.logits(&text[..n]), "position {n} of {length}");
            Ok(())
        };
        generator.prefill_logits(&text, each).unwrap();
        assert_eq!(n, length);
    }
    generator.set_tokens(&prompt(150)).unwrap();
    run(&mut generator, &tokens(3), &mut Draft::None);
    assert_eq!(generator.tokens(), toy.greedy(&prompt(150), 3));
    let error = load(Toy { prefill: 0, ..toy }, 2).prefill_logits(&prompt(3), &mut |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("no function `prefill`"), "{error}");
}

#[test]
fn a_full_context_is_an_error() {
    let toy = Toy { context: 50, ..Toy::default() };
    for mut draft in [Draft::None, Draft::NGram] {
        let mut generator = load(toy, 4);
        let error = generator.append(&prompt(51)).unwrap_err();
        assert!(matches!(error, Error::ContextFull { needed: 51, context: 50 }), "{error}");
        generator.append(&prompt(44)).unwrap();
        let mut given = Vec::new();
        let failed = generator.generate(&tokens(20), &mut draft, &mut |id| {
            given.push(id);
            true
        });
        assert!(matches!(failed, Err(Error::ContextFull { needed: 51, context: 50 })), "{failed:?}");
        // The last token is known but does not fit the context.
        assert_eq!(generator.tokens(), toy.greedy(&prompt(44), 7));
        assert_eq!(given, generator.tokens()[44..]);
        assert!(generator.generate(&tokens(1), &mut draft, &mut |_| true).is_err());
        generator.truncate(20);
        run(&mut generator, &tokens(4), &mut draft);
        assert_eq!(generator.tokens(), toy.greedy(&prompt(20), 4));
    }
}

#[test]
fn invalid_requests_are_errors() {
    let mut generator = load(Toy::default(), 1);
    assert!(matches!(
        generator.generate(&tokens(1), &mut Draft::None, &mut |_| true),
        Err(Error::EmptyPrompt)
    ));
    let error = generator.append(&[1, 32]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "token id 32 is outside the model's vocabulary of 32 tokens; the ids belong to another model"
    );
    assert!(generator.append(&[u32::MAX]).is_err() && generator.tokens().is_empty());
    generator.append(&[1]).unwrap();
    let sampling = Sampling { top_p: 2.0, ..Sampling::default() };
    let request = Request { sampling, ..tokens(1) };
    let error = generator.generate(&request, &mut Draft::None, &mut |_| true).unwrap_err();
    assert_eq!(error.to_string(), "top_p is 2, but must be above 0 and at most 1");
    assert!(generator.logits(&[40], &mut |_| Ok(())).is_err());
}

#[test]
fn bundles_without_a_language_model_are_rejected() {
    let open = |bundle| Session::from_bundle(bundle, &Options::default()).unwrap();
    let refused = |bundle| match Generator::new(open(bundle)) {
        Err(Error::NotALanguageModel { reason }) => reason,
        other => panic!("{:?}", other.map(|_| ())),
    };
    let small = drift_runtime::Bundle::from_vec(common::small_bundle()).unwrap();
    assert_eq!(refused(small), "the bundle has no function `decode`, only: main, scale, sum");
    let toy = Toy::default();
    let name = |part: fn(&mut drift_runtime::format::Function) -> &mut String| {
        refused(toy.edited(&move |variant| *part(&mut variant.functions[2]) = "other".to_owned()))
    };
    assert_eq!(name(|decode| &mut decode.inputs[0].name), "function `decode` has no input `ids`");
    assert_eq!(name(|decode| &mut decode.outputs[0].name), "function `decode` has no output `next`");
    assert_eq!(name(|decode| &mut decode.outputs[1].name), "function `decode` has no output `logits`");
    assert_eq!(name(|decode| &mut decode.symbols[0].name), "function `decode` has no symbol `past`");
    let wrong = refused(toy.edited(&|variant| variant.functions[2].outputs[1].host_type = HostType::F64));
    assert_eq!(wrong, "function `decode` has no output `logits` of shape [1, vocabulary], f32");
    let many = refused(toy.edited(&|variant| {
        variant.functions.pop();
        variant.functions[0].name = "decode".to_owned();
    }));
    assert_eq!(many, "`decode` takes 32 ids, not 1");
}
