//! What went wrong, as the user reads it: what, why, what to do about it, and the exit code.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use miette::{GraphicalReportHandler, GraphicalTheme};

/// What every command returns.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The model, the bundle, an array or the device.
    Input,
    /// The request.
    Usage,
    /// Nobody reads the output any more, which is no failure.
    Unread,
    /// The result has been written, and it is a bad one; there is nothing to add.
    Told,
}

/// A failure.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
    /// The reasons, from the outermost to the innermost.
    reasons: Vec<String>,
    help: Option<String>,
}

impl Failure {
    /// The input or the device is at fault.
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self { kind: Kind::Input, message: message.into(), reasons: Vec::new(), help: None }
    }

    /// The request makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, ..Self::input(message) }
    }

    /// The command's output already says that the answer is no.
    pub(crate) fn told() -> Self {
        Self { kind: Kind::Told, ..Self::input("") }
    }

    /// A file that the operating system refuses.
    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::input(format!("{}: {error}", path.display())).help("check the path and its permissions")
    }

    /// Adds a reason below those there are.
    pub(crate) fn because(mut self, reason: impl Into<String>) -> Self {
        self.reasons.push(reason.into());
        self
    }

    /// Says what to do about it.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Puts a message above what is there.
    pub(crate) fn context(mut self, message: impl Into<String>) -> Self {
        let inner = std::mem::replace(&mut self.message, message.into());
        self.reasons.insert(0, inner);
        self
    }

    /// Prints the failure to standard error; the exit code that goes with it.
    pub(crate) fn report(&self) -> ExitCode {
        match self.kind {
            Kind::Unread => return ExitCode::SUCCESS,
            Kind::Told => return ExitCode::from(1),
            Kind::Input | Kind::Usage => {}
        }
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
        // Where standard error is closed, there is nobody to tell.
        let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), text.as_bytes());
        ExitCode::from(if self.kind == Kind::Usage { 2 } else { 1 })
    }
}

/// Colours and frames on a terminal; elsewhere plain lines that nobody has to put together again.
fn handler() -> GraphicalReportHandler {
    let terminal = std::io::stderr().is_terminal();
    let mut theme = match (terminal, std::env::var_os("NO_COLOR")) {
        (true, None) => GraphicalTheme::unicode(),
        (true, Some(_)) => GraphicalTheme::unicode_nocolor(),
        (false, _) => GraphicalTheme::none(),
    };
    theme.characters.error = "error:".into();
    let handler = GraphicalReportHandler::new_themed(theme).with_links(false);
    if terminal { handler.with_width(100) } else { handler.with_wrap_lines(false).with_width(usize::MAX) }
}

/// A failure in the form that the renderer takes.
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

/// Standard output could not be written.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self { kind: Kind::Unread, ..Self::input("") },
            _ => Self::input(format!("the output cannot be written: {error}")),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        if error.io_error_kind() == Some(std::io::ErrorKind::BrokenPipe) {
            return Self { kind: Kind::Unread, ..Self::input("") };
        }
        Self::input(format!("the output cannot be written: {error}"))
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
                Self::input(format!("{} of the model's nodes cannot be compiled", nodes.len()))
                    .because(lines.collect::<Vec<_>>().join("\n"))
                    .help("`driftc ops` lists what is supported; simplify or re-export these nodes")
            }
            E::Node { node, operator, reason } => {
                Self::input(reason).because(format!("at node `{node}` ({operator})"))
            }
            E::Target(error) => error.into(),
            E::Request { reason, help } => Self::input(reason).help(help),
            E::Internal { stage, reason } => Self::input(format!("internal error in {stage}"))
                .because(reason)
                .help("this is a defect of driftc; please report it with the model"),
            other => Self::input(other.to_string()),
        }
    }
}

impl From<driftc::target::TargetError> for Failure {
    fn from(error: driftc::target::TargetError) -> Self {
        use driftc::target::TargetError as E;
        match error {
            E::Unknown { name, known, help } => Self::usage(format!("no target is called `{name}`"))
                .because(format!("known are {known}"))
                .help(help),
            E::Field { file, field, reason, help } => {
                Self::input(format!("the profile {file} has a wrong field `{field}`"))
                    .because(reason)
                    .help(help)
            }
            E::Read { .. } => Self::input(error.to_string()).help("check the path and its permissions"),
            other => Self::input(other.to_string()),
        }
    }
}

impl From<drift_runtime::Error> for Failure {
    fn from(error: drift_runtime::Error) -> Self {
        use drift_runtime::Error as E;
        match &error {
            E::Missing { .. } | E::NoSuchName { .. } | E::NoSuchFunction { .. } | E::NoSuchTarget { .. } => {
                Self::usage(error.to_string())
            }
            E::Io { .. } => Self::input(error.to_string()).help("check the path and its permissions"),
            E::EmptyPrompt | E::InvalidSampling { .. } => Self::usage(error.to_string()),
            E::ContextFull { .. } => Self::input(error.to_string())
                .help("compile the model with --dim context=N for a longer one"),
            E::NotALanguageModel { .. } => Self::input(error.to_string())
                .help("compile a language model without --dim seq or --dim batch: it then has functions that generate"),
            E::NotABundle => Self::input(error.to_string())
                .help("a model is an .onnx file, by its name, or a Hugging Face folder"),
            E::WrongType { expected, .. } => {
                Self::input(error.to_string()).help(format!("save the array as {}", expected.name()))
            }
            E::OutOfBounds { symbol, given, min, max, .. }
            | E::SymbolOutOfBounds { symbol, given, min, max } => {
                let (low, high) = (min.min(given), max.max(given));
                Self::input(error.to_string())
                    .help(format!("compile the model with --dim {symbol}={low}..{high}"))
            }
            _ => Self::input(error.to_string()),
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
        use drift_text::Error as E;
        match error {
            E::File { .. } => Self::input(error.to_string())
                .help("the file came with the model: fetch it again, and compile the model again"),
            E::Template(_) => Self::input(error.to_string())
                .help("say it in roles that the model knows, or use `driftc generate` without --chat and --system; a template that is wrong itself is mended in the model's folder, which is then compiled again"),
            E::Text(_) => Self::input(error.to_string()),
        }
    }
}
