//! Errors as the user reads them: message, reasons, help and exit code.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use miette::{GraphicalReportHandler, GraphicalTheme};

use crate::environment::{ERRORS, NO_COLOR};

/// Result of a command: a value or a [`Failure`].
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Kind of a failure. It determines the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The model, the bundle, an array or the device is at fault.
    Input,
    /// The command line is wrong.
    Usage,
    /// The reader of standard output closed the pipe. The exit code is 0, as for success.
    BrokenPipe,
    /// The command's output already reports a negative result.
    Reported,
}

/// Error of a command.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
    /// Reasons of the failure, from the outermost to the innermost.
    reasons: Vec<String>,
    help: Option<String>,
}

impl Failure {
    /// Creates a failure of the input or the device (exit code 1).
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self { kind: Kind::Input, message: message.into(), reasons: Vec::new(), help: None }
    }

    /// Creates a failure of the command line (exit code 2).
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, ..Self::input(message) }
    }

    /// Creates a failure that prints nothing, because the command's output already reports the negative result (exit
    /// code 1).
    pub(crate) fn reported() -> Self {
        Self { kind: Kind::Reported, ..Self::input("") }
    }

    /// Creates a failure of a file operation.
    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::input(format!("{}: {error}", path.display())).help("check the path and its permissions")
    }

    /// Appends a reason after the present reasons, as the innermost one.
    pub(crate) fn because(mut self, reason: impl Into<String>) -> Self {
        self.reasons.push(reason.into());
        self
    }

    /// Sets the advice that the failure gives to the user.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Sets the advice if there is any.
    fn with_help(self, help: Option<String>) -> Self {
        Self { help, ..self }
    }

    /// Replaces the message and makes the old one the outermost reason.
    pub(crate) fn context(mut self, message: impl Into<String>) -> Self {
        let inner = std::mem::replace(&mut self.message, message.into());
        self.reasons.insert(0, inner);
        self
    }

    /// Message and reasons as lines, for a report that lists several failures.
    pub(crate) fn lines(&self) -> Vec<String> {
        let texts = std::iter::once(&self.message).chain(&self.reasons);
        texts.flat_map(|text| text.lines().map(str::to_owned)).collect()
    }

    /// True if the command line is wrong.
    pub(crate) fn is_usage(&self) -> bool {
        self.kind == Kind::Usage
    }

    /// Advice for the user.
    pub(crate) fn advice(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Message and reasons in one line.
    pub(crate) fn text(&self) -> String {
        let reasons = self.reasons.iter().map(String::as_str);
        std::iter::once(self.message.as_str()).chain(reasons).collect::<Vec<_>>().join(": ")
    }

    /// Prints the failure to standard error and returns its exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self.kind {
            Kind::BrokenPipe => return ExitCode::SUCCESS,
            Kind::Reported => return ExitCode::from(1),
            Kind::Input | Kind::Usage => {}
        }
        let json = ERRORS.value().is_some_and(|format| format == "json");
        let text = if json { self.json() } else { self.rendered() };
        // Ignore a closed standard error.
        let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), text.as_bytes());
        ExitCode::from(if self.kind == Kind::Usage { 2 } else { 1 })
    }

    /// Returns the failure as text for people.
    fn rendered(&self) -> String {
        let mut text = String::new();
        let reasons: Option<Box<Reason>> = self
            .reasons
            .iter()
            .rev()
            .fold(None, |inner, text| Some(Box::new(Reason { text: text.clone(), inner })));
        let diagnostic = Rendered { message: &self.message, reasons, help: self.help.as_deref() };
        if handler().render_report(&mut text, &diagnostic).is_err() {
            text = format!("  error: {}\n", self.message);
        }
        text
    }

    /// Returns the failure as a line of JSON.
    fn json(&self) -> String {
        let Self { message, reasons, help, .. } = self;
        format!("{}\n", serde_json::json!({ "error": message, "reasons": reasons, "help": help }))
    }
}

/// Renderer of failures: with colors and frames on a terminal, and as plain unwrapped lines elsewhere.
fn handler() -> GraphicalReportHandler {
    let terminal = std::io::stderr().is_terminal();
    let mut theme = match (terminal, NO_COLOR.value()) {
        (true, None) => GraphicalTheme::unicode(),
        (true, Some(_)) => GraphicalTheme::unicode_nocolor(),
        (false, _) => GraphicalTheme::none(),
    };
    theme.characters.error = "error:".into();
    let handler = GraphicalReportHandler::new_themed(theme).with_links(false);
    if terminal { handler.with_width(100) } else { handler.with_wrap_lines(false).with_width(usize::MAX) }
}

/// Failure in the form that miette renders.
#[derive(Debug)]
struct Rendered<'a> {
    message: &'a str,
    reasons: Option<Box<Reason>>,
    help: Option<&'a str>,
}

#[derive(Debug)]
struct Reason {
    text: String,
    inner: Option<Box<Reason>>,
}

impl std::fmt::Display for Rendered<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message)
    }
}

impl std::error::Error for Rendered<'_> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.reasons.as_deref().map(|r| r as &dyn std::error::Error)
    }
}

impl miette::Diagnostic for Rendered<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.help.map(|h| Box::new(h) as Box<dyn std::fmt::Display>)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Reason {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.as_deref().map(|r| r as &dyn std::error::Error)
    }
}

/// Converts an error of writing to standard output. Errors of other files become failures through [`Failure::file`].
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self { kind: Kind::BrokenPipe, ..Self::input("") },
            _ => Self::input(format!("cannot write the output: {error}")),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        if error.io_error_kind() == Some(std::io::ErrorKind::BrokenPipe) {
            return Self { kind: Kind::BrokenPipe, ..Self::input("") };
        }
        Self::input(format!("cannot write the output: {error}"))
    }
}

impl From<driftc::Error> for Failure {
    fn from(error: driftc::Error) -> Self {
        use driftc::Error as E;
        match error {
            E::Io { path, reason } => Self::input(format!("{}: {reason}", path.display()))
                .help("check the path and its permissions"),
            E::Model { path, place, reason, help } => {
                Self::input(reason).because(format!("in {}, {place}", path.display())).help(help)
            }
            E::Unsupported { nodes } => {
                let lines = nodes.iter().map(|n| {
                    format!(
                        "node `{}` ({}, opset {}, {}): {}",
                        n.node, n.operator, n.opset, n.types, n.reason
                    )
                });
                Self::input(format!("{} nodes of the model cannot be compiled", nodes.len()))
                    .because(lines.collect::<Vec<_>>().join("\n"))
                    .help("simplify or re-export these nodes; `driftc ops` lists the supported operators")
            }
            E::Node { node, operator, reason } => {
                Self::input(reason).because(format!("at node `{node}` ({operator})"))
            }
            E::Target(error) => error.into(),
            E::Request { reason, help } => Self::input(reason).help(help),
            E::TooLarge { reason, .. } => Self::input(reason),
            E::Internal { stage, reason } => Self::input(format!("internal error in {stage}"))
                .because(reason)
                .help("this is a bug in driftc; please report it with the model"),
            other => Self::input(other.to_string()),
        }
    }
}

impl From<driftc::target::TargetError> for Failure {
    fn from(error: driftc::target::TargetError) -> Self {
        use driftc::target::TargetError as E;
        match error {
            E::Unknown { name, known, help } => Self::usage(format!("no target is called `{name}`"))
                .because(format!("known targets: {known}"))
                .help(help),
            E::Ambiguous { name, devices } => {
                Self::usage(format!("`{name}` names devices of several targets"))
                    .because(devices)
                    .help("give a longer name, or the name of a target")
            }
            E::Field { file, field, reason, help } => {
                Self::input(format!("profile {file}: invalid field `{field}`")).because(reason).help(help)
            }
            E::Read { .. } => Self::input(error.to_string()).help("check the path and its permissions"),
            other => Self::input(other.to_string()),
        }
    }
}

impl From<drift_runtime::Error> for Failure {
    fn from(error: drift_runtime::Error) -> Self {
        use drift_runtime::Error as E;
        let failure = match &error {
            E::Missing { .. }
            | E::NoSuchName { .. }
            | E::NoSuchFunction { .. }
            | E::NoSuchTarget { .. }
            | E::EmptyPrompt
            | E::InvalidSampling { .. } => Self::usage(error.to_string()),
            _ => Self::input(error.to_string()),
        };
        failure.with_help(error.help())
    }
}

impl From<drift_chat::Error> for Failure {
    fn from(error: drift_chat::Error) -> Self {
        use drift_chat::Error as E;
        match error {
            E::Runtime(error) => error.into(),
            E::Text(error) => error.into(),
            other => Self::input(other.to_string()).with_help(other.help().map(str::to_owned)),
        }
    }
}

impl From<drift_image::Error> for Failure {
    fn from(error: drift_image::Error) -> Self {
        use drift_image::Error as E;
        match error {
            E::Runtime(error) => error.into(),
            E::Text(error) => error.into(),
            other => Self::input(other.to_string()).with_help(other.help().map(str::to_owned)),
        }
    }
}

impl From<drift_audio::Error> for Failure {
    fn from(error: drift_audio::Error) -> Self {
        use drift_audio::Error as E;
        match error {
            E::Runtime(error) => error.into(),
            E::Text(error) => error.into(),
            other => Self::input(other.to_string()).with_help(other.help().map(str::to_owned)),
        }
    }
}

impl From<drift_text::Error> for Failure {
    fn from(error: drift_text::Error) -> Self {
        Self::from(&error)
    }
}

impl From<&drift_text::Error> for Failure {
    fn from(error: &drift_text::Error) -> Self {
        Self::input(error.to_string()).with_help(error.help().map(str::to_owned))
    }
}
