//! Arguments of `driftc compile` for an artifact.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::build::manifest::{Artifact, ModelTable, OneOrMore};
use crate::build::sizes::{Size, Values};

/// Argument of `driftc compile`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Argument {
    /// Option with its dashes.
    pub(crate) option: &'static str,
    pub(crate) value: Value,
}

/// Value of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// The option takes no value.
    None,
    Text(String),
    /// The path of a file, after a text such as `NAME=`.
    File(String, PathBuf),
}

impl Argument {
    /// Returns the words of a command line.
    pub(crate) fn words(&self) -> Vec<String> {
        let value = match &self.value {
            Value::None => None,
            Value::Text(text) => Some(text.clone()),
            Value::File(prefix, path) => Some(format!("{prefix}{}", path.display())),
        };
        std::iter::once(self.option.to_owned()).chain(value).collect()
    }

    /// True if the argument changes what the importer reads. Other arguments only change how the graph is compiled.
    pub(crate) fn is_for_import(&self) -> bool {
        !matches!(self.option, "--precision" | "--tuning" | "--specialize" | "--self-test" | "--optimize")
    }
}

/// Returns the arguments of an artifact. Paths are relative to `folder`.
pub(crate) fn arguments(model: &ModelTable, artifact: &Artifact, folder: &Path) -> Vec<Argument> {
    let mut list = inputs(model, artifact, folder);
    let mut add = |option, value| list.push(Argument { option, value });
    for link in &model.links {
        add("--link", Value::Text(link.clone()));
    }
    let texts = [
        ("--precision", &artifact.precision),
        ("--weights", &artifact.weights),
        ("--activations", &artifact.activations),
        ("--kv-cache", &artifact.kv_cache),
    ];
    for (option, text) in texts {
        if let Some(text) = text {
            add(option, Value::Text(text.clone()));
        }
    }
    for (option, path) in [("--calibrate", &artifact.calibrate), ("--tuning", &artifact.tuning)] {
        if let Some(path) = path {
            add(option, Value::File(String::new(), folder.join(path)));
        }
    }
    if let Some(n) = artifact.self_test {
        add("--self-test", Value::Text(n.to_string()));
    }
    for text in artifact.specialize.iter().flat_map(OneOrMore::as_slice) {
        add("--specialize", Value::Text(text.clone()));
    }
    for (option, is_set) in
        [("--batch-invariant", artifact.batch_invariant), ("--optimize", artifact.optimize)]
    {
        if is_set {
            add(option, Value::None);
        }
    }
    list
}

/// Returns the arguments for the model's inputs.
fn inputs(model: &ModelTable, artifact: &Artifact, folder: &Path) -> Vec<Argument> {
    let mut list = Vec::new();
    let mut add = |option, value| list.push(Argument { option, value });
    for (name, size) in overridden(&model.dims, &artifact.dims) {
        add("--dim", Value::Text(format!("{name}={size}")));
    }
    for (input, sizes) in overridden(&model.shapes, &artifact.shapes) {
        let sizes: Vec<String> = sizes.iter().map(Size::to_string).collect();
        add("--shape", Value::Text(format!("{input}={}", sizes.join(","))));
    }
    for (input, values) in overridden(&model.consts, &artifact.consts) {
        let text = |text: String| Value::Text(format!("{input}={text}"));
        let value = match values {
            Values::Flag(flag) => text(u8::from(*flag).to_string()),
            Values::Integer(n) => text(n.to_string()),
            Values::Float(x) => text(format!("{x:?}")),
            Values::List(numbers) => {
                text(numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
            }
            Values::Text(word) => {
                match Path::new(word).extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")) {
                    true => Value::File(format!("{input}="), folder.join(word)),
                    false => text(word.clone()),
                }
            }
        };
        add("--const", value);
    }
    for (input, files) in overridden(&model.likes, &artifact.likes) {
        for file in files.as_slice() {
            add("--like", Value::File(format!("{input}="), folder.join(file)));
        }
    }
    list
}

/// Returns the entries of the model, with the entries of the artifact in place of entries of the same names.
fn overridden<'a, V>(
    model: &'a BTreeMap<String, V>,
    artifact: &'a BTreeMap<String, V>,
) -> BTreeMap<&'a String, &'a V> {
    model.iter().chain(artifact).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use clap::Args;

    use super::{Argument, arguments};
    use crate::build::manifest::ModelTable;
    use crate::commands::compile::CompileArgs;

    /// Options that a manifest has in another form, or that are no property of an artifact.
    const ELSEWHERE: &[&str] = &["target", "output", "sign", "emit-dir", "threads", "json"];

    const ALL: &str = r#"
path = ["model.onnx", "other.onnx"]
links = ["model.y=other.x"]
dims = { n = 2, m = "1..4" }
shapes = { x = [1, "n"] }
consts = { a = 1, b = 0.5, c = [1, 2], d = true, e = "e.npy", f = "1,2" }
likes = { y = ["1.npy", "2.npy"] }
[[artifact]]
name = "all"
targets = "t"
dims = { m = 3 }
precision = "f16"
weights = "q8"
calibrate = "text.txt"
activations = "q8"
kv-cache = "q8"
batch-invariant = true
tuning = "t.tune"
specialize = ["n=1", "n=2"]
self-test = 2
optimize = true
"#;

    #[test]
    fn a_manifest_has_every_option_of_compile() {
        let model: ModelTable = toml::from_str(ALL).unwrap();
        let arguments = arguments(&model, &model.artifacts[0], Path::new("in"));
        let set: BTreeSet<&str> = arguments.iter().map(|a| a.option.trim_start_matches('-')).collect();
        let command = CompileArgs::augment_args(clap::Command::new("compile"));
        let known = command.get_arguments().filter_map(clap::Arg::get_long);
        let known: BTreeSet<&str> = known.filter(|name| !ELSEWHERE.contains(name)).collect();
        assert_eq!(set, known);
        let words: Vec<String> = arguments.iter().flat_map(Argument::words).collect();
        let line = "--dim m=3 --dim n=2 --shape x=1,n --const a=1 --const b=0.5 --const c=1,2 --const d=1 --const \
                    e=in/e.npy --const f=1,2 --like y=in/1.npy --like y=in/2.npy --link model.y=other.x --precision f16 --weights q8 --activations q8 --kv-cache q8 \
                    --calibrate in/text.txt --tuning in/t.tune --self-test 2 --specialize n=1 --specialize n=2 \
                    --batch-invariant --optimize";
        assert_eq!(words.join(" "), line);
    }
}
