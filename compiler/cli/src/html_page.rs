//! Parts of self-contained HTML pages.

/// Style of a page.
pub(crate) const STYLE: &str = "\
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1400px;padding:0 1em;color:#222;background:#fff}\
h1{font-size:1.5em}h2{margin-top:2em;border-top:1px solid #ccc;padding-top:1em}\
table{border-collapse:collapse}td,th{padding:.15em .7em;text-align:left;vertical-align:top}\
th{border-bottom:1px solid #999;position:sticky;top:0;background:#fff}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}tbody tr:nth-child(even){background:#f4f4f4}\
.plans{display:flex;flex-wrap:wrap;gap:2em}figure{margin:0}figcaption{margin-bottom:.4em}\
.bar{display:inline-block;height:.8em;background:#4878a8}code{font-size:.95em}\
svg{background:#fafafa;border:1px solid #ddd}svg text{font:11px system-ui,sans-serif;fill:#555}\
rect.t:hover{stroke:#000;stroke-width:1.5}";

/// Escapes text for HTML elements and quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("<a href=\"x\">&'\n"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39; ");
    }
}
