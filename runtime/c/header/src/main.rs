//! Prints `drift.h`, generated from the sources of the C interface: `drift-header FOLDER`.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: drift-header FOLDER")?;
    let folder = Path::new(&folder);
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"))?;
    let mut sources = cbindgen::Builder::new().with_config(config);
    for name in [
        "types",
        "text_types",
        "picture_types",
        "speech_types",
        "errors",
        "inspect",
        "runs",
        "self_tests",
        "arrays",
        "generators",
        "chats",
        "tokenizers",
        "embedders",
        "pictures",
        "speech",
    ] {
        sources = sources.with_src(folder.join(format!("src/{name}.rs")));
    }
    sources.generate()?.write(std::io::stdout().lock());
    Ok(())
}
