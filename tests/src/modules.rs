//! Dependencies between the files of a crate, found by reading the source text.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// Source file of a crate with the names that it uses.
#[derive(Debug, Default)]
pub struct Module {
    /// Modules whose items the file's code names. The file's tests do not count.
    pub uses: BTreeSet<String>,
    /// Items that the file re-exports (`pub use`), with the path from which each comes.
    exports: BTreeMap<String, Vec<String>>,
    /// Modules of which the file re-exports all items (`pub use path::*`).
    globs: Vec<Vec<String>>,
    /// Paths of items that the file's code names, from the crate's root.
    paths: Vec<Vec<String>>,
}

/// Reads all modules of a crate's source folder. Keys are module names such as `ir::graph`; the crate's root has an empty name.
///
/// # Errors
/// If a folder or a file cannot be read.
pub fn modules(folder: &Path) -> io::Result<BTreeMap<String, Module>> {
    let mut files = Vec::new();
    collect(folder, &mut Vec::new(), &mut files)?;
    let names: BTreeSet<String> = files.iter().map(|(name, _)| name.join("::")).collect();
    let mut found: BTreeMap<String, Module> =
        files.iter().map(|(name, text)| (name.join("::"), read(name, text, &names))).collect();
    let uses: Vec<(String, BTreeSet<String>)> = found
        .iter()
        .map(|(name, module)| {
            let owners = module.paths.iter().filter_map(|path| owner(&found, path, 8));
            (name.clone(), owners.filter(|owner| owner != name).collect())
        })
        .collect();
    for (name, uses) in uses {
        if let Some(module) = found.get_mut(&name) {
            module.uses = uses;
        }
    }
    Ok(found)
}

/// Lists the Rust files below a folder with the names of their modules.
fn collect(folder: &Path, name: &mut Vec<String>, out: &mut Vec<(Vec<String>, String)>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let is_root = name.is_empty() && matches!(stem.as_str(), "lib" | "main");
        if path.is_dir() {
            // Programs of their own.
            if !(name.is_empty() && stem == "bin") {
                name.push(stem);
                collect(&path, name, out)?;
                name.pop();
            }
        } else if path.extension().is_some_and(|e| e == "rs") && stem != "tests" {
            let mut module = name.clone();
            if stem != "mod" && !is_root {
                module.push(stem);
            }
            out.push((module, std::fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

/// Reads one file.
fn read(name: &[String], text: &str, names: &BTreeSet<String>) -> Module {
    let code = flatten_modules(&without_tests(&code_of(text)));
    let mut module = Module::default();
    let mut rest = code.as_str();
    while let Some(at) = find_use(rest) {
        let (before, after) = rest.split_at(at);
        module.paths.extend(inline_paths(name, before));
        let public = before.trim_end().ends_with("pub") || before.trim_end().ends_with(')');
        let end = after.find(';').unwrap_or(after.len());
        for tree in expand(&after[3..end]) {
            let Some(path) = absolute(name, &tree, names) else { continue };
            let alias = tree.iter().position(|part| part == "as");
            let path = path[..path.len() - alias.map_or(0, |at| tree.len() - at)].to_vec();
            match (public, path.last().map(String::as_str)) {
                (true, Some("*")) => module.globs.push(path[..path.len() - 1].to_vec()),
                (true, Some(last)) => {
                    let exported =
                        if alias.is_some() { tree.last().cloned().unwrap_or_default() } else { last.into() };
                    module.exports.insert(exported, path);
                }
                (false, _) => module.paths.push(path),
                (true, None) => {}
            }
        }
        rest = &after[end..];
    }
    module.paths.extend(inline_paths(name, rest));
    module
}

/// Returns the offset of the first `use` declaration in the code.
fn find_use(code: &str) -> Option<usize> {
    let found = code.match_indices("use ");
    found.map(|(at, _)| at).find(|at| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Returns the module that defines the item of a path, following re-exports at most `depth` times.
fn owner(modules: &BTreeMap<String, Module>, path: &[String], depth: usize) -> Option<String> {
    let known = (0..=path.len()).rev().find(|n| modules.contains_key(&path[..*n].join("::")))?;
    let name = path[..known].join("::");
    let module = &modules[&name];
    if depth == 0 {
        return Some(name);
    }
    if let Some(target) = path.get(known).and_then(|item| module.exports.get(item)) {
        let full: Vec<String> = target.iter().chain(&path[known + 1..]).cloned().collect();
        return owner(modules, &full, depth - 1);
    }
    // A path to a module itself names none of its items.
    (known < path.len()).then_some(name)
}

/// Returns the paths in code outside of `use` declarations that start with `crate`, `super` or `self`, from the crate's root.
fn inline_paths(name: &[String], code: &str) -> Vec<Vec<String>> {
    let mut out = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let end = code[at..].find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
            let text = &code[at..end.map_or(code.len(), |end| at + end)];
            let parts: Vec<String> =
                text.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
            out.extend(absolute(name, &parts, &BTreeSet::new()));
        }
    }
    out
}

/// Rewrites a path so that it starts at the crate's root. Returns `None` if the path leads into another crate.
fn absolute(name: &[String], path: &[String], names: &BTreeSet<String>) -> Option<Vec<String>> {
    let mut base = name.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => (base, rest) = (Vec::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        child => {
            let child = [name, &[child.to_owned()]].concat().join("::");
            if !names.contains(&child) {
                return None;
            }
        }
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// Returns the paths of a `use` tree: `a::{b, c::d}` gives `a::b` and `a::c::d`.
fn expand(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let parts = tree.split("::").flat_map(|part| part.split_whitespace());
        return vec![parts.map(str::to_owned).collect()];
    };
    let prefix: Vec<String> =
        tree[..open].split("::").map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect();
    let inner = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let below = parts.into_iter().filter(|part| !part.trim().is_empty()).flat_map(expand);
    below
        .map(|path| prefix.iter().cloned().chain(path.into_iter().filter(|p| p != "self")).collect())
        .collect()
}

/// Returns source text without comments and strings.
fn code_of(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut in_string = false;
        let mut previous = ' ';
        for (at, c) in line.char_indices() {
            if !in_string && line[at..].starts_with("//") {
                break;
            }
            if c == '"' && previous != '\\' && !line[at..].starts_with("\"'") {
                in_string = !in_string;
            } else if !in_string {
                out.push(c);
            }
            previous = if previous == '\\' { ' ' } else { c };
        }
        out.push('\n');
    }
    out
}

/// Rewrites the paths in inline modules (`mod name { .. }`) as if they stood at the top level of the file: each enclosing
/// module removes one `super`.
fn flatten_modules(code: &str) -> String {
    let mut out = String::new();
    let (mut depth, mut modules) = (0usize, Vec::new());
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let at_start = !out.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        if at_start && !modules.is_empty() && rest.starts_with("super::") {
            let levels = rest.split("super::").take_while(|part| part.is_empty()).count() - 1;
            let outside = levels.saturating_sub(modules.len());
            out.push_str(&if outside == 0 { "self::".to_owned() } else { "super::".repeat(outside) });
            rest = &rest["super::".len() * levels..];
            continue;
        }
        if c == '{' {
            let mut words = out.split_whitespace().rev();
            if (words.next(), words.next()).1 == Some("mod") {
                modules.push(depth);
            }
            depth += 1;
        } else if c == '}' {
            depth = depth.saturating_sub(1);
            modules.pop_if(|opened| *opened == depth);
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// Returns the code before the test module of a file, which stands at its end.
fn without_tests(code: &str) -> String {
    let tests = code.find("#[cfg(test)]\nmod ").filter(|at| code[*at..].contains('{'));
    tests.map_or(code, |at| &code[..at]).to_owned()
}
