//! Makes the bundles of `drift.toml`.

fn main() {
    drift_build::Build::new("drift.toml").run();
}
