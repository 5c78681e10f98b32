//! `driftc calibrate --static`: compiles the calibration suite's kernel candidates with the compiler of a device's driver, and
//! writes which configurations spill registers or leave the device idle.
//!
//! Kernels whose facts the file has already are compiled again only if their source has changed. Of models, the candidates that
//! the compiler selects are compiled. If they spill, the facts about them let the compiler select others, which are compiled in
//! the next round.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use drift_runtime::Bundle;
use driftc::bundle::write_pipelines;
use driftc::calibration_suite::{SuiteGraph, graphs};
use driftc::compile::{Options, lower};
use driftc::emit::spirv;
use driftc::ir::graph::Graph;
use driftc::kernels::{KERNELS, Kernel};
use driftc::passes::Precision;
use driftc::plan::build_visiting;
use driftc::plan::choice::Choice;
use driftc::plan::tuning::source_hash;
use driftc::shader::Launch;
use driftc::shader::problem::Problem;
use driftc::target::TargetProfile;
use driftc::target::static_facts::StaticFacts;
use serde::Serialize;

use super::CalibrateArgs;
use crate::driver_compiler::worker::Device;
use crate::driver_compiler::{
    DistinctPipeline, DriverCompiler, Outcome, distinct_pipelines, facts, same_pipeline,
};
use crate::drivers::{Driver, DriverTable, Fact, table};
use crate::failure::{Failure, Result};
use crate::finish::finish;
use crate::lowering::lower_all;
use crate::model::Loaded;
use crate::model_args::{ModelArgs, ModelOptions};
use crate::output::{Out, write_file};
use crate::progress::Progress;

/// Maximum estimated cost of a candidate to compile, as a multiple of the cheapest candidate's cost.
const MAX_COST_RATIO: f64 = 16.0;
/// Maximum number of launches that one bundle holds.
const BATCH: usize = 2000;
/// Maximum number of rounds in which the selected candidates of models are compiled.
const MAX_ROUNDS: usize = 8;
/// Processor time after which a shader is given up.
const SHADER_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Default, Serialize)]
struct Report {
    target: String,
    driver: String,
    device: String,
    file: PathBuf,
    /// Number of kernels whose shaders were compiled. The file had the facts about the other kernels.
    kernels: usize,
    shaders: usize,
    /// Number of shaders that the driver refused, or that crashed it or took too long.
    failed: usize,
    spilling: usize,
    /// Number of configurations with facts in the file.
    configurations: usize,
}

/// A candidate whose shaders are compiled.
struct Compiled {
    kernel: &'static Kernel,
    knobs: String,
    launches: Vec<Launch>,
}

/// Facts of a shader that count.
#[derive(Clone, Copy)]
struct ShaderFacts {
    spills: u32,
    occupancy: Option<u32>,
}

/// Facts that are being collected.
struct Calibration<'a> {
    args: &'a CalibrateArgs,
    target: &'a TargetProfile,
    facts: StaticFacts,
    /// Candidates that were compiled, or will be.
    begun: BTreeSet<String>,
    report: Report,
}

pub(super) fn run(args: &CalibrateArgs, target: &TargetProfile, out: &mut Out) -> Result<()> {
    let start = Instant::now();
    let file = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from("targets").join("static").join(format!("{}.toml", target.name)));
    let facts = read(&file)?;
    let report = Report { target: target.name.clone(), file, ..Report::default() };
    let mut calibration = Calibration { args, target, facts, begun: BTreeSet::new(), report };
    let candidates = calibration.suite_candidates()?;
    calibration.report.kernels = candidates.iter().map(|c| c.kernel.name).collect::<BTreeSet<_>>().len();
    calibration.compile(&candidates)?;
    let models = models(&args.models)?;
    for _ in 0..MAX_ROUNDS {
        let candidates = calibration.model_candidates(&models)?;
        if candidates.is_empty() {
            break;
        }
        calibration.compile(&candidates)?;
    }
    let Calibration { mut facts, mut report, .. } = calibration;
    drop_idle_facts(&mut facts, target);
    (report.driver, report.device) = (facts.driver.clone(), facts.device.clone());
    report.configurations = facts.kernels.values().map(|kernel| kernel.configurations.len()).sum();
    write_file(&report.file, |file| file.write_all(facts.to_toml().as_bytes()))?;
    if args.json { out.json(&report) } else { print(&report, start.elapsed(), out) }
}

/// Reads the facts of the file about kernels whose source has not changed.
fn read(file: &Path) -> Result<StaticFacts> {
    if !file.exists() {
        return Ok(StaticFacts::default());
    }
    let text = std::fs::read_to_string(file).map_err(|e| Failure::file(file, &e))?;
    let mut facts: StaticFacts = toml::from_str(&text).map_err(|e| {
        Failure::input(format!("{}: {e}", file.display())).help("delete it to write it again")
    })?;
    facts.kernels.retain(|name, known| {
        KERNELS.iter().any(|kernel| kernel.name == name && source_hash(kernel.wgsl) == known.source)
    });
    Ok(facts)
}

fn models(paths: &[PathBuf]) -> Result<Vec<(ModelArgs, Loaded)>> {
    let progress = Progress::start("importing");
    let load = |path: &PathBuf| {
        progress.stage(&format!("importing {}", path.display()));
        let model = ModelArgs { path: path.clone(), options: ModelOptions::default() };
        let loaded = model.load()?;
        Ok((model, loaded))
    };
    paths.iter().map(load).collect()
}

impl Calibration<'_> {
    /// Returns the candidates of the suite's problems whose kernels have no facts, without duplicates.
    fn suite_candidates(&mut self) -> Result<Vec<Compiled>> {
        let progress = Progress::start("planning the calibration suite");
        let known: BTreeSet<String> = self.facts.kernels.keys().cloned().collect();
        // Known facts must not decide which candidates are compiled.
        let target = &TargetProfile { static_facts: None, ..self.target.clone() };
        let wanted = |graph: &SuiteGraph| {
            self.args.only.as_ref().is_none_or(|part| graph.name.contains(part.as_str()))
        };
        let most = usize::from(self.args.candidates);
        let mut found = Vec::new();
        for graph in graphs().into_iter().filter(wanted) {
            progress.stage(&format!("planning {}", graph.name));
            let options = Options { precision: graph.precision, ..Options::default() };
            let lowered = lower(&graph.graph()?, target, &options)?;
            let select = |choices: &[Choice]| {
                cheapest(choices, most).filter(|c| !known.contains(c.kernel.name)).cloned().collect()
            };
            found.extend(candidates(&lowered.graph, target, &options, &select, &mut self.begun)?);
        }
        Ok(found)
    }

    /// Returns the candidates that the compiler selects for the models in f16 by the present facts, without candidates that were
    /// compiled.
    fn model_candidates(&mut self, models: &[(ModelArgs, Loaded)]) -> Result<Vec<Compiled>> {
        let progress = Progress::start("planning the models");
        let target = &TargetProfile { static_facts: Some(self.facts.clone()), ..self.target.clone() };
        let select = |choices: &[Choice]| choices.first().cloned().into_iter().collect();
        let mut found = Vec::new();
        for (model, loaded) in models {
            progress.stage(&format!("planning {}", model.path.display()));
            let options = loaded.compile_options(&model.options, false)?;
            let options = Options { precision: Precision::F16, ..options };
            for function in lower_all(model, loaded, target, &options)? {
                found.extend(candidates(&function.graph, target, &options, &select, &mut self.begun)?);
            }
        }
        Ok(found)
    }

    /// Compiles candidates and adds the facts about them.
    fn compile(&mut self, candidates: &[Compiled]) -> Result<()> {
        let table = table()?;
        let count = candidates.iter().map(|candidate| candidate.launches.len()).sum();
        let progress = Progress::steps("compiling shaders", count);
        let mut rest = candidates;
        while !rest.is_empty() {
            let mut launches = Vec::new();
            let mut taken = 0;
            while let Some(candidate) = rest.get(taken).filter(|_| launches.len() < BATCH) {
                launches.extend(candidate.launches.iter().cloned());
                taken += 1;
            }
            let (now, later) = rest.split_at(taken);
            rest = later;
            let (device, shaders) = compile_launches(self.args, self.target, &table, &launches, &progress)?;
            self.facts.driver = format!("{} {}", device.driver, device.driver_info).trim().to_owned();
            self.facts.device = device.name;
            let mut shaders = shaders.into_iter();
            for candidate in now {
                let facts: Vec<_> = shaders.by_ref().take(candidate.launches.len()).collect();
                self.add(candidate, &facts);
            }
        }
        Ok(())
    }

    /// Adds the facts about the shaders of a candidate.
    fn add(&mut self, candidate: &Compiled, shaders: &[Option<ShaderFacts>]) {
        let compiled = || shaders.iter().flatten();
        self.report.shaders += shaders.len();
        self.report.failed += shaders.len() - compiled().count();
        self.report.spilling += compiled().filter(|facts| facts.spills > 0).count();
        let spills = shaders.iter().try_fold(0, |most, facts| Some(facts.as_ref()?.spills.max(most)));
        let occupancy = compiled().filter_map(|facts| facts.occupancy).min();
        let kernel = self.facts.kernels.entry(candidate.kernel.name.to_owned()).or_default();
        kernel.source = source_hash(candidate.kernel.wgsl);
        kernel.shaders += u32::try_from(shaders.len()).unwrap_or_default();
        kernel.configurations.entry(candidate.knobs.clone()).or_default().add(spills, occupancy);
    }
}

/// Returns the candidates that `select` selects for a lowered graph's problems. Candidates in `begun` are left out; the others are
/// added there.
fn candidates(
    graph: &Graph,
    target: &TargetProfile,
    options: &Options,
    select: &dyn Fn(&[Choice]) -> Vec<Choice>,
    begun: &mut BTreeSet<String>,
) -> Result<Vec<Compiled>> {
    let mut found = Vec::new();
    let mut failure = None;
    let mut visit = |_: &str, problem: &Problem<'_>, choices: &[Choice]| {
        for choice in select(choices) {
            match choice.kernel.specialized(problem, &choice.candidate) {
                Ok(launches) => {
                    // The packed constants are not needed, and may be large.
                    let launches: Vec<Launch> =
                        launches.into_iter().map(|launch| Launch { packed: Vec::new(), ..launch }).collect();
                    let knobs = choice.candidate.knobs.to_string();
                    if begun.insert(identity(&knobs, &launches)) {
                        found.push(Compiled { kernel: choice.kernel, knobs, launches });
                    }
                }
                Err(error) => _ = failure.get_or_insert(error),
            }
        }
    };
    build_visiting(graph, target, &options.plan, &mut visit)?;
    failure.map_or(Ok(found), |error| Err(Failure::input(error.0)))
}

/// Returns the `most` cheapest candidates that cost little enough, and each kernel's cheapest one.
fn cheapest(choices: &[Choice], most: usize) -> impl Iterator<Item = &Choice> {
    let limit = choices.first().map_or(0.0, |choice| choice.candidate.cost * MAX_COST_RATIO);
    let mut kernels = BTreeSet::new();
    choices.iter().enumerate().filter_map(move |(place, choice)| {
        let is_first = kernels.insert(choice.kernel.name);
        (is_first || place < most && choice.candidate.cost <= limit).then_some(choice)
    })
}

/// Returns a text that two candidates share only if the driver compiles the same shaders for them.
fn identity(knobs: &str, launches: &[Launch]) -> String {
    let mut hasher = blake3::Hasher::new();
    for launch in launches {
        let kinds: Vec<_> = launch.bindings.iter().map(|b| (b.resource, b.writable)).collect();
        hasher.update(format!("{} {kinds:?} {:?}\n", launch.wgsl, launch.subgroup_size).as_bytes());
    }
    format!("{knobs} {}", hasher.finalize().to_hex())
}

/// Drops the configurations whose facts decide nothing: those without spills, failures and low occupancy.
fn drop_idle_facts(facts: &mut StaticFacts, target: &TargetProfile) {
    let full = target.machine.full_occupancy.unwrap_or_default();
    for kernel in facts.kernels.values_mut() {
        for configuration in kernel.configurations.values_mut() {
            configuration.occupancy = configuration.occupancy.filter(|subgroups| *subgroups < full);
        }
        kernel
            .configurations
            .retain(|_, known| known.spilling > 0 || known.failed > 0 || known.occupancy.is_some());
    }
}

/// Compiles launches. Returns the device and the facts of each launch's shader, `None` if the driver did not compile it.
fn compile_launches(
    args: &CalibrateArgs,
    target: &TargetProfile,
    table: &DriverTable,
    launches: &[Launch],
    progress: &Progress,
) -> Result<(Device, Vec<Option<ShaderFacts>>)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("pipelines.drift");
    let emit = spirv::Options { finish: finish(false)?, matrix: None };
    let places = write_pipelines(&path, target, launches, emit)?;
    let bundle = Bundle::open(&path)?;
    let Some(variant) = bundle.manifest().variants.first() else { return Err(Failure::input("no variant")) };
    let pipelines = distinct_pipelines(&bundle, variant)?;
    let compiler = DriverCompiler {
        path: &path,
        variant: 0,
        driver: table.selected(args.driver.as_deref(), &args.device, &target.name)?,
        device: &args.device,
        limit: SHADER_LIMIT,
        processes: None,
    };
    let (device, outcomes) = compiler.compile(&pipelines, &|| progress.step())?;
    let driver = table.driver(&device.driver).ok_or_else(|| {
        Failure::input(format!("targets/drivers/drivers.toml does not list the driver {}", device.driver))
    })?;
    let compiled: Vec<Option<ShaderFacts>> =
        outcomes.iter().map(|outcome| shader_facts(outcome, driver)).collect();
    // Several pipelines may be compiled to the same code; one of them was compiled.
    let facts_of = |place: &usize| {
        let pipeline = variant.pipelines.get(*place)?;
        let same = |known: &DistinctPipeline| {
            variant.pipelines.get(known.index).is_some_and(|known| same_pipeline(known, pipeline))
        };
        compiled.get(pipelines.iter().position(same)?).copied().flatten()
    };
    let shaders = places.iter().map(facts_of).collect();
    Ok((device, shaders))
}

fn shader_facts(outcome: &Outcome, driver: &Driver) -> Option<ShaderFacts> {
    let Outcome::Compiled(compiled) = outcome else { return None };
    let facts = facts(compiled, Default::default(), driver);
    let whole = |fact: Fact| facts.values.get(&fact).map(|value| value.max(0.0) as u32);
    Some(ShaderFacts { spills: whole(Fact::Spills).unwrap_or_default(), occupancy: whole(Fact::Occupancy) })
}

fn print(report: &Report, time: Duration, out: &mut Out) -> Result<()> {
    let Report { target, driver, device, kernels, shaders, failed, spilling, configurations, file } = report;
    writeln!(out, "{target} on {device}, {driver}")?;
    let took = crate::output::time(time);
    writeln!(
        out,
        "{shaders} shaders of {kernels} kernels compiled in {took}: {spilling} spill, {failed} failed"
    )?;
    Ok(writeln!(out, "{} has facts about {configurations} configurations", file.display())?)
}
