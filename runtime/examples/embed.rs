//! The smallest program that runs a bundle. `embed MODEL.drift` runs the function `main`. Its inputs are zeros in the
//! smallest shapes that the function supports.
use drift_runtime::{Array, Error, Options, Session};

fn run(path: &std::ffi::OsStr) -> Result<(), Error> {
    let mut session = Session::load(path.as_ref(), &Options::default())?;
    let zeros = |port: &drift_runtime::format::Port| session.smallest_input("main", &port.name);
    let arrays = session.inputs("main")?.iter().map(zeros).collect::<Result<Vec<Array>, Error>>()?;
    let names: Vec<String> = session.inputs("main")?.iter().map(|port| port.name.clone()).collect();
    let inputs: Vec<_> =
        names.iter().zip(&arrays).map(|(name, array)| (name.as_str(), array.as_ref())).collect();
    let outputs = session.run("main", &inputs)?;
    for (port, array) in session.outputs("main")?.iter().zip(outputs) {
        // Thousandths as integers, since formatting floats would be a large part of this program.
        let first: Vec<i64> = array.to_f64().iter().take(5).map(|value| (value * 1e3) as i64).collect();
        println!("output {}: shape {:?}, first values times 1000 {first:?}", port.name, array.shape);
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    match std::env::args_os().nth(1).map(|path| run(&path)) {
        Some(Ok(())) => return std::process::ExitCode::SUCCESS,
        Some(Err(error)) => eprintln!("embed: {error}"),
        None => eprintln!("usage: embed MODEL.drift"),
    }
    std::process::ExitCode::FAILURE
}
