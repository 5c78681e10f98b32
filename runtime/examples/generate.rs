//! The smallest program that runs a language model. `generate MODEL.drift 1 15043 29892` prints the 32 token ids that
//! the model generates after the ids 1, 15043 and 29892.
use drift_runtime::{Draft, Error, Generator, Options, Request, Session};

fn run(path: &str, prompt: &[u32]) -> Result<(), Error> {
    let options = Options { frames: 4, ..Options::default() };
    let mut generator = Generator::new(Session::load(path.as_ref(), &options)?)?;
    generator.append(prompt)?;
    let request = Request { max_tokens: 32, ..Request::default() };
    let report = generator.generate(&request, &mut Draft::NGram, &mut |id| {
        println!("{id}");
        true
    })?;
    let accepted: usize = report.accepted.iter().sum();
    println!("{} tokens, {accepted} of {} draft tokens accepted", report.tokens, report.draft_tokens);
    Ok(())
}

fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_default();
    let ids: Result<Vec<u32>, _> = arguments.map(|id| id.parse()).collect();
    match ids.map(|ids| run(&path, &ids)) {
        Ok(Ok(())) => return std::process::ExitCode::SUCCESS,
        Ok(Err(error)) => eprintln!("generate: {error}"),
        Err(_) => eprintln!("usage: generate MODEL.drift ID ..."),
    }
    std::process::ExitCode::FAILURE
}
