//! Specialization of a kernel's WGSL: replaces top-level declarations by name, unrolls marked loops, and drops unused
//! declarations. All other WGSL stays as it is.
//!
//! A kernel file is a complete, valid WGSL module. The declarations that vary are constants, type aliases and functions
//! (hooks). A replacement may hold several declarations, so that a hook can bring its own bindings. Module `unroll`
//! describes marked loops.

use std::collections::{BTreeMap, BTreeSet};

use super::unroll::{is_marker, next_marker, unroll};
use super::wgsl_syntax::{self, Declaration, find_comment, lexemes};

/// Returns the kernel's WGSL with `replacements` applied and the declarations in `extra` appended. With
/// `short_shaders`, loops with the marker `// unroll or` stay loops.
///
/// # Errors
/// If the kernel does not declare a replaced name, or a marked loop has no constant bounds.
pub fn specialize(
    source: &str,
    replacements: &BTreeMap<String, String>,
    extra: &str,
    short_shaders: bool,
) -> Result<String, String> {
    let declared = wgsl_syntax::declarations(source)?;
    if let Some(name) = replacements.keys().find(|name| !declared.iter().any(|d| d.name == **name)) {
        return Err(format!("the kernel does not declare `{name}`"));
    }
    let mut declarations = Vec::with_capacity(declared.len());
    for declaration in declared {
        match replacements.get(&declaration.name) {
            Some(text) => declarations.extend(wgsl_syntax::declarations(text)?),
            None => declarations.push(declaration),
        }
    }
    declarations.extend(wgsl_syntax::declarations(extra)?);
    let mut known = BTreeSet::new();
    if let Some(twice) = declarations.iter().find(|d| !d.name.is_empty() && !known.insert(&d.name)) {
        return Err(format!("`{}` is declared twice", twice.name));
    }
    let constants: BTreeMap<String, String> = declarations
        .iter()
        .filter_map(|d| Some((d.name.clone(), d.text.strip_prefix("const ")?.split_once('=')?.1.to_string())))
        .collect();
    for declaration in &mut declarations {
        if next_marker(&declaration.text, 0).is_some() {
            declaration.text = unroll(&declaration.text, &constants, short_shaders)?;
        }
        declaration.text = strip_comments(&declaration.text);
    }
    prune(&mut declarations);
    let texts: Vec<String> = declarations.into_iter().map(|d| d.text).collect();
    Ok(texts.join("\n") + "\n")
}

/// Returns the names of the top-level declarations of WGSL source, in order.
///
/// # Errors
/// If the text is not a sequence of declarations.
pub fn declaration_names(source: &str) -> Result<Vec<String>, String> {
    Ok(wgsl_syntax::declarations(source)?.into_iter().map(|d| d.name).filter(|n| !n.is_empty()).collect())
}

/// Returns WGSL without comments and empty lines. Markers of loops to unroll stay.
pub fn strip_comments(text: &str) -> String {
    let comment = |line: &str| find_comment(line, 0).filter(|at| !is_marker(&line[*at..]));
    let lines: Vec<&str> = text
        .lines()
        .map(|l| comment(l).map_or(l, |at| &l[..at]).trim_end())
        .filter(|l| !l.trim().is_empty())
        .collect();
    lines.join("\n")
}

/// Drops WGSL declarations that no entry point, directive or assertion uses, directly or indirectly.
fn prune(declarations: &mut Vec<Declaration>) {
    let names: BTreeMap<&str, usize> = declarations
        .iter()
        .enumerate()
        .map(|(i, d)| (d.name.as_str(), i))
        .filter(|(n, _)| !n.is_empty())
        .collect();
    let mut live: BTreeSet<usize> = BTreeSet::new();
    let mut stack: Vec<usize> = declarations
        .iter()
        .enumerate()
        .filter(|(_, d)| d.name.is_empty() || d.text.contains("@compute"))
        .map(|(i, _)| i)
        .collect();
    while let Some(i) = stack.pop() {
        if live.insert(i) {
            let named = |part: &&str| part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            let used = lexemes(&declarations[i].text).filter(named);
            stack.extend(used.filter_map(|part| names.get(part).copied()));
        }
    }
    let mut index = 0;
    declarations.retain(|_| {
        index += 1;
        live.contains(&(index - 1))
    });
}

#[cfg(test)]
mod tests {
    use super::specialize;
    use std::collections::BTreeMap;

    const KERNEL: &str = "
/// Knob.
const N = 2u;
const M = N * 2u; // derived
alias elem = f32;
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> o: array<f32>;
fn load(i: u32) -> f32 { return a[i]; }
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    // unroll
    for (var i = 0u; i < M / 2u; i++) {
        o[id.x * M + i] = load(i);
    }
}
";

    #[test]
    fn specializing_replaces_unrolls_and_prunes() {
        let with =
            BTreeMap::from([("load".to_string(), "fn load(i: u32) -> f32 { return f32(i); }".to_string())]);
        let text = specialize(KERNEL, &with, "", false).unwrap();
        assert!(text.contains("{\n        o[id.x * M + 0u] = load(0u);"), "{text}");
        assert!(text.contains("load(1u)") && !text.contains("load(2u)"));
        assert!(!text.contains("array<f32>;\n@group(0) @binding(1)"), "an unused binding is still in {text}");
        assert!(!text.contains("elem"));
    }

    #[test]
    fn unknown_names_are_errors() {
        let with = BTreeMap::from([("nothing".to_string(), String::new())]);
        assert!(specialize(KERNEL, &with, "", false).is_err());
        assert!(specialize(KERNEL, &BTreeMap::new(), "alias elem = u32;", false).is_err());
    }
}
