//! Standard output as text or one JSON document, and files that are written atomically.

use std::io::{self, BufWriter, Stdout, Write};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tempfile::NamedTempFile;

use crate::failure::{Failure, Result};

/// Buffered standard output. Writing to a closed pipe is an error, never a panic.
#[derive(Debug)]
pub(crate) struct Out(BufWriter<Stdout>);

impl Out {
    pub(crate) fn stdout() -> Self {
        Self(BufWriter::new(io::stdout()))
    }

    /// Flushes the buffer.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.0.flush()
    }

    /// Writes one JSON document and a line break.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        serde_json::to_writer_pretty(&mut self.0, value)?;
        Ok(writeln!(self.0)?)
    }

    /// Writes a table. Each column is as wide as its longest cell; `right` selects the right-aligned columns.
    pub(crate) fn table(&mut self, right: &[bool], rows: &[Vec<String>]) -> Result<()> {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
        for row in rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(c, (cell, width))| {
                if right.get(c) == Some(&true) {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            });
            writeln!(self.0, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes a file atomically: to a temporary file in the same folder, which is then renamed.
pub(crate) fn write_file(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    write_with_mode(path, 0o666, |file| fill(file))
}

/// Writes a file atomically like [`write_file`], readable only by its owner, and on the disk before it is renamed.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    write_with_mode(path, 0o600, |file| {
        file.write_all(text.as_bytes())?;
        file.flush()?;
        file.get_ref().as_file().sync_all()
    })
}

/// Writes a file atomically with these permissions on Unix.
fn write_with_mode(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&mut BufWriter<NamedTempFile>) -> io::Result<()>,
) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    #[cfg(not(unix))]
    let _ = mode;
    let written = builder.prefix(".driftc-").tempfile_in(folder).and_then(|file| {
        let mut buffered = BufWriter::new(file);
        fill(&mut buffered)?;
        let file = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.persist(path).map(|_| ()).map_err(|e| e.error)
    });
    written.map_err(|e| Failure::file(path, &e))
}

/// Creates a folder and its parents.
pub(crate) fn make_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|e| Failure::file(path, &e))
}

/// Prints a note to standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "note: {text}");
}

/// Prints notes to standard error.
pub(crate) fn show_notes(notes: &[String]) {
    for text in notes {
        note(text);
    }
}

/// Formats a number of bytes with three digits and a unit, such as `1.50 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{n} B"),
        _ => format!("{} {}", three_digits(value), units[unit]),
    }
}

/// Formats a duration with three digits and a unit, such as `1.50 ms`.
pub(crate) fn time(duration: Duration) -> String {
    nanoseconds(duration.as_secs_f64() * 1e9)
}

/// Formats a time in nanoseconds with three digits and a suitable unit, such as `1.50 ms`.
pub(crate) fn nanoseconds(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{} µs", three_digits(ns / 1e3)),
        ns if ns < 1e9 => format!("{} ms", three_digits(ns / 1e6)),
        _ => format!("{} s", three_digits(ns / 1e9)),
    }
}

/// Converts a duration to milliseconds for JSON.
pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Formats a number with at least three digits: two, one or no decimals.
pub(crate) fn three_digits(value: f64) -> String {
    match value.abs() {
        v if v < 10.0 => format!("{value:.2}"),
        v if v < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Makes a name safe for a file name: every character except letters, digits, `.`, `_` and `-` becomes `_`.
pub(crate) fn file_name(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let text: String = name.chars().map(safe).collect();
    match text.trim_matches('.') {
        "" => format!("_{}", "_".repeat(text.len().saturating_sub(1))),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, file_name, nanoseconds};

    #[test]
    fn names_become_file_names() {
        assert_eq!(file_name("/model/Relu_output_0:0"), "_model_Relu_output_0_0");
        assert_eq!(file_name("a.b-c"), "a.b-c");
        assert_eq!(file_name(".."), "__");
        assert_eq!(file_name(""), "_");
        assert_eq!(file_name("größe"), "gr__e");
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(200 << 20), "200 MiB");
        assert_eq!(nanoseconds(12.0), "12 ns");
        assert_eq!(nanoseconds(12345.0), "12.3 µs");
    }
}
