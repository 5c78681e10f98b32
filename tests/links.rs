//! Checks the links between documents: every relative link names a file of the repository, and every anchor a heading of that
//! file.

use std::path::{Component, Path, PathBuf};
use std::process::Command;

#[test]
fn links_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let listed = Command::new("git").args(["ls-files", "*.md"]).current_dir(&root).output().unwrap();
    let mut broken = Vec::new();
    for page in String::from_utf8_lossy(&listed.stdout).lines() {
        let Ok(text) = std::fs::read_to_string(root.join(page)) else { continue };
        // The table of contents is written for a copy of the tree whose root it lies in.
        let folder = if page == "docs/SUMMARY.md" {
            ""
        } else {
            page.rsplit_once('/').map_or("", |(folder, _)| folder)
        };
        for link in links(&text) {
            broken.extend(fault(&root, page, folder, link).map(|why| format!("{page}: `{link}`: {why}")));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn links_and_anchors_are_found() {
    assert_eq!(links("see [a](b.md) and [c](d/e.md#f), `[not](this)`"), ["b.md", "d/e.md#f"]);
    assert_eq!(anchor("## Language models, `verify`"), "language-models-verify");
}

/// Returns the targets of the links in a Markdown page, without links in code.
fn links(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        in_block ^= line.trim_start().starts_with("```");
        if in_block {
            continue;
        }
        for (i, plain) in line.split('`').enumerate() {
            // A link whose text is code, `[`x`](y)`, starts after the closing backtick.
            let code = i % 2 == 1;
            let ends = plain.match_indices("](").filter(|_| !code);
            found.extend(ends.filter_map(|(at, _)| plain[at + 2..].split(')').next()));
        }
    }
    found
}

/// Returns the reason why a link leads nowhere, or `None` for a correct or an external link.
fn fault(root: &Path, page: &str, folder: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let file = if path.is_empty() { PathBuf::from(page) } else { normalized(&Path::new(folder).join(path)) };
    if !root.join(&file).exists() {
        return Some("the linked file does not exist".into());
    }
    if heading.is_empty() {
        return None;
    }
    let text = std::fs::read_to_string(root.join(&file)).unwrap_or_default();
    let known = text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading);
    (!known).then(|| format!("{} has no such heading", file.display()))
}

/// Returns a path with its `..` components resolved.
fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// Returns the anchor of a Markdown heading, as GitHub and mdBook form it: lowercase, with `-` for spaces.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
