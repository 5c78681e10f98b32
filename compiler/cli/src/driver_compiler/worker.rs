//! Child process of a [`DriverCompiler`](super::DriverCompiler): reads the indices of pipelines, compiles each pipeline, and
//! answers with a line of JSON. A crash or a hang of the driver ends only this process.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use drift_runtime::Bundle;
use drift_runtime::statistics::PipelineCompiler;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::output::Out;
use crate::session::DeviceArgs;

/// Request of the parent: a pipeline to compile.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Index of the pipeline in the variant.
    pub(crate) pipeline: usize,
    /// True if the instructions are needed as text.
    pub(crate) texts: bool,
}

/// A line that the child writes: the device, then an answer to each request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The device is open.
    Device(Device),
    /// The device cannot run the variant.
    Refused { message: String },
    /// The driver compiled the pipeline.
    Compiled(Compiled),
    /// The driver refused the pipeline.
    Failed { message: String },
}

/// Device of the child.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) driver: String,
    pub(crate) driver_info: String,
    /// True if the driver reports statistics.
    pub(crate) statistics: bool,
}

/// Report of the driver about a pipeline.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Compiled {
    pub(crate) compile_ms: f64,
    /// Subgroup size of the first executable, 0 if unknown.
    pub(crate) subgroup_size: u32,
    /// Statistics under the driver's names, added over all executables.
    pub(crate) statistics: Vec<(String, f64)>,
    /// Names and texts of internal representations.
    pub(crate) texts: Vec<(String, String)>,
}

/// Answers the requests of standard input until it ends. The pipelines belong to a variant of the bundle, given by its
/// index.
pub(crate) fn run(bundle: &Path, variant: usize, device: &DeviceArgs, out: &mut Out) -> Result<()> {
    let requests = BufReader::new(own_input()?);
    let bundle = Bundle::open(bundle)?;
    let compiler = match PipelineCompiler::open(&bundle, variant, device.device.as_deref()) {
        Ok(compiler) => compiler,
        Err(error) => return answer(&Answer::Refused { message: error.to_string() }, out),
    };
    let info = compiler.device();
    let device = Device {
        name: info.name.clone(),
        driver: info.driver_name.clone(),
        driver_info: info.driver_info.clone(),
        statistics: compiler.reports_statistics(),
    };
    answer(&Answer::Device(device), out)?;
    for line in requests.lines() {
        let line = line.map_err(|e| input_failure(&e))?;
        let request: Request = serde_json::from_str(&line)?;
        answer(&compile(&compiler, request), out)?;
    }
    Ok(())
}

/// Returns standard input under a number of its own: a driver without its device may close file descriptor 0.
fn own_input() -> Result<File> {
    #[cfg(unix)]
    let own = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned();
    #[cfg(windows)]
    let own = std::os::windows::io::AsHandle::as_handle(&std::io::stdin()).try_clone_to_owned();
    own.map(File::from).map_err(|e| input_failure(&e))
}

fn input_failure(error: &std::io::Error) -> Failure {
    Failure::input(format!("standard input: {error}"))
}

fn compile(compiler: &PipelineCompiler<'_>, request: Request) -> Answer {
    let report = match compiler.compile(request.pipeline, request.texts) {
        Ok(report) => report,
        Err(error) => return Answer::Failed { message: error.to_string() },
    };
    let mut statistics: Vec<(String, f64)> = Vec::new();
    let subgroup_size = report.executables.first().map_or(0, |executable| executable.subgroup_size);
    let mut texts = Vec::new();
    for executable in report.executables {
        for (name, value) in executable.statistics {
            match statistics.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += value,
                None => statistics.push((name, value)),
            }
        }
        texts.extend(executable.texts);
    }
    Answer::Compiled(Compiled { compile_ms: report.compile_ms, subgroup_size, statistics, texts })
}

fn answer(answer: &Answer, out: &mut Out) -> Result<()> {
    serde_json::to_writer(&mut *out, answer)?;
    writeln!(out)?;
    Ok(out.flush()?)
}
