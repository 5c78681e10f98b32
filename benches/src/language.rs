//! Arguments and prompts of the benchmarks of language models.

/// Arguments of a bench.
#[derive(Debug)]
pub struct Arguments {
    /// Tokens of the prompt, and how many to generate.
    pub prompt: usize,
    pub tokens: usize,
    pub bundles: Vec<String>,
}

/// The program's arguments: `[--prompt N] [--tokens N] MODEL.drift ...`.
///
/// # Errors
/// When a number is missing.
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

/// Ids of a prompt, within any vocabulary.
pub fn prompt(length: usize) -> Vec<u32> {
    let mut state = 1;
    (0..length).map(|_| draw(&mut state) % 1000 + 3).collect()
}

/// The next number of a linear congruence, below 65536.
pub fn draw(state: &mut u32) -> u32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *state >> 16
}
