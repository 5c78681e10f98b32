//! Actions of a build: one call of the compiler for each bundle.
//!
//! `manifest -> models (globs) x artifacts x targets (groups) -> actions`. An action has the arguments of
//! `driftc compile`, so that one command line repeats it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Parser;
use driftc::suggest::closest;
use driftc::target::TargetProfile;

use crate::build::arguments::{Argument, arguments};
use crate::build::budget::Budget;
use crate::build::manifest::{Artifact, Manifest, Model, OneOrMore, folder_of, matches};
use crate::commands::compile::CompileArgs;
use crate::failure::{Failure, Result};
use crate::target_args::{is_path, load_target};

/// Extension of bundles.
const EXTENSION: &str = "drift";

/// One call of the compiler.
#[derive(Debug)]
pub(crate) struct Action {
    /// Name: model, artifact, and the target if the artifact has one bundle for each.
    pub(crate) name: String,
    /// Name of the model.
    pub(crate) model: String,
    pub(crate) targets: Vec<TargetProfile>,
    /// Arguments besides the model, the targets and the output.
    pub(crate) arguments: Vec<Argument>,
    /// Words of the command `driftc compile` for the bundle, without `driftc compile`.
    pub(crate) words: Vec<String>,
    /// The parsed words.
    pub(crate) args: CompileArgs,
    pub(crate) output: PathBuf,
    pub(crate) budget: Budget,
}

/// Target of a manifest: what `--target` takes, and the profile.
#[derive(Debug, Clone)]
struct Target {
    word: String,
    profile: TargetProfile,
}

/// `driftc compile` as a program of its own.
#[derive(Debug, Parser)]
#[command(name = "driftc compile", no_binary_name = true)]
struct Line {
    #[command(flatten)]
    args: CompileArgs,
}

/// Returns the actions of a manifest, in its order.
///
/// # Errors
/// If a name, an option, a path or a target is wrong, or two actions write one file.
pub(crate) fn actions(manifest: &Manifest) -> Result<Vec<Action>> {
    let mut profiles = BTreeMap::new();
    let mut actions = Vec::new();
    for model in &manifest.models {
        let mut paths = Vec::new();
        for path in model.table.path.as_slice() {
            paths.extend(matches(&folder_of(&model.file), path, &model.file)?);
        }
        if let OneOrMore::More(_) = model.table.path {
            add_model(manifest, model, &paths, &mut profiles, &mut actions)?;
            continue;
        }
        if let (Some(name), [_, _, ..]) = (&model.table.name, paths.as_slice()) {
            let reason = format!("model `{name}`: {} files match its path", paths.len());
            return Err(in_file(model, &reason).help("leave out `name`: the files' names are used"));
        }
        for path in paths {
            add_model(manifest, model, &[path], &mut profiles, &mut actions)?;
        }
    }
    check_outputs(&actions)?;
    Ok(actions)
}

fn in_file(model: &Model, reason: &str) -> Failure {
    Failure::input(format!("{}: {reason}", model.file.display()))
}

/// Adds the actions of a model, which has one file or several.
fn add_model(
    manifest: &Manifest,
    model: &Model,
    paths: &[PathBuf],
    profiles: &mut BTreeMap<String, TargetProfile>,
    actions: &mut Vec<Action>,
) -> Result<()> {
    let stems: Vec<String> = paths.iter().map(|path| stem(path)).collect();
    let name = model.table.name.clone().unwrap_or_else(|| stems.join("+"));
    check_name(model, "model", &name)?;
    if model.table.artifacts.is_empty() {
        return Err(in_file(model, &format!("model `{name}` has no artifacts"))
            .help("add a [[model.artifact]] table with a name and targets"));
    }
    for path in paths {
        std::fs::metadata(path)
            .map_err(|error| Failure::file(path, &error).because(format!("model `{name}`")))?;
    }
    for artifact in &model.table.artifacts {
        check_name(model, "artifact", &artifact.name)?;
        let targets = targets_of(manifest, model, artifact, profiles)?;
        let bundles = targets.chunks(if artifact.split { 1 } else { targets.len() });
        for targets in bundles {
            let target = targets.first().filter(|_| artifact.split).map(|target| &target.profile.name);
            let parts = [Some(&name), Some(&artifact.name), target];
            let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
            let bundle = parts.join(".");
            let output = manifest.output.join(format!("{bundle}.{EXTENSION}"));
            let arguments = arguments(&model.table, artifact, &folder_of(&model.file));
            let words = words(paths, targets, &arguments, &output);
            let args = parse(&words).map_err(|reason| {
                in_file(model, &format!("artifact `{bundle}` has wrong values")).because(reason)
            })?;
            actions.push(Action {
                name: bundle,
                model: name.clone(),
                targets: targets.iter().map(|target| target.profile.clone()).collect(),
                arguments,
                words,
                args,
                output,
                budget: artifact.budget.clone(),
            });
        }
    }
    Ok(())
}

/// Name of a file without its extension, or of a folder.
fn stem(path: &Path) -> String {
    let stem = if path.is_dir() { path.file_name() } else { path.file_stem() };
    stem.map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

/// Returns the words of `driftc compile` for a bundle.
fn words(paths: &[PathBuf], targets: &[Target], arguments: &[Argument], output: &Path) -> Vec<String> {
    let mut words: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    words.extend(targets.iter().flat_map(|target| ["-t".to_owned(), target.word.clone()]));
    words.extend(arguments.iter().flat_map(Argument::words));
    words.extend(["-o".to_owned(), output.display().to_string()]);
    words
}

/// Parses the words of `driftc compile`. The error is the reason, without the rest of the message, which is about the command
/// line.
fn parse(words: &[String]) -> Result<CompileArgs, String> {
    let parsed = Line::try_parse_from(words).map_err(|error| {
        let message = error.to_string();
        let lines = message.trim_start_matches("error: ").lines().take_while(|line| !line.is_empty());
        lines.map(str::trim).collect::<Vec<_>>().join(" ")
    })?;
    Ok(parsed.args)
}

/// Checks that a name can be a part of a file name.
fn check_name(model: &Model, what: &str, name: &str) -> Result<()> {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
    if !name.is_empty() && name.chars().all(allowed) && !name.starts_with('.') {
        return Ok(());
    }
    Err(in_file(model, &format!("{what} `{name}`: a name has only letters, digits, `-`, `_`, `+` and `.`"))
        .help("set another `name`"))
}

/// Returns the targets of an artifact. Groups are replaced by their targets.
fn targets_of(
    manifest: &Manifest,
    model: &Model,
    artifact: &Artifact,
    profiles: &mut BTreeMap<String, TargetProfile>,
) -> Result<Vec<Target>> {
    let mut targets: Vec<Target> = Vec::new();
    let folder = folder_of(&model.file);
    let mut add = |name: &str, folder: &Path| -> Result<()> {
        let word = match is_path(name) {
            true => folder.join(name).display().to_string(),
            false => name.to_owned(),
        };
        let profile = match profiles.get(&word) {
            Some(profile) => profile.clone(),
            None => {
                let profile = load_target(&word, &Default::default()).map_err(|failure| {
                    let groups = manifest.targets.keys().map(String::as_str);
                    let failure =
                        failure.context(in_file(model, &format!("artifact `{}`", artifact.name)).text());
                    match closest(name, groups) {
                        Some(group) => failure.help(format!("did you mean the group `{group}`?")),
                        None => failure,
                    }
                })?;
                profiles.insert(word.clone(), profile.clone());
                profile
            }
        };
        if targets.iter().all(|target| target.profile.name != profile.name) {
            targets.push(Target { word, profile });
        }
        Ok(())
    };
    for name in artifact.targets.as_slice() {
        match manifest.targets.get(name) {
            Some(group) => group.names.iter().try_for_each(|name| add(name, &group.folder))?,
            None => add(name, &folder)?,
        }
    }
    if targets.is_empty() {
        return Err(in_file(model, &format!("artifact `{}` has no targets", artifact.name))
            .help("name profiles (`driftc targets list`) or a group of [targets]"));
    }
    Ok(targets)
}

/// Checks that every action writes another file.
fn check_outputs(actions: &[Action]) -> Result<()> {
    let mut seen: BTreeMap<String, &Action> = BTreeMap::new();
    for action in actions {
        // Some file systems do not distinguish letter cases.
        let path = action.output.display().to_string().to_lowercase();
        if let Some(first) = seen.insert(path, action) {
            let reason = format!(
                "{} and {} both write {}",
                described(first),
                described(action),
                action.output.display()
            );
            return Err(Failure::input(reason).help("give one of the models or artifacts another `name`"));
        }
    }
    Ok(())
}

fn described(action: &Action) -> String {
    format!("`{}` ({})", action.name, action.args.model.path.display())
}
