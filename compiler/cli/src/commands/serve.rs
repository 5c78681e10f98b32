//! `driftc serve`: serves models over HTTP with the interface of the OpenAI API.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use drift_chat::{Embedder, PromptEncoder};
use drift_runtime::{Bundle, Generator, Options};
use drift_serve::{Engine, Model, Settings};

use crate::cli_help::SERVER_OPTIONS;
use crate::environment::API_KEY;
use crate::failure::{Failure, Result};
use crate::language::{LoadArgs, OpenedBundle};
use crate::output::{Out, note};
use crate::session;

/// Maximum number of open connections.
const CONNECTIONS: usize = 1024;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Models: bundles, Hugging Face folders, .gguf files or .onnx files; requests name a model by its file name or by NAME
    #[arg(value_name = "[NAME=]OUT.drift | MODEL", required = true)]
    models: Vec<String>,
    /// Listen on this name or address; every address except loopback is open to the network
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", help_heading = SERVER_OPTIONS)]
    host: String,
    /// Listen on this TCP port; 0 selects a free port
    #[arg(long, value_name = "PORT", default_value_t = 8080, help_heading = SERVER_OPTIONS)]
    port: u16,
    /// Generate N answers of each model at once, each with its own KV cache
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = at_least_one, help_heading = SERVER_OPTIONS)]
    slots: usize,
    /// Let N requests of each model wait for a slot; further requests get the status 429
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = SERVER_OPTIONS)]
    queue: usize,
    /// Refuse requests for more than N tokens (default: the context length is the limit)
    #[arg(long, value_name = "N", help_heading = SERVER_OPTIONS)]
    max_tokens: Option<usize>,
    /// Refuse request bodies of more than N bytes
    #[arg(long, value_name = "N", default_value_t = 4 << 20, help_heading = SERVER_OPTIONS)]
    max_body: usize,
    /// Require this key in requests (default: $DRIFTC_API_KEY); other users of the machine can see the command line
    #[arg(long, value_name = "KEY", help_heading = SERVER_OPTIONS)]
    api_key: Option<String>,
    /// Let web pages of this origin use the server; * allows all
    #[arg(long, value_name = "ORIGIN", help_heading = SERVER_OPTIONS)]
    cors: Option<String>,
    /// Cancel requests of clients that send or read nothing for N seconds
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = at_least_one, help_heading = SERVER_OPTIONS)]
    client_timeout: usize,
    /// Finish running requests for at most N seconds after Ctrl-C or SIGTERM
    #[arg(long, value_name = "N", default_value_t = 30, help_heading = SERVER_OPTIONS)]
    grace: usize,
    #[command(flatten)]
    load: LoadArgs,
}

/// Parses a number that is at least 1.
fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "write a number that is at least 1".to_owned())
}

pub(crate) fn run(args: ServeArgs, out: &mut Out) -> Result<()> {
    let ServeArgs { models, load, slots, .. } = &args;
    let models = models.iter().map(|model| open(model, load, *slots)).collect::<Result<Vec<Model>>>()?;
    let seconds = |n: usize| Duration::from_secs(u64::try_from(n).unwrap_or(u64::MAX));
    let variable = API_KEY.value().and_then(|key| key.into_string().ok()).filter(|key| !key.is_empty());
    let settings = Settings {
        host: args.host,
        port: args.port,
        queue: args.queue,
        max_body: args.max_body,
        max_tokens: args.max_tokens,
        api_key: args.api_key.or(variable),
        cors: args.cors,
        client_timeout: seconds(args.client_timeout),
        grace: seconds(args.grace),
        connections: CONNECTIONS,
    };
    let is_protected = settings.api_key.is_some();
    drift_serve::serve(models, settings, &mut |address| {
        if !address.ip().is_loopback() && !is_protected {
            note("everyone in the network can use this server; --api-key KEY requires a key");
        }
        // A closed standard output does not stop the server.
        let _ = writeln!(out, "http://{address}").and_then(|()| out.flush());
    })
    .map_err(|error| failure(&error))
}

/// Loads a model.
fn open(argument: &str, load: &LoadArgs, slots: usize) -> Result<Model> {
    let (id, path) = name_and_path(argument);
    if id.is_empty() || id.chars().any(char::is_control) {
        return Err(Failure::usage(format!("{argument} gives no valid name")).help("write NAME=PATH"));
    }
    let OpenedBundle { path, bundle, options } = load.open(&path)?;
    let mut functions = bundle.manifest().variants.iter().flat_map(|variant| &variant.functions);
    let is_language = functions.any(|function| function.name == "decode");
    let engine = if is_language {
        let encoder = PromptEncoder::from_bundle(&Bundle::open(&path)?)?;
        let encoder = encoder.ok_or(drift_chat::Error::NoTokenizer)?;
        let options = Options { conversations: slots, ..options };
        let generator = Generator::new(session::open(bundle, options)?)?;
        let encoder = encoder.with_vocabulary(generator.vocabulary_size());
        Engine::Language(Box::new(generator), Box::new(encoder))
    } else {
        let embedder = Embedder::new(session::open(bundle, options)?);
        let embedder =
            embedder.map_err(|error| Failure::from(error).context(format!("cannot serve {argument}")))?;
        Engine::Embedding(Box::new(embedder))
    };
    Ok(Model { id, engine })
}

/// Splits an argument into the name of a model and its path. An argument that is an existing path is no `NAME=PATH`.
fn name_and_path(argument: &str) -> (String, PathBuf) {
    match argument.split_once('=') {
        Some((name, path)) if !Path::new(argument).exists() => (name.to_owned(), path.into()),
        _ => {
            let path = PathBuf::from(argument);
            let full = path.canonicalize().unwrap_or_else(|_| path.clone());
            let is_folder = full.is_dir();
            let name = if is_folder { full.file_name() } else { full.file_stem() };
            (name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(), path)
        }
    }
}

fn failure(error: &drift_serve::Error) -> Failure {
    use drift_serve::Error as E;
    let message = error.to_string();
    match error {
        E::Listen { .. } => Failure::input(message).help("choose another --host or --port"),
        E::Start(_) | E::Interrupted => Failure::input(message),
        E::Setting(_) => Failure::usage(message),
    }
}
