//! The smallest program that runs a bundle: `embed MODEL.drift` runs `main` on zeros of the smallest shapes.
use drift_runtime::{Array, Options, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: embed MODEL.drift")?;
    let mut session = Session::load(path.as_ref(), &Options::default())?;
    let function = session.function("main")?.clone();
    let smallest: Vec<i64> = function.symbols.iter().map(|symbol| symbol.min).collect();
    let mut inputs = Vec::new();
    for port in &function.inputs {
        let shape: Result<Vec<usize>, _> =
            port.shape_at(&smallest)?.into_iter().map(usize::try_from).collect();
        inputs.push((port.name.as_str(), Array::zeros(port.host_type, &shape?).ok_or("too large")?));
    }
    let inputs: Vec<_> = inputs.iter().map(|(name, array)| (*name, array.as_ref())).collect();
    let outputs = session.run("main", &inputs)?;
    for (port, array) in function.outputs.iter().zip(&outputs) {
        println!("{}: {:?} {:?}", port.name, array.shape, array.to_f64().iter().take(5).collect::<Vec<_>>());
    }
    Ok(())
}
