//! Prints the size of the bundle that the build script made.

/// The bundle is a part of the program.
static DETECTOR: &[u8] = include_bytes!(concat!(env!("DRIFT_BUNDLES"), "/detector.app.drift"));

fn main() {
    println!("{} bytes", DETECTOR.len());
}
