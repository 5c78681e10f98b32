//! Tests of house rules that no compiler checks: file sizes, complete tables, and which part of the code may use which.
//!
//! The tests read the sources as text. A test whose folder or table is missing fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use driftc::kernels::KERNELS;
use driftc::plan::tuning::source_hash;
use driftc::target::TargetProfile;
use driftc::target::static_facts::KernelFacts;

/// Maximum number of lines of a source file, because a longer file has more than one job.
const MAX_LINES: usize = 600;
/// Words that may stand before `fn`.
const FUNCTION_QUALIFIERS: [&str; 5] = ["const", "async", "unsafe", "extern", "\"C\""];
/// Maximum number of lines of a function, except in tests.
const MAX_FUNCTION_LINES: usize = 80;

/// Start of the first line of generated files, to which no style rule applies.
const GENERATED: &str = "// @generated";

/// Names of vendors, drivers and devices, which Rust code must not contain. Facts about them belong to `targets/*.toml`.
const DEVICE_WORDS: &[&str] = &[
    "adreno",
    "amd",
    "apple",
    "geforce",
    "hopper",
    "immortalis",
    "intel",
    "lavapipe",
    "llvmpipe",
    "mali",
    "mesa",
    "moltenvk",
    "nvidia",
    "powervr",
    "qualcomm",
    "radeon",
    "radv",
    "snapdragon",
    "swiftshader",
    "turnip",
];

/// Device names that show, like [`DEVICE_WORDS`], that a comment cites a measurement. So do the phrases of
/// [`PHRASES_OF_MEASUREMENTS`], and numbers with a unit of [`UNITS_OF_MEASUREMENTS`].
const MEASURED_DEVICES: &[&str] = &["h100", "h200"];
const PHRASES_OF_MEASUREMENTS: &[&str] = &["% faster", "% slower", " measurements of "];
const UNITS_OF_MEASUREMENTS: &[&str] = &["µs", "us", "ns", "ms", "GB/s", "TB/s", "GFLOP/s", "TFLOP/s"];

/// Folder of the WGSL declarations that several kernels share.
const PRELUDES: &str = "compiler/src/kernels/shared/preludes";

#[test]
fn files_are_short() {
    report(&sources(".", &["rs", "wgsl"]), |file| {
        let lines = file.text.lines().count();
        (lines > MAX_LINES).then(|| format!("the file has {lines} lines, the maximum is {MAX_LINES}: split it into files with one job each"))
    });
}

#[test]
fn functions_are_short() {
    report(&sources(".", &["rs"]), |file| {
        let code = code_of(file);
        let lines: Vec<&str> = code.lines().collect();
        let length = |start: usize| {
            let line = lines.get(start)?;
            let indentation = line.len() - line.trim_start().len();
            let closing = format!("{:indentation$}}}", "");
            let end = lines.iter().skip(start).position(|line| line.trim_end() == closing)?;
            Some(end + 1)
        };
        let starts = (0..lines.len()).filter(|start| opens_function(lines[*start]));
        let (start, length) =
            starts.filter_map(|start| Some((start, length(start)?))).max_by_key(|(_, n)| *n)?;
        (length > MAX_FUNCTION_LINES).then(|| {
            let line = start + 1;
            format!("the function in line {line} has {length} lines, the maximum is {MAX_FUNCTION_LINES}")
        })
    });
}

/// True if a line is the first line of a function with a body of several lines. rustfmt puts the closing brace of such a function
/// at the same indentation.
fn opens_function(line: &str) -> bool {
    let is_function = line.split("fn ").next().is_some_and(|before| {
        before.split_whitespace().all(|word| word.starts_with("pub") || FUNCTION_QUALIFIERS.contains(&word))
    });
    line.contains("fn ") && is_function && !line.trim_end().ends_with(['}', ';'])
}

#[test]
fn every_rust_file_opens_with_what_it_is() {
    report(&sources(".", &["rs"]), |file| {
        let first = file.text.lines().find(|line| !line.starts_with("#!["));
        let documented = first.is_some_and(|line| line.starts_with("//!") && line.len() > 4);
        (!documented).then(|| {
            "the file has no module doc; say in the first lines what it contains, and why".to_owned()
        })
    });
}

#[test]
fn nothing_is_put_off() {
    let words = [concat!("#[igno", "re"), concat!("todo", "!("), concat!("TO", "DO"), concat!("FIX", "ME")];
    report(&sources(".", &["rs", "wgsl"]), |file| {
        let word = words.into_iter().find(|word| file.text.contains(word))?;
        Some(format!("the file contains `{word}`: do the work now, or remove the marker"))
    });
}

#[test]
fn device_names_stay_in_profiles() {
    let folders = ["compiler/src", "runtime/src", "runtime/format/src"];
    let files = folders.iter().flat_map(|folder| sources(folder, &["rs"]));
    // This table lists file names.
    let files: Vec<Source> = files.filter(|file| file.name != "targets/src/lib.rs").collect();
    report(&files, |file| {
        let code = code_of(file);
        let word = words_of(&code).into_iter().find(|word| DEVICE_WORDS.contains(&word.as_str()))?;
        Some(format!(
            "the code contains the device word `{word}`; it must depend on facts of the target profile instead"
        ))
    });
}

#[test]
fn only_emit_knows_naga_and_only_import_knows_protobuf() {
    let folders = ["compiler/src", "compiler/cli/src", "models", "runtime"];
    // The demo compiles an ONNX file that it writes.
    let written = ["models/demo/src/onnx.rs", "models/demo/src/resnet50.rs"];
    for (library, folder) in [("naga", "compiler/src/emit"), ("prost", "compiler/src/import")] {
        let outside =
            |file: &Source| !file.name.starts_with(folder) && !written.contains(&file.name.as_str());
        let files: Vec<Source> = folders.iter().flat_map(|f| sources(f, &["rs"])).filter(outside).collect();
        report(&files, |file| {
            let used = words_of(&code_of(file)).contains(library);
            used.then(|| format!("only {folder} may use the library `{library}`"))
        });
    }
}

#[test]
fn the_runtime_has_no_kernel() {
    let folders = ["runtime/src", "runtime/format/src"];
    let shaders = folders.iter().flat_map(|folder| sources(folder, &["wgsl", "glsl", "comp", "spv"]));
    report(&shaders.collect::<Vec<_>>(), |_| {
        Some("the runtime must contain no shader: kernels come from bundles".to_owned())
    });
}

#[test]
fn every_kernel_is_in_the_table() {
    let folder = "compiler/src/kernels";
    let table = table(&format!("{folder}/mod.rs"), "KERNELS");
    let rust = sources(folder, &["rs"]);
    report(&rust, |file| {
        let listed = table.contains(&format!("::{}::KERNEL", file.stem()))
            || table.contains(&format!(" {}::KERNEL", file.stem()));
        (file.text.contains("const KERNEL: Kernel") && !listed)
            .then(|| format!("kernel `{}` is missing from KERNELS in {folder}/mod.rs", file.stem()))
    });
    let mut shaders = sources(folder, &["wgsl"]);
    shaders.retain(|file| !file.name.starts_with(PRELUDES));
    report(&shaders, |file| {
        let beside = file.name.replace(".wgsl", ".rs");
        let includes = format!("include_str!(\"{}\")", file.base());
        let included = rust.iter().any(|source| source.name == beside && source.text.contains(&includes));
        (!included).then(|| format!("{beside} does not include this WGSL file"))
    });
}

#[test]
fn every_prelude_is_used_and_in_the_table() {
    let list = "compiler/src/kernels/shared/preludes.rs";
    let table = table(list, "PRELUDES");
    let rust = sources("compiler/src/kernels", &["rs"]);
    report(&sources(PRELUDES, &["wgsl"]), |file| {
        let listed = table.contains(&format!("include_str!(\"preludes/{}\")", file.base()));
        let included = format!("/preludes/{}\")", file.base());
        match (listed, rust.iter().any(|source| source.text.contains(&included))) {
            (false, _) => Some(format!("this prelude is missing from PRELUDES in {list}")),
            (true, false) => Some("no kernel includes this prelude".to_owned()),
            (true, true) => None,
        }
    });
}

#[test]
fn every_list_of_cases_is_in_the_table() {
    let folder = "compiler/src/kernels/cases";
    let table = table(&format!("{folder}/mod.rs"), "CASES");
    report(&sources(folder, &["txt"]), |file| {
        let listed = table.contains(&format!("include_str!(\"{}\")", file.base()));
        (!listed).then(|| format!("this file of cases is missing from CASES in {folder}/mod.rs"))
    });
}

#[test]
fn kernels_know_the_machinery_and_no_other_family() {
    let files = sources("compiler/src/shader", &["rs"]);
    report(&files, |file| {
        let kernels = code_of(file).contains("crate::kernels");
        kernels.then(|| "compiler/src/shader must not use a kernel".to_owned())
    });
    let folder = "compiler/src/kernels/";
    let files = sources(folder, &["rs"]);
    let place = |file: &Source| {
        let path = file.name.strip_prefix(folder).unwrap_or_default().to_owned();
        path.split(['/', '.']).next().unwrap_or_default().to_owned()
    };
    let common = ["cases", "cost", "kernel", "shared"];
    let families: BTreeSet<String> =
        files.iter().map(place).filter(|p| p != "mod" && !common.contains(&p.as_str())).collect();
    report(&files, |file| {
        let (family_of_file, code) = (place(file), code_of(file));
        let named = |family: &&String| {
            **family != family_of_file && code.contains(&format!("crate::kernels::{family}"))
        };
        let other = families.iter().filter(|_| family_of_file != "mod").find(named)?;
        Some(format!("this kernel family uses the family `{other}`; move common code to {folder}shared"))
    });
}

#[test]
fn every_operator_with_symbolic_sizes_hands_them_out() {
    let files = sources("compiler/src/ir/ops", &["rs"]);
    assert!(files.iter().any(|file| file.text.contains("fn sizes_mut")), "no operator has `sizes_mut`");
    report(&files, |file| {
        let held = |line: &str| {
            let field = line.trim_start().strip_prefix("pub ").and_then(|rest| rest.split_once(": "));
            field.is_some_and(|(name, kind)| !name.contains('(') && words_of(kind).contains("dim"))
        };
        let code = code_of(file);
        let returned = code.split_once("fn sizes_mut").is_some_and(|(_, rest)| {
            let body = rest.split_once('}').map_or(rest, |(body, _)| body);
            !body.contains("Vec::new()")
        });
        let missing = code.lines().any(held) && !returned;
        missing.then(|| {
            "a field of the operator holds sizes that `sizes_mut` does not return, so specializations cannot fix these sizes"
                .to_owned()
        })
    });
}

#[test]
fn every_pass_is_in_the_pipeline() {
    let folder = "compiler/src/passes";
    let table = table(&format!("{folder}/mod.rs"), "PIPELINE");
    report(&sources(folder, &["rs"]), |file| {
        let is_pass = file.base() != "mod.rs" && file.text.contains("pub fn run(");
        let listed = table.contains(&format!("{}::", file.stem()));
        (is_pass && !listed)
            .then(|| format!("pass `{}` is missing from PIPELINE in {folder}/mod.rs", file.stem()))
    });
}

#[test]
fn every_family_of_operators_is_in_the_table() {
    let folder = "compiler/src/import/onnx";
    let table = table(&format!("{folder}/registry.rs"), "FAMILIES");
    report(&sources(folder, &["rs"]), |file| {
        let is_family = file.text.contains("const OPS: &[OpEntry]");
        let listed = table.contains(&format!("super::{}::OPS,", file.stem()));
        (is_family && !listed)
            .then(|| format!("the OPS of this file are missing from FAMILIES in {folder}/registry.rs"))
    });
}

#[test]
fn every_operator_of_the_graph_is_in_the_list() {
    let list = fs::read_to_string(root().join("compiler/src/ir/op.rs"))
        .expect("compiler/src/ir/op.rs with the list of operators cannot be read");
    report(&sources("compiler/src/ir/ops", &["rs"]), |file| {
        let payload = file.text.split("impl Operation for ").nth(1)?.split_once(' ')?.0;
        let listed = list.contains(&format!("    {payload} = \""));
        (!listed).then(|| format!("operator `{payload}` is missing from ops! in compiler/src/ir/op.rs"))
    });
}

#[test]
fn every_strategy_of_memory_is_in_the_table() {
    let folder = "compiler/src/plan/memory";
    let table = table(&format!("{folder}/mod.rs"), "STRATEGIES");
    report(&sources(folder, &["rs"]), |file| {
        let places = |line: &str| {
            let named =
                ["pub(super) fn offsets(", "pub(super) fn objects("].iter().any(|f| line.starts_with(f));
            named && line.contains("&Conflicts")
        };
        let is_one = file.text.lines().any(places);
        let listed = table.contains(&format!("({}::", file.stem()));
        (is_one && !listed).then(|| {
            format!("memory strategy `{}` is missing from STRATEGIES in {folder}/mod.rs", file.stem())
        })
    });
}

#[test]
fn every_architecture_is_in_the_table() {
    let folders = table("models/src/lib.rs", "ARCHITECTURES");
    report(&sources("models/src", &["rs"]), |file| {
        let is_one = file.text.contains("pub(crate) fn build(folder: &mut Folder) -> Result<()>");
        let listed = folders.contains(&format!(" {}::build", file.stem()));
        (is_one && !listed)
            .then(|| "this architecture is missing from ARCHITECTURES in models/src/lib.rs".to_owned())
    });
    let without_files = table("models/src/builtin.rs", "BUILTIN");
    report(&sources("models/src", &["rs"]), |file| {
        let is_one = file.text.contains("fn build(g: &mut Builder<'_>, w: &dyn Tensors) -> Result<()>");
        let listed = without_files.contains(&format!("{}::build", file.stem()));
        (is_one && !listed)
            .then(|| "this architecture is missing from BUILTIN in models/src/builtin.rs".to_owned())
    });
}

#[test]
fn every_decomposition_is_in_the_table() {
    let folder = "compiler/src/decompose";
    let table = table(&format!("{folder}/mod.rs"), "DECOMPOSITIONS");
    report(&sources(folder, &["rs"]), |file| {
        let is_one = file.text.contains("pub const DECOMPOSITION: Decomposition");
        let listed = table.contains(&format!("{}::", file.stem()));
        (is_one && !listed).then(|| {
            format!("decomposition `{}` is missing from DECOMPOSITIONS in {folder}/mod.rs", file.stem())
        })
    });
}

#[test]
fn every_target_is_in_the_table() {
    let is_profile = |file: &Source| !file.name.contains("/drivers/") && file.name != "targets/Cargo.toml";
    let all = sources("targets", &["toml"]).into_iter().filter(is_profile);
    let (costs, files): (Vec<Source>, Vec<Source>) = all.partition(|file| file.name.contains("/costs/"));
    let (facts, files): (Vec<Source>, Vec<Source>) =
        files.into_iter().partition(|file| file.name.contains("/static/"));
    let files: BTreeSet<String> = files.iter().map(Source::stem).collect();
    let table: BTreeSet<String> = driftc::target::names().map(str::to_owned).collect();
    assert_eq!(
        files, table,
        "the files of targets/ (left) and BUILTIN in targets/src/lib.rs (right) name different profiles"
    );
    let facts: BTreeSet<String> = facts.iter().map(Source::stem).collect();
    let listed: BTreeSet<String> =
        driftc::target::STATIC_FACTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(
        facts, listed,
        "the files of targets/static/ (left) and STATIC_FACTS in targets/src/lib.rs (right) name different profiles"
    );
    let costs: BTreeSet<String> = costs.iter().map(Source::stem).filter(|name| name != "generic").collect();
    let fitted: BTreeSet<String> = driftc::target::COSTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(
        costs, fitted,
        "the files of targets/costs/ (left) and COSTS in targets/src/lib.rs (right) name different profiles"
    );
}

/// Static facts hold for one source of a kernel, so a changed kernel needs new facts.
#[test]
fn static_facts_hold_for_the_present_kernels() {
    let sources: BTreeMap<&str, String> =
        KERNELS.iter().map(|kernel| (kernel.name, source_hash(kernel.wgsl))).collect();
    let mut wrong = Vec::new();
    for (name, _) in driftc::target::STATIC_FACTS {
        let facts = TargetProfile::load(name).unwrap().static_facts.unwrap();
        let stale =
            |(kernel, known): &(&String, &KernelFacts)| sources.get(kernel.as_str()) != Some(&known.source);
        let stale: Vec<&str> =
            facts.kernels.iter().filter(stale).map(|(kernel, _)| kernel.as_str()).collect();
        if !stale.is_empty() || facts.kernels.is_empty() {
            wrong.push(format!("driftc calibrate --static -t {name}  # {}", stale.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "kernels have changed since drivers compiled them; run\n{}", wrong.join("\n"));
}

#[test]
fn measurements_stay_in_data() {
    let files = sources("compiler/src", &["rs", "wgsl"]);
    report(&files, |file| {
        let (line, found) = comments_of(file).find_map(|(number, comment)| {
            let words = words_of(&comment);
            let mut devices = DEVICE_WORDS.iter().chain(MEASURED_DEVICES);
            let device = devices.find(|word| words.contains(**word));
            let phrase = || PHRASES_OF_MEASUREMENTS.iter().find(|phrase| counted(&comment, phrase));
            let unit = || UNITS_OF_MEASUREMENTS.iter().find(|unit| counted(&comment, unit));
            Some((number, *device.or_else(phrase).or_else(unit)?))
        })?;
        Some(format!(
            "the comment in line {line} cites a measurement (`{found}`); measurements belong to targets/ and benches/log/"
        ))
    });
}

#[test]
fn margins_of_decompositions_stay_in_data() {
    report(&sources("compiler/src/decompose", &["rs"]), |file| {
        let code = code_of(file);
        let line = code.lines().find(|line| line.contains("const ") && line.contains(": f64"))?;
        Some(format!(
            "`{}`: a threshold must be a field of decompose/params.rs, with its value in targets/costs/generic.toml",
            line.trim()
        ))
    });
}

#[test]
fn every_fault_is_in_the_document_and_in_a_profile_and_avoided() {
    let document = fs::read_to_string(root().join("targets/README.md")).unwrap();
    let profiles = sources("targets", &["toml"]);
    let code: Vec<String> = sources("compiler/src", &["rs"])
        .iter()
        .filter(|file| file.name != "compiler/src/target/quirks.rs")
        .map(code_of)
        .collect();
    for (fault, name, what) in driftc::target::quirks::FAULTS {
        assert!(
            document.contains(&format!("| `{name}` | {what} |")),
            "targets/README.md lacks the row of quirk `{name}` with its workaround"
        );
        let named = profiles.iter().any(|file| file.text.contains(&format!("name = \"{name}\"")));
        assert!(named, "no profile has `{name}`");
        let read = code.iter().any(|text| text.contains(&format!("Fault::{fault:?}")));
        assert!(read, "no code of the compiler reads the quirk `{name}`");
    }
}

#[test]
fn every_kernel_file_is_valid_after_its_preludes() {
    report(&sources("compiler/src", &["wgsl"]), |file| {
        let mut text = preludes_of(file);
        text += &file.text;
        let module = match naga::front::wgsl::parse_str(&text) {
            Ok(module) => module,
            Err(error) => return Some(error.emit_to_string(&text)),
        };
        let flags = naga::valid::ValidationFlags::all();
        let mut validator = naga::valid::Validator::new(flags, naga::valid::Capabilities::all());
        let error = validator.validate(&module).err()?;
        Some(error.emit_to_string(&text))
    });
}

/// Returns the source of the preludes that the header of a WGSL file names in a line `// Preludes: ...`.
fn preludes_of(file: &Source) -> String {
    let header = file.text.lines().take_while(|line| line.starts_with("//"));
    let names = header.filter(|line| line.starts_with("// Prelude"));
    let names = names.flat_map(|line| line.split('`').filter(|name| name.ends_with(".wgsl")));
    let read = |name: &str| {
        let path = format!("{PRELUDES}/{name}");
        fs::read_to_string(root().join(&path)).unwrap_or_else(|e| panic!("{}: {path}: {e}", file.name))
    };
    names.map(read).collect()
}

struct Source {
    /// Path of a source file from the repository's root, with `/` between folders.
    name: String,
    text: String,
}

impl Source {
    fn base(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }

    /// Returns the name of the file's module: the file name without its ending, or the folder of a `mod.rs`.
    fn stem(&self) -> String {
        let path = self.name.strip_suffix("/mod.rs").unwrap_or(&self.name);
        let base = path.rsplit('/').next().unwrap_or(path);
        base.split('.').next().unwrap_or_default().to_owned()
    }
}

#[track_caller]
fn report(files: &[Source], rule: impl Fn(&Source) -> Option<String>) {
    let complaint = |file: &Source| rule(file).map(|complaint| format!("{}: {complaint}", file.name));
    let complaints: Vec<String> = files.iter().filter_map(complaint).collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// Returns the source text of the constant list `name` in a file, from its name to its end.
#[track_caller]
fn table(file: &str, name: &str) -> String {
    let text = fs::read_to_string(root().join(file)).unwrap_or_default();
    let after = text.split_once(&format!("const {name}:")).map(|(_, rest)| rest);
    let list = after.and_then(|rest| rest.split_once("];")).map(|(list, _)| list);
    list.unwrap_or_else(|| panic!("{file} has no list `const {name}`")).to_owned()
}

/// Returns the code of a file without comments and tests.
fn code_of(file: &Source) -> String {
    if file.base() == "tests.rs" || file.name.contains("/tests/") {
        return String::new();
    }
    let code = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Returns the comments of a file with their line numbers, without comments in tests.
fn comments_of(file: &Source) -> impl Iterator<Item = (usize, String)> + '_ {
    let tests = file.base() == "tests.rs" || file.name.contains("/tests/");
    let code = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().zip(1..).filter(move |_| !tests);
    lines.filter_map(|(line, number)| Some((number, line.split_once("//")?.1.to_owned())))
}

/// True if the text contains the unit or phrase `unit` after a digit.
fn counted(text: &str, unit: &str) -> bool {
    text.match_indices(unit).any(|(at, _)| {
        let ends = text.get(at + unit.len()..).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
        let before = text.get(..at).unwrap_or_default().trim_end();
        ends && before.ends_with(|c: char| c.is_ascii_digit())
    })
}

/// Splits the names in code into lowercase words; `_` and a capital letter start a word.
fn words_of(code: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let mut word = String::new();
    for c in code.chars() {
        if (!c.is_alphanumeric() || c.is_uppercase()) && !word.is_empty() {
            words.insert(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
    }
    words.insert(word);
    words
}

/// Reads all files with one of these endings below a folder of the repository, in the order of their paths. Skips generated
/// files.
#[track_caller]
fn sources(folder: &str, endings: &[&str]) -> Vec<Source> {
    let root = root();
    assert!(root.join(folder).is_dir(), "the repository has no folder {folder}");
    let mut paths = Vec::new();
    collect(&root.join(folder), &mut paths);
    paths.sort();
    let ending = |path: &PathBuf| path.extension().and_then(|ending| ending.to_str()).map(str::to_owned);
    paths.retain(|path| ending(path).is_some_and(|ending| endings.contains(&ending.as_str())));
    let read = |path: PathBuf| {
        let name = path.strip_prefix(&root).ok()?.to_str()?.replace('\\', "/");
        Some(Source { name, text: fs::read_to_string(&path).ok()? })
    };
    paths.into_iter().filter_map(read).filter(|file| !file.text.starts_with(GENERATED)).collect()
}

fn collect(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let built =
            path == root().join("target") || path.join("CACHEDIR.TAG").exists() || name == "node_modules";
        let skipped = built || name.starts_with('.');
        match path.is_dir() {
            true if !skipped => collect(&path, out),
            false => out.push(path),
            true => {}
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}
