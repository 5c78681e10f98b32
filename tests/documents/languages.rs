//! Runs code blocks: each language becomes a file of the scratch folder and a shell command that runs or checks the file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::place::{Place, root};

/// Options of the TypeScript compiler for JavaScript and TypeScript blocks.
const TYPE_CHECK: &str = "--noEmit --allowJs --checkJs --target ES2022 --module ES2022 --moduleResolution bundler --lib ES2023,DOM";

/// Beginning of the program around a Rust block.
const RUST_HEADER: &str = "#![allow(unused)]\nuse drift_runtime::*;\nuse drift_text::{ChatTemplate, Message, Stream, Tokenizer};\n\n";

/// Runs a block in a language other than shell. `given` comes before the block.
///
/// # Errors
/// If the block does not compile or fails, or if no block in this language can be run.
pub(crate) fn run(
    place: &Place,
    language: &str,
    line: usize,
    code: &str,
    given: &str,
) -> Result<String, String> {
    let file = |ending: &str, text: &str| {
        let name = format!("block-{line}.{ending}");
        fs::write(place.path().join(&name), text).map_err(|e| format!("{name}: {e}"))?;
        Ok::<String, String>(name)
    };
    match language {
        "python" | "py" => place.shell(&format!("python {}\n", file("py", &[given, code].concat())?), ""),
        "rust" => {
            let name = file("rs", &rust_program(code, given))?;
            run_rust(place, &name)
        }
        "c" | "cpp" => {
            let name = file(language, &[given, code].concat())?;
            place.shell(&c_command(&name, language, code), "")
        }
        "cmake" => {
            fs::write(place.path().join("CMakeLists.txt"), [given, code].concat())
                .map_err(|e| e.to_string())?;
            let build = format!("build-{line}");
            place
                .shell(&format!("cmake -S . -B {build} && cmake --build {build}\nexport BUILD={build}\n"), "")
        }
        "js" | "ts" => {
            fs::write(place.path().join("given.d.ts"), given).map_err(|e| e.to_string())?;
            let name = file(language, code)?;
            type_check(place, &name)
        }
        "toml" => code.parse::<toml::Table>().map(|_| String::new()).map_err(|e| e.to_string()),
        "json" => {
            serde_json::from_str::<serde_json::Value>(code).map(|_| String::new()).map_err(|e| e.to_string())
        }
        other => Err(format!(
            "no test can run a block in `{other}`: write `text` after the fence if it is no code, or add a rule to tests/documents/rules.toml"
        )),
    }
}

/// Completes a Rust block to a program, unless it has a function `main`.
fn rust_program(code: &str, given: &str) -> String {
    if code.contains("fn main") {
        return [given, code].concat();
    }
    format!(
        "{RUST_HEADER}fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {{\n{given}{code}Ok(())\n}}\n"
    )
}

/// Compiles a Rust program with the runtime that cargo built for the tests, and runs it.
fn run_rust(place: &Place, name: &str) -> Result<String, String> {
    let runtimes =
        current_libraries(place.built(), "drift_runtime", &["runtime/src/*.rs", "runtime/format/src/*.rs"])?;
    let texts = current_libraries(place.built(), "drift_text", &["models/text/src/*.rs"])?;
    let mut last = Err("cargo built no libdrift_runtime and libdrift_text".to_owned());
    for (runtime, text) in runtimes.iter().flat_map(|runtime| texts.iter().map(move |text| (runtime, text))) {
        last = place.shell(
            &format!(
                "rustc --edition 2024 -C debuginfo=0 -L dependency=\"$BUILT\" --extern drift_runtime='{}' \
                --extern drift_text='{}' -o ./program-{name} {name}\n./program-{name}\n",
                runtime.display(),
                text.display()
            ),
            "",
        );
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Returns the builds of a crate that are not older than its sources, latest first; if there are none, the latest build.
/// Builds differ in their features.
fn current_libraries(built: &Path, crate_name: &str, sources: &[&str]) -> Result<Vec<PathBuf>, String> {
    let modified = |path: &Path| path.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let is_build = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(&format!("lib{crate_name}-")) && name.ends_with(".rlib")
    };
    let entries = fs::read_dir(built).map_err(|e| format!("{}: {e}", built.display()))?;
    let mut builds: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_build).collect();
    builds.sort_by_key(|path| std::cmp::Reverse(modified(path)));
    let sources = crate::place::git_files(&root(), sources)?;
    let changed = sources.iter().map(|path| modified(&root().join(path))).max();
    let current = builds.iter().filter(|path| Some(modified(path)) >= changed).count();
    builds.truncate(current.max(1));
    Ok(builds)
}

/// Returns the command that compiles a C or C++ block. A block with a function `main` is linked with the static library.
fn c_command(name: &str, language: &str, code: &str) -> String {
    let compiler = if language == "c" { "cc -std=c99" } else { "c++ -std=c++11" };
    let strict = "-Wall -Wextra -Werror -I runtime/c/include";
    if code.contains("main(") {
        format!("{compiler} {strict} {name} -o ./program-{name} \"$BUILT/libdrift.a\" -lpthread -ldl -lm\n")
    } else {
        format!("{compiler} {strict} -fsyntax-only {name}\n")
    }
}

/// Checks the types of a JavaScript or TypeScript block, which imports the package as `./driftc-runtime/index.js`.
fn type_check(place: &Place, name: &str) -> Result<String, String> {
    place.shell(
        &format!(
            "[ -f runtime/web/dist/index.d.ts ] || npm run --silent build --prefix runtime/web\n\
            ln -sfn runtime/web/dist driftc-runtime\n\
            runtime/web/node_modules/.bin/tsc {TYPE_CHECK} given.d.ts {name}\n"
        ),
        "",
    )
}
