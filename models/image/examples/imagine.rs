//! Makes a picture: `cargo run -p drift-image --example imagine -- sd.drift "a red cat" cat.png`.

use std::path::Path;

use drift_image::{Error, ImagePipeline, ImageRequest};
use drift_runtime::Options;

fn run(bundle: &str, prompt: &str, output: &str) -> Result<(), Error> {
    let mut pipeline = ImagePipeline::open(Path::new(bundle), &Options::default())?;
    let request = ImageRequest { prompt: prompt.to_owned(), seed: 7, ..ImageRequest::default() };
    let (picture, _) = pipeline.run(&request, &mut |step| {
        println!("step {} of {}: {:?}", step.step + 1, step.steps, step.took);
        Ok(true)
    })?;
    picture.write_png(Path::new(output), &[("prompt", prompt)])
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bundle, prompt, output] = arguments.as_slice() else {
        eprintln!("usage: imagine MODEL.drift PROMPT OUT.png");
        return std::process::ExitCode::FAILURE;
    };
    match run(bundle, prompt, output) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("imagine: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
