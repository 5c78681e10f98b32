//! Prints `drift.h` as the sources of the C interface say it: `drift-header FOLDER_OF_THE_INTERFACE`.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("which folder?")?;
    let folder = Path::new(&folder);
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"))?;
    let mut sources = cbindgen::Builder::new().with_config(config);
    for name in ["types", "errors", "inspect", "runs", "arrays", "generators"] {
        sources = sources.with_src(folder.join(format!("src/{name}.rs")));
    }
    sources.generate()?.write(std::io::stdout().lock());
    Ok(())
}
