//! `driftc build`: makes the bundles of a manifest.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::build::actions::{Action, actions};
use crate::build::cache::Cache;
use crate::build::execute::Builder;
use crate::build::init::init;
use crate::build::keys::{Inputs, compiler_hash, keys};
use crate::build::lock::{Lock, lock_path};
use crate::build::manifest::{MANIFEST, Manifest};
use crate::build::observer::{Bars, Events, event};
use crate::build::outcome::{Event, Finished, Status, Totals};
use crate::build::report::{BundleResult, Report};
use crate::build::shared_cache::SharedCache;
use crate::build::state::{LOCK, State};
use crate::cache::make_private;
use crate::environment::SHARED_CACHE;
use crate::failure::{Failure, Result};
use crate::output::{Out, make_folder, note, write_file};
use crate::signing::read_signer;

/// Folder in the output folder for the state and unfinished bundles.
const STATE_FOLDER: &str = ".driftc";
/// Subfolder of the user's cache folder.
const CACHE_FOLDER: &str = "builds";

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// Manifest with models, artifacts and targets
    #[arg(value_name = "MANIFEST", default_value = MANIFEST)]
    manifest: PathBuf,
    /// Write a manifest with comments for these models
    #[arg(long, value_name = "MODEL", num_args = 1.., conflicts_with_all = ["only", "dry_run", "locked", "jobs", "shared_cache"])]
    init: Vec<PathBuf>,
    /// Make only the bundles whose name is NAME or starts with `NAME.` (repeatable)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Make N bundles at once, with identical results for any number (default: one per processor)
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Write the bundles to this folder instead of the manifest's
    #[arg(short, long = "output", value_name = "DIR")]
    output_folder: Option<PathBuf>,
    /// List the bundles with their keys, and compile nothing
    #[arg(long)]
    dry_run: bool,
    /// Fail if a bundle differs from the lock file, and leave the lock file as it is
    #[arg(long)]
    locked: bool,
    /// Leave the lock file as it is
    #[arg(long, conflicts_with = "locked")]
    no_lock: bool,
    /// Keep bundles for later builds in this folder instead of the user's cache folder
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Keep no bundles for later builds on this machine
    #[arg(long, conflicts_with = "cache_dir")]
    no_cache: bool,
    /// Share bundles with other machines: s3://BUCKET/FOLDER, gs://.., az://.., https://.. or file:///FOLDER (default:
    /// $DRIFT_SHARED_CACHE)
    #[arg(long, value_name = "URL")]
    shared_cache: Option<String>,
    /// Sign the bundles with this secret key of `driftc keygen` or minisign
    #[arg(long, value_name = "SECRET")]
    sign: Option<PathBuf>,
    /// Print one line of JSON for each event
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &BuildArgs, out: &mut Out) -> Result<()> {
    if !args.init.is_empty() {
        init(&args.manifest, &args.init)?;
        return Ok(writeln!(out, "wrote {}", args.manifest.display())?);
    }
    let mut manifest = Manifest::load(&args.manifest)?;
    manifest.output = args.output_folder.clone().unwrap_or(manifest.output);
    let all = actions(&manifest)?;
    let selected = selected(&all, &args.only)?;
    let lock = Lock::load(&lock_path(&manifest.path))?;
    if args.locked && lock.is_none() {
        return Err(Failure::input(format!("there is no {}", lock_path(&manifest.path).display()))
            .help("build once without --locked, and keep the file under version control"));
    }
    let lock = lock.unwrap_or_default();
    if args.dry_run {
        let state = State::load(&manifest.output.join(STATE_FOLDER));
        return dry_run(&manifest, &selected, &state, args.json, out);
    }
    // Asks for the password, so it comes before the work.
    let signer = args.sign.as_deref().map(read_signer).transpose()?;
    let place = OutputFolder::open(&manifest.output)?;
    let compiler = compiler_hash(&place.state)?;
    let cache = cache(args)?;
    let unfinished = manifest.output.join(STATE_FOLDER);
    let builder = Builder {
        state: &place.state,
        cache: &cache,
        compiler: &compiler,
        unfinished: &unfinished,
        signer: signer.as_ref(),
    };
    let jobs =
        args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let outcomes = match args.json {
        true => builder.execute(&selected, jobs, &Events),
        false => builder.execute(&selected, jobs, &Bars::start(selected.len())),
    }?;
    place.state.save()?;
    let report = Report::new(selected.iter().copied().zip(&outcomes), &lock);
    let is_whole = selected.len() == all.len();
    write_report(&report, &manifest, is_whole)?;
    if !args.locked && !args.no_lock {
        updated(lock, &report, is_whole).save(&lock_path(&manifest.path))?;
    }
    finish(args, &report, &selected, &outcomes, out)
}

/// Output folder of a build. No other build uses it while this object exists.
struct OutputFolder {
    state: State,
    _lock: File,
}

impl OutputFolder {
    /// Waits until no other build uses the folder, and removes what an interrupted build left.
    fn open(folder: &Path) -> Result<Self> {
        let inner = folder.join(STATE_FOLDER);
        make_folder(&inner)?;
        let path = inner.join(LOCK);
        let failed = |error: std::io::Error| Failure::file(&path, &error);
        let lock = File::create(&path).map_err(failed)?;
        if lock.try_lock().is_err() {
            note(&format!("waiting for another build that writes to {}", folder.display()));
            lock.lock().map_err(failed)?;
        }
        State::clean(&inner)?;
        Ok(Self { state: State::load(&inner), _lock: lock })
    }
}

/// Returns the actions that `--only` names, or all.
fn selected<'a>(all: &'a [Action], only: &[String]) -> Result<Vec<&'a Action>> {
    let named = |action: &Action, name: &str| {
        action.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if let Some(unknown) = only.iter().find(|name| !all.iter().any(|action| named(action, name))) {
        let names = all.iter().map(|action| action.name.as_str());
        let question = driftc::suggest::did_you_mean(unknown, names);
        return Err(Failure::usage(format!("the manifest makes no bundle `{unknown}`"))
            .help(format!("{question}`driftc build --dry-run` lists the bundles")));
    }
    let keep = |action: &&Action| only.is_empty() || only.iter().any(|name| named(action, name));
    Ok(all.iter().filter(keep).collect())
}

fn cache(args: &BuildArgs) -> Result<Cache> {
    let folder = match (&args.cache_dir, args.no_cache) {
        (_, true) => None,
        (Some(folder), false) => Some(folder.clone()),
        (None, false) => Some(make_private(None)?.join(CACHE_FOLDER)),
    };
    let variable = SHARED_CACHE.value().map(|url| url.to_string_lossy().into_owned());
    let url = args.shared_cache.clone().or(variable).filter(|url| !url.is_empty());
    Ok(Cache::new(folder, url.as_deref().map(SharedCache::open).transpose()?))
}

/// Prints the actions with their keys, and whether the output folder has their bundles.
fn dry_run(manifest: &Manifest, actions: &[&Action], state: &State, json: bool, out: &mut Out) -> Result<()> {
    let compiler = compiler_hash(state)?;
    let mut rows = vec![["bundle", "key", "state", "command"].map(str::to_owned).to_vec()];
    for action in actions {
        let inputs = Inputs::of(action, state)?;
        let keys = keys(action, &inputs, &compiler)?;
        let is_written = state.written(action, &keys.key).is_some();
        let progress = if is_written { "up to date" } else { "to do" };
        let command = [&["driftc".to_owned(), "compile".to_owned()], action.words.as_slice()].concat();
        if json {
            let mut files = manifest.files.clone();
            files.extend(inputs.paths().cloned());
            let line = serde_json::json!({
                "action": action.name, "model": action.model, "key": keys.key, "inputs": keys.inputs,
                "input_files": files, "output": action.output, "up_to_date": is_written, "command": command,
            });
            writeln!(out, "{line}")?;
        }
        let short = keys.key.get(..16).unwrap_or_default().to_owned();
        rows.push(vec![action.name.clone(), short, progress.to_owned(), shell(&command)]);
    }
    if json { Ok(()) } else { out.table(&[], &rows) }
}

/// Returns words as a line for a shell.
fn shell(words: &[String]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    let quoted = words.iter().map(|word| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Writes the report next to the bundles. A build of some bundles writes none, because the report is about all.
fn write_report(report: &Report, manifest: &Manifest, is_whole: bool) -> Result<()> {
    if !is_whole {
        return Ok(());
    }
    let json = manifest.output.join("build-report.json");
    write_file(&json, |file| {
        serde_json::to_writer_pretty(&mut *file, report)?;
        writeln!(file)
    })?;
    write_file(&manifest.output.join("build-report.html"), |file| file.write_all(report.page().as_bytes()))
}

/// Returns the lock file's entries after a build. Failed actions keep their entries. A build of all actions drops the
/// entries of others.
fn updated(mut lock: Lock, report: &Report, is_whole: bool) -> Lock {
    if is_whole {
        lock.0.retain(|name, _| report.bundles.iter().any(|bundle| bundle.name == *name));
    }
    lock.0.extend(report.made().map(|(bundle, made)| (bundle.name.clone(), made.now.clone())));
    lock
}

/// Prints the totals and what is wrong, with the commands that repeat failed actions.
fn finish(
    args: &BuildArgs,
    report: &Report,
    actions: &[&Action],
    outcomes: &[Result<Finished>],
    out: &mut Out,
) -> Result<()> {
    let totals = Totals::of(outcomes);
    let mut wrong = Vec::new();
    for bundle in &report.bundles {
        match &bundle.result {
            BundleResult::Failed { error, help } => {
                wrong.push(format!("failed: {}: {}", bundle.name, error.join(": ")));
                wrong.extend(help.iter().map(|help| format!("  help: {help}")));
                let manifest = args.manifest.display().to_string();
                let mut again =
                    ["driftc", "build", &manifest, "--only", &bundle.name].map(str::to_owned).to_vec();
                if let Some(folder) = &args.output_folder {
                    again.extend(["--output".to_owned(), folder.display().to_string()]);
                }
                wrong.push(format!("  repeat: {}", shell(&again)));
            }
            BundleResult::Made(made) => {
                let over =
                    made.over_budget.iter().map(|text| format!("over budget: {}: {text}", bundle.name));
                wrong.extend(over);
                if let Some(difference) = made.difference.as_ref().filter(|_| args.locked) {
                    wrong.push(format!("differs from the lock file: {}: {difference}", bundle.name));
                }
            }
        }
    }
    if args.json {
        out.finish()?;
        event(&Event::Done(totals))?;
        wrong.iter().for_each(|line| eprintln!("{line}"));
    } else {
        show_model_notes(actions, outcomes);
        let n = actions.len();
        writeln!(out, "{n} bundle{}: {totals}", if n == 1 { "" } else { "s" })?;
        wrong.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failure::reported()) }
}

/// Prints the compiler's notes about new bundles, once for each model.
fn show_model_notes(actions: &[&Action], outcomes: &[Result<Finished>]) {
    let mut shown = BTreeSet::new();
    for (action, outcome) in actions.iter().zip(outcomes) {
        let Some(done) = outcome.as_ref().ok().filter(|done| done.status != Status::UpToDate) else {
            continue;
        };
        for text in &done.record.notes {
            if shown.insert((&action.model, text)) {
                note(&format!("{}: {text}", action.model));
            }
        }
    }
}
