//! Times copies between host and device: the copy rate by array size, four convolutions with copies of their input and output,
//! and a session that reads another session's output on the device, beside each session alone.
//! `cargo bench -p drift-benches --bench copies`; `DRIFT_TEST_TARGET` names the profile.
//!
//! In the report, "transfer memory" means that the host reads and writes the session's transfer memory ([`Session::input_mut`],
//! [`Session::output`]); "caller's arrays" means that the session also copies from and to arrays of the caller. A copy rate is
//! the copied bytes over the time that the copy adds to a run.

use std::path::{Path, PathBuf};
use std::time::Instant;

use drift_benches::shortest_run;
use drift_runtime::{Array, Bundle, Options, Session};
use driftc::compile::{Model, Options as CompileOptions, compile};
use driftc::ir::graph_text;
use driftc::passes::Precision;
use driftc::target::TargetProfile;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const KIB: [usize; 8] = [4, 64, 256, 1024, 4096, 5120, 16384, 65536];
const RUNS: usize = 200;

fn main() -> Result<()> {
    let name = std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".into());
    let target = TargetProfile::load(&name)?;
    let folder = std::env::temp_dir().join(format!("drift-copies-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let done = rates(&target, &folder).and_then(|()| stack(&target, &folder));
    std::fs::remove_dir_all(&folder)?;
    done
}

/// Shortest time of repeated calls of `step`, in microseconds.
fn shortest(mut step: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    for run in 0..RUNS {
        let start = Instant::now();
        step()?;
        best = best.min(start.elapsed().as_secs_f64() * 1e6);
        if run >= 5 && begin.elapsed().as_secs() >= 2 {
            break;
        }
    }
    Ok(best)
}

/// Times of one run of a session in microseconds: without copies, with a copy of the input, with a copy of the output, with both
/// copies, and with copies from and to arrays of the caller.
struct Times {
    device: f64,
    up: f64,
    down: f64,
    both: f64,
    arrays: f64,
}

fn times(session: &mut Session, shape: &[usize]) -> Result<Times> {
    let mut x = Array::from_f32(shape, &vec![0.5; shape.iter().product()]);
    let mut y = x.clone();
    shortest_run(session)?;
    let device = shortest(|| Ok(session.replay_on_device("main")?))?;
    session.input_mut("main", "x", shape)?.copy_from_slice(&x.bytes);
    let up = shortest(|| {
        session.input_mut("main", "x", shape)?;
        Ok(session.replay_on_device("main")?)
    })?;
    let down = shortest(|| {
        session.replay("main")?;
        session.output("main", "y")?;
        Ok(())
    })?;
    let both = shortest(|| {
        session.input_mut("main", "x", shape)?;
        session.replay("main")?;
        session.output("main", "y")?;
        Ok(())
    })?;
    let arrays = shortest(|| {
        session.write_input("main", "x", x.as_ref())?;
        session.replay("main")?;
        session.read_output_into("main", "y", &mut y)?;
        std::mem::swap(&mut x.bytes, &mut y.bytes);
        Ok(())
    })?;
    Ok(Times { device, up, down, both, arrays })
}

fn rates(target: &TargetProfile, folder: &Path) -> Result<()> {
    println!(
        "| KiB each way | copies always staged | run without copies, us | with input copy, us | with output copy, us | with both copies, us | with caller's arrays, us | input copy, GB/s | output copy, GB/s |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let rate = |bytes: usize, more: f64| bytes as f64 / more.max(1e-3) / 1e3;
    for kib in KIB {
        let elements = kib * 256;
        let graph = format!(
            "%0 = input {{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[{elements}]}}\n%1 = neg %0\noutput \"y\" %1\n"
        );
        let path = write(&graph, Precision::F32, target, folder)?;
        for always_stage in [false, true] {
            let mut session = Session::load(&path, &Options { always_stage, ..Options::default() })?;
            let t = times(&mut session, &[elements])?;
            println!(
                "| {kib} | {always_stage} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
                t.device,
                t.up,
                t.down,
                t.both,
                t.arrays,
                rate(kib << 10, t.up - t.device),
                rate(kib << 10, t.down - t.device)
            );
        }
    }
    Ok(())
}

/// Times four 3 x 3 convolutions over 320 channels of 64 x 64 pixels in f16, with an f32 input and output, then two chained
/// sessions of this model.
fn stack(target: &TargetProfile, folder: &Path) -> Result<()> {
    let shape = [1, 320, 64, 64];
    let mut graph = "%0 = input {\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[1,320,64,64]}\n".to_owned();
    for i in 0..4 {
        let (constant, before, conv) = (1 + 2 * i, if i == 0 { 0 } else { 2 * i }, 2 + 2 * i);
        graph += &format!(
            "%{constant} = constant {{\"dtype\":\"f32\",\"shape\":[320,320,3,3],\"random\":{i}}}\n\
             %{conv} = conv %{before} %{constant} {{\"strides\":[1,1],\"dilations\":[1,1],\"pads_begin\":[1,1],\"pads_end\":[1,1],\"group\":1}}\n"
        );
    }
    graph += "output \"y\" %8\n";
    let path = write(&graph, Precision::F16, target, folder)?;
    for always_stage in [false, true] {
        let mut session = Session::load(&path, &Options { always_stage, ..Options::default() })?;
        let t = times(&mut session, &shape)?;
        let device = device_time(&mut session)?;
        println!(
            "\nFour 3x3 convolutions with 5 MB of input and of output, copies always staged: {always_stage}. Microseconds: dispatches {device:.1}, run without copies {:.1}, run with transfer memory {:.1}, run with caller's arrays {:.1}",
            t.device, t.both, t.arrays
        );
    }
    let bundles = vec![Bundle::open(&path)?, Bundle::open(&path)?];
    let mut sessions = Session::load_together(bundles, &Options::default())?;
    let [first, second] = sessions.as_mut_slice() else { return Err("two sessions".into()) };
    let alone = [times(first, &shape)?.device, times(second, &shape)?.device];
    let devices = [device_time(first)?, device_time(second)?];
    let chain = shortest(|| {
        let ticket = first.submit("main", &[])?;
        second.feed("main", "x", &first.device_output_of(ticket, "y")?)?;
        Ok(second.replay_on_device("main")?)
    })?;
    println!(
        "Chain of two sessions, in us: dispatches {:.1} + {:.1}, separate runs {:.1} + {:.1}, chained run {chain:.1} ({:.3} of the sum of the separate runs)",
        devices[0],
        devices[1],
        alone[0],
        alone[1],
        chain / (alone[0] + alone[1])
    );
    Ok(())
}

/// Shortest time of all dispatches of a run in microseconds, by device timestamps.
fn device_time(session: &mut Session) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let times = session.replay_timed("main")?;
        best = best.min(times.last().map_or(0.0, |time| time.end) / 1e3);
    }
    Ok(best)
}

fn write(graph: &str, precision: Precision, target: &TargetProfile, folder: &Path) -> Result<PathBuf> {
    let path = folder.join("model.drift");
    let graph = graph_text::parse(graph)?;
    let options = CompileOptions { precision, ..CompileOptions::default() };
    compile(&Model { graph, ..Model::default() }, std::slice::from_ref(target), &options, &path)?;
    Ok(path)
}
