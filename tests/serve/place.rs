//! The models of the tests and servers that run them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use drift_models::random::bert;
use drift_tests::{settings, word_model};
use serde_json::{Value, json};

use crate::http::{Pending, Response};

/// Context length of the model `word`.
pub(crate) const CONTEXT: usize = 48;
/// Context length of the model `long`.
pub(crate) const LONG: usize = 16384;

/// Temporary folder with the bundles of all models.
static PLACE: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let place = tempfile::tempdir().unwrap();
    word_model::write(&place.path().join("model"), LONG);
    let sizes =
        bert::Bert { hidden: 32, layers: 1, heads: 2, vocabulary: word_model::WORDS.len(), positions: 16 };
    let folder = place.path().join("bert");
    bert::write(&folder, &sizes, usize::MAX).unwrap();
    fs::write(folder.join("tokenizer.json"), word_model::tokenizer().to_string()).unwrap();
    let (short, long) = (format!("context={CONTEXT}"), format!("context={LONG}"));
    for (model, bundle, dim) in [
        ("model", "word.drift", Some(&short)),
        ("model", "long.drift", Some(&long)),
        ("bert", "bert.drift", None),
    ] {
        let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftc"));
        command.args(["compile", &path(model), "-t", &settings::target_name(), "-o", &path(bundle)]);
        command.args(dim.iter().flat_map(|dim| ["--dim", dim]));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    place
});

/// Returns the path of a file in the temporary folder.
pub(crate) fn path(name: &str) -> String {
    PLACE.path().join(name).to_str().unwrap().to_owned()
}

/// Command `driftc` with its cache in the temporary folder.
pub(crate) fn driftc() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_driftc"));
    command.env("XDG_CACHE_HOME", path("cache")).env_remove("DRIFTC_API_KEY");
    command
}

/// Running server.
pub(crate) struct Server {
    child: Child,
    /// Address and port.
    pub(crate) address: String,
}

impl Server {
    /// Starts a server with bundles of the temporary folder, and waits until it accepts connections.
    pub(crate) fn start(bundles: &[&str], options: &[&str]) -> Self {
        let mut command = driftc();
        command.arg("serve").args(bundles.iter().map(|bundle| path(bundle)));
        command.args(["--port", "0"]).args(options);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://");
        let address = address.unwrap_or_else(|| panic!("the server printed `{line}`")).to_owned();
        Self { child, address }
    }

    /// Sends a request and does not wait for the answer.
    pub(crate) fn begin(&self, path: &str, body: &Value) -> Pending {
        let headers = [("content-type", "application/json")];
        Pending::send(&self.address, "POST", path, &headers, body.to_string().as_bytes())
    }

    /// Sends a request with a JSON body.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.begin(path, body).response()
    }

    /// Sends a request, which must succeed.
    pub(crate) fn done(&self, path: &str, body: &Value) -> Value {
        let response = self.post(path, body);
        assert_eq!(response.status, 200, "{body}: {}", response.body);
        response.json()
    }

    /// Sends a request, which must fail with this status and a message that contains `says`. Returns the error.
    pub(crate) fn refused(&self, path: &str, body: &Value, status: u16, says: &str) -> Value {
        let response = self.post(path, body);
        assert_eq!(response.status, status, "{body}: {}", response.body);
        let error = response.json()["error"].clone();
        assert!(
            error["message"].as_str().unwrap().contains(says),
            "{body}: {error} does not contain `{says}`"
        );
        error
    }

    /// Sends a request without body.
    pub(crate) fn get(&self, path: &str) -> Response {
        Pending::send(&self.address, "GET", path, &[], b"").response()
    }

    /// Returns the value of a metric, such as `driftc_queue_depth{model="word"}`.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics").body;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    /// Waits until a metric has a value for which `is` is true. Returns the value.
    pub(crate) fn wait_for(&self, name: &str, is: impl Fn(u64) -> bool) -> u64 {
        for _ in 0..6000 {
            let value = self.metric(name);
            if is(value) {
                return value;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{name} stays {}", self.metric(name));
    }

    /// Sends SIGTERM to the server.
    pub(crate) fn terminate(&self) {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for the end of the server. Returns its exit code.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Request for a completion of the model `long` that ends only after this number of tokens.
pub(crate) fn endless(tokens: usize, stream: bool) -> Value {
    json!({"model": "long", "prompt": "zig zag", "max_tokens": tokens, "temperature": 0, "stream": stream})
}
