//! Command-line arguments and prompts of the benchmarks of language models.

/// Command-line arguments of a language model benchmark.
#[derive(Debug)]
pub struct Arguments {
    /// Number of tokens of the prompt.
    pub prompt: usize,
    /// Number of tokens to generate.
    pub tokens: usize,
    pub bundles: Vec<String>,
}

/// Parses the program's arguments: `[--prompt N] [--tokens N] MODEL.drift ...`.
///
/// # Errors
/// If no number follows `--prompt` or `--tokens`.
pub fn arguments() -> Result<Arguments, &'static str> {
    let mut out = Arguments { prompt: 1024, tokens: 256, bundles: Vec::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|n| n.parse().ok()).ok_or("a number is missing");
        match argument.as_str() {
            "--prompt" => out.prompt = number()?,
            "--tokens" => out.tokens = number()?,
            "--bench" => {}
            _ => out.bundles.push(argument),
        }
    }
    Ok(out)
}

/// Returns pseudo-random token ids of a prompt, small enough (3 to 1002) for any vocabulary.
pub fn prompt(length: usize) -> Vec<u32> {
    let mut state = 1;
    (0..length).map(|_| draw(&mut state) % 1000 + 3).collect()
}

/// Advances the state of a linear congruential generator and returns a number below 65536.
pub fn draw(state: &mut u32) -> u32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *state >> 16
}
