//! `driftc build --init`: writes a manifest with comments.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::model::declarations;
use crate::output::write_file;

const HEADER: &str = "\
# Bundles that `driftc build` makes. docs/PIPELINES.md describes all keys.

[output]
folder = \"bundles\" # one file for each artifact: MODEL.ARTIFACT.drift

# Groups of targets; `driftc targets list` has their names. A path such as \"./my-device.toml\" names a profile of yours.
[targets]
phones = [\"adreno-750\", \"mali-g720\", \"android-15\"]
desktop = [\"vulkan-baseline\"]
";

const ARTIFACT: &str = "
[[model.artifact]]
name = \"phones\"
targets = \"phones\" # one bundle for all three; split = true makes one for each
precision = \"f16\"
# budget = { bytes = \"40 MiB\", memory = \"64 MiB\", time-ms = { adreno-750 = 20.0 } } # the build fails above

[[model.artifact]]
name = \"desktop\"
targets = \"desktop\"
# weights = \"q8\"
";

/// Writes a manifest for models.
///
/// # Errors
/// If the file exists, a model cannot be read, or the file cannot be written.
pub(crate) fn init(manifest: &Path, models: &[PathBuf]) -> Result<()> {
    if manifest.exists() {
        return Err(Failure::input(format!("{} exists already", manifest.display()))
            .help("remove it, or name another file: driftc build OTHER.toml --init MODEL"));
    }
    let mut text = HEADER.to_owned();
    for model in models {
        text.push_str(&model_table(model)?);
        text.push_str(ARTIFACT);
    }
    write_file(manifest, |file| file.write_all(text.as_bytes()))
}

/// Returns the table of a model. Its symbolic sizes are comments.
fn model_table(model: &Path) -> Result<String> {
    let stem = if model.is_dir() { model.file_name() } else { model.file_stem() };
    let name: String = stem
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
        .chars()
        .map(|c| if c.is_alphanumeric() || "-_+.".contains(c) { c } else { '-' })
        .collect();
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let mut table = format!(
        "\n[[model]]\nname = {}\npath = {} # an .onnx file, a .gguf file or a Hugging Face folder\n",
        quoted(name.trim_start_matches('.')),
        quoted(&model.display().to_string())
    );
    let mut sizes = BTreeSet::new();
    for input in declarations(model)? {
        input.shape.iter().flatten().for_each(|size| size.symbols(&mut sizes));
    }
    if !sizes.is_empty() {
        let sizes: Vec<String> =
            sizes.iter().map(|symbol| format!("{} = \"1..512\"", quoted(symbol))).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(table, "# dims = {{ {} }}", sizes.join(", "));
    }
    Ok(table)
}
