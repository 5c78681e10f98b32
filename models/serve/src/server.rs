//! The models of a server, their threads, and the state that requests share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use drift_chat::PromptEncoder;

use crate::access::Access;
use crate::api_error::{ApiError, ApiResult};
use crate::error::{Error, Result};
use crate::job::{Embedding, Generation};
use crate::metrics::{Metrics, ModelState};
use crate::model::{Engine, Model};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::{embedding_worker, language_worker};

/// State that all requests share.
pub(crate) struct Server {
    pub(crate) settings: Settings,
    pub(crate) access: Access,
    pub(crate) models: Vec<Served>,
    pub(crate) metrics: Metrics,
    /// Start of the server, in seconds since 1970.
    pub(crate) started: u64,
}

/// Model with its thread.
pub(crate) struct Served {
    pub(crate) id: String,
    pub(crate) shared: Arc<Shared>,
    pub(crate) jobs: Jobs,
}

/// Sender of requests to the thread of a model.
pub(crate) enum Jobs {
    /// Requests to a language model.
    Language(Sender<Generation>, Arc<Language>),
    /// Requests to an embedding model.
    Embedding(Sender<Embedding>),
}

/// Facts of a language model for checking requests.
pub(crate) struct Language {
    pub(crate) encoder: PromptEncoder,
    /// Context length in tokens.
    pub(crate) context: usize,
}

impl Served {
    /// Returns the error of requests to a model that failed.
    pub(crate) fn unavailable(&self) -> ApiError {
        let reason = self.shared.failure().unwrap_or("its thread ended");
        ApiError::unavailable(format!("model `{}` failed: {reason}; restart the server", self.id))
            .code("model_failed")
    }

    /// Present state for the metrics.
    pub(crate) fn state(&self) -> ModelState<'_> {
        let Shared { queue, metrics, .. } = self.shared.as_ref();
        ModelState {
            id: &self.id,
            metrics,
            waiting: queue.waiting(),
            running: queue.running(),
            slots: queue.slots(),
            failed: self.shared.failure().is_some(),
        }
    }
}

impl Server {
    /// Starts a thread for each model. Returns the server and the threads.
    ///
    /// # Errors
    /// If two models have one name, a setting is invalid, or a thread cannot start.
    pub(crate) fn start(models: Vec<Model>, settings: Settings) -> Result<(Self, Vec<JoinHandle<()>>)> {
        let access = Access::new(&settings)?;
        let mut threads = Vec::new();
        let mut all: Vec<Served> = Vec::new();
        for model in models {
            if all.iter().any(|other| other.id == model.id) {
                return Err(Error::Setting(format!(
                    "two models are called `{}`; name one of them with NAME=PATH",
                    model.id
                )));
            }
            let (served, thread) = start_model(model, &settings)?;
            all.push(served);
            threads.push(thread);
        }
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Ok((Self { settings, access, models: all, metrics: Metrics::default(), started }, threads))
    }

    /// Returns the model that a request names. A request without a name uses the only model.
    ///
    /// # Errors
    /// If there is no such model, or it has failed.
    pub(crate) fn model(&self, name: Option<&str>) -> ApiResult<&Served> {
        let model = match (name, self.models.as_slice()) {
            (None, [only]) => only,
            (None, _) => {
                return Err(ApiError::invalid("model", "`model` is missing; GET /v1/models lists the names"));
            }
            (Some(name), models) => {
                models.iter().find(|model| model.id == name).ok_or_else(|| no_such_model(name))?
            }
        };
        match model.shared.failure() {
            Some(_) => Err(model.unavailable()),
            None => Ok(model),
        }
    }
}

/// Returns the error of a request that names an unknown model.
pub(crate) fn no_such_model(name: &str) -> ApiError {
    let short: String = name.chars().take(100).collect();
    let message = format!("the model `{short}` does not exist; GET /v1/models lists the names");
    ApiError::new(StatusCode::NOT_FOUND, message).code("model_not_found")
}

fn start_model(model: Model, settings: &Settings) -> Result<(Served, JoinHandle<()>)> {
    let slots = match &model.engine {
        Engine::Language(generator, _) => generator.session().conversations(),
        Engine::Embedding(_) => 1,
    };
    let shared = Shared::new(slots, settings);
    let (id, own) = (model.id, shared.clone());
    let (jobs, thread) = match model.engine {
        Engine::Language(generator, encoder) => {
            let (sender, receiver) = mpsc::channel();
            let language = Arc::new(Language { encoder: *encoder, context: generator.context_length() });
            let for_thread = language.clone();
            let work = move || language_worker::run(*generator, &for_thread.encoder, &receiver, &own);
            (Jobs::Language(sender, language), spawn(&id, &shared, work)?)
        }
        Engine::Embedding(embedder) => {
            let (sender, receiver) = mpsc::channel();
            let work = move || embedding_worker::run(*embedder, &receiver, &own);
            (Jobs::Embedding(sender), spawn(&id, &shared, work)?)
        }
    };
    Ok((Served { id, shared, jobs }, thread))
}

/// Starts the thread of a model. If the work fails or panics, the model is marked as failed.
fn spawn(
    id: &str,
    shared: &Arc<Shared>,
    work: impl FnOnce() -> Result<(), drift_chat::Error> + Send + 'static,
) -> Result<JoinHandle<()>> {
    let (id, shared) = (id.to_owned(), shared.clone());
    let thread = move || {
        let reason = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "its thread panicked, which is a bug in driftc".to_owned(),
        };
        eprintln!("error: model `{id}` failed: {reason}");
        shared.fail(reason);
    };
    Ok(std::thread::Builder::new().name("model".to_owned()).spawn(thread)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Settings, Shared, spawn};

    #[test]
    fn a_model_whose_thread_fails_is_marked() {
        let second = Duration::from_secs(1);
        let settings = Settings {
            host: String::new(),
            port: 0,
            queue: 1,
            max_body: 1,
            max_tokens: None,
            api_key: None,
            cors: None,
            client_timeout: second,
            grace: second,
            connections: 1,
        };
        let run = |work: fn() -> Result<(), drift_chat::Error>| {
            let shared = Shared::new(1, &settings);
            spawn("model", &shared, work).unwrap().join().unwrap();
            shared.failure().map(str::to_owned)
        };
        assert_eq!(run(|| Ok(())), None);
        let lost = run(|| Err(drift_runtime::Error::DeviceLost { during: "a test" }.into()));
        assert!(lost.unwrap().contains("the device was lost"));
        assert!(run(|| panic!("a test")).unwrap().contains("panicked"));
    }
}
