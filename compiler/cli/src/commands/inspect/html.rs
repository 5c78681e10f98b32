//! Self-contained HTML page of a bundle: sections, requirements, inputs and outputs, memory over time with and without
//! reuse, and dispatches. The page is
//! a pure function of the bundle.

mod interface;

use std::fmt::Write;

use drift_runtime::format::{Function, SlotKind, Symbol, Variant};

use super::live_ranges::{LiveRange, live_ranges};
use super::report::{Report, shown_value};
use crate::expression::format_expression;
use crate::html_page::{STYLE, escape};
use crate::output::{bytes, three_digits};
use crate::specialize::function_labels;

/// Width of a drawing in pixels.
const WIDTH: f64 = 620.0;
/// Maximum height of a drawing in pixels.
const HEIGHT: f64 = 420.0;
/// Space in pixels left of a drawing for the size labels.
const MARGIN: f64 = 70.0;

/// Builds the page.
pub(super) fn page(report: &Report<'_>, variants: &[Variant]) -> String {
    let mut page = Page(String::new());
    let name = &report.provenance.model_name;
    page.put(format_args!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>{0}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
        escape(name)
    ));
    page.facts(report);
    page.sections(report);
    page.legend();
    for (variant, described) in variants.iter().zip(&report.variants) {
        page.put(format_args!("<h2>Variant {}</h2>\n", escape(&variant.target)));
        let weights: u64 = variant.weights.iter().map(|w| w.size).sum();
        page.put(format_args!(
            "<p>{} pipelines, {} of weights, {} of device memory.</p>\n",
            variant.pipelines.len(),
            bytes(weights),
            bytes(variant.device_memory())
        ));
        page.requirements(&described.requirements);
        let functions = variant.functions.iter().zip(&described.functions);
        for ((function, ports), label) in functions.zip(function_labels(variant)) {
            page.put(format_args!("<h3>Function {}</h3>\n", escape(&label)));
            page.ports(ports);
            page.function(variant, function);
        }
    }
    page.put(format_args!("</body>\n</html>\n"));
    page.0
}

struct Page(String);

impl Page {
    /// Appends formatted text to the page. Formatting into a string cannot fail.
    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        self.0.write_fmt(what).unwrap_or_default();
    }

    fn facts(&mut self, report: &Report<'_>) {
        let p = &report.provenance;
        self.put(format_args!("<table>\n"));
        let mut rows = vec![
            ("bundle format".to_owned(), report.format.clone()),
            ("hash".to_owned(), report.hash.clone()),
            ("model hash".to_owned(), p.model_hash.to_string()),
            ("compiler".to_owned(), format!("driftc {} {}", p.compiler_version, p.flags.join(" "))),
        ];
        rows.extend(p.notes.iter().cloned());
        let metadata = report.metadata.iter();
        rows.extend(
            metadata.map(|(key, value)| (format!("metadata {}", shown_value(key)), shown_value(value))),
        );
        for (key, value) in rows {
            self.put(format_args!(
                "<tr><td>{}</td><td><code>{}</code></td></tr>\n",
                escape(&key),
                escape(value.trim())
            ));
        }
        self.put(format_args!("</table>\n"));
    }

    fn sections(&mut self, report: &Report<'_>) {
        let b = &report.bytes;
        self.put(format_args!(
            "<h2>Sections</h2>\n<table>\n<thead><tr><th>section</th><th class=n>bytes</th>\
             <th class=n>share</th><th></th></tr></thead>\n<tbody>\n"
        ));
        let rows = [
            ("header", b.header),
            ("weights", b.chunks),
            ("shaders and attachments", b.artifacts),
            ("manifest", b.manifest),
            ("padding", b.padding),
            ("signature", b.signature),
            ("file", b.file),
        ];
        for (name, size) in rows {
            let share = size as f64 / b.file.max(1) as f64;
            self.put(format_args!(
                "<tr><td>{name}</td><td class=n>{size}</td><td class=n>{:.1} %</td>\
                 <td><span class=bar style=\"width:{:.0}px\"></span></td></tr>\n",
                share * 100.0,
                share * 300.0
            ));
        }
        self.put(format_args!("</tbody>\n</table>\n"));
        for a in &report.attachments {
            self.put(format_args!("<p>Attached: {} ({})</p>\n", escape(&a.name), bytes(a.bytes)));
        }
    }

    fn function(&mut self, variant: &Variant, function: &Function) {
        let (m, n) = (&function.memory, function.dispatches.len());
        for s in &function.symbols {
            self.put(format_args!("<p>{} is in {}..{}.</p>\n", escape(&s.name), s.min, s.max));
        }
        let tensors = live_ranges(variant, function);
        let without_reuse: Vec<u64> = tensors
            .iter()
            .scan(0u64, |end, t| {
                let offset = *end;
                *end = end.saturating_add(t.size);
                Some(offset)
            })
            .collect();
        // Arenas are stacked on top of each other.
        let below = |slot: u32| {
            let before = function.slots.iter().take(slot as usize).filter(|s| s.kind == SlotKind::Arena);
            before.fold(0u64, |sum, s| sum.saturating_add(s.size))
        };
        let planned: Vec<u64> = tensors.iter().map(|t| below(t.slot).saturating_add(t.offset)).collect();
        let naive =
            without_reuse.iter().zip(&tensors).map(|(o, t)| o.saturating_add(t.size)).max().unwrap_or(0);
        let top = planned.iter().zip(&tensors).map(|(o, t)| o.saturating_add(t.size)).max().unwrap_or(0);
        let peak = m.peak.max(top);
        let saved = 100.0 * (1.0 - m.peak as f64 / m.naive.max(1) as f64);
        self.put(format_args!(
            "<p>{} intermediate tensors take {} without reuse and {} as planned ({}, {saved:.0} % less). \
             The lower bound for any plan is {}.</p>\n<div class=plans>\n",
            tensors.len(),
            bytes(m.naive),
            bytes(m.peak),
            escape(&m.strategy),
            bytes(m.lower_bound)
        ));
        // Both drawings have the same scale, so their heights are comparable.
        let drawing = Drawing { tensors: &tensors, n, scale: naive.max(peak).max(1), function };
        self.put(format_args!("{}", drawing.svg("Without reuse", &without_reuse, naive, None)));
        self.put(format_args!("{}", drawing.svg("As planned", &planned, peak, Some(m.lower_bound))));
        self.put(format_args!("</div>\n"));
        self.dispatches(variant, function);
    }

    fn dispatches(&mut self, variant: &Variant, function: &Function) {
        let upper_bounds: Vec<i64> = function.symbols.iter().map(|s| s.max).collect();
        let at = |e: &drift_runtime::format::Expr| e.eval(&upper_bounds).unwrap_or(0);
        let bound = if upper_bounds.is_empty() { "" } else { ", at the largest sizes" };
        self.put(format_args!(
            "<h4>{} dispatches{bound}</h4>\n<table>\n<thead><tr><th class=n>no.</th><th>kernel</th>\
             <th>node</th><th>grid</th><th class=n>bytes</th><th class=n>flops</th>\
             <th class=n>flops per byte</th><th>barrier before</th></tr></thead>\n<tbody>\n",
            function.dispatches.len()
        ));
        for (index, d) in function.dispatches.iter().enumerate() {
            let kernel = variant.pipelines.get(d.pipeline as usize).map_or("", |p| p.name.as_str());
            let (moved, flops) = (at(&d.bytes), at(&d.flops));
            let intensity = if moved > 0 { three_digits(flops as f64 / moved as f64) } else { String::new() };
            self.put(format_args!(
                "<tr><td class=n>{index}</td><td>{}</td><td>{}</td><td>{}</td><td class=n>{moved}</td>\
                 <td class=n>{flops}</td><td class=n>{intensity}</td><td>{}</td></tr>\n",
                escape(kernel),
                escape(&d.label),
                escape(&grid(&d.grid, &function.symbols)),
                if d.barrier_before { "yes" } else { "" }
            ));
        }
        self.put(format_args!("</tbody>\n</table>\n"));
    }
}

fn grid(grid: &[drift_runtime::format::Expr; 3], symbols: &[Symbol]) -> String {
    let sides: Vec<String> = grid.iter().map(|e| format_expression(e, symbols)).collect();
    sides.join(" x ")
}

/// Drawing of tensors as rectangles: dispatches along x, bytes along y.
struct Drawing<'a> {
    tensors: &'a [LiveRange],
    n: usize,
    /// Number of bytes that the full height of the drawing stands for.
    scale: u64,
    function: &'a Function,
}

impl Drawing<'_> {
    fn svg(&self, title: &str, offsets: &[u64], peak: u64, bound: Option<u64>) -> String {
        let mut text = Page(String::new());
        let y = |at: u64| HEIGHT - at as f64 / self.scale as f64 * HEIGHT;
        let x = |at: usize| MARGIN + at as f64 / self.n.max(1) as f64 * WIDTH;
        let (width, height) = (MARGIN + WIDTH + 10.0, HEIGHT + 40.0);
        text.put(format_args!(
            "<figure><figcaption>{title}: {}</figcaption>\n<svg width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 -12 {width} {height}\" role=\"img\" aria-label=\"{title}\">\n",
            bytes(peak)
        ));
        for (i, (tensor, offset)) in self.tensors.iter().zip(offsets).enumerate() {
            let node = self.function.dispatches.get(tensor.first).map_or("", |d| d.label.as_str());
            let top = y(offset.saturating_add(tensor.size));
            text.put(format_args!(
                "<rect class=t x=\"{:.2}\" y=\"{top:.2}\" width=\"{:.2}\" height=\"{:.2}\" \
                 fill=\"hsl({},55%,62%)\"><title>{} ({}, at {offset}, dispatches {} to {})</title></rect>\n",
                x(tensor.first),
                x(tensor.last + 1) - x(tensor.first),
                y(*offset) - top,
                // Golden-angle steps give neighbors different colors.
                i * 137 % 360,
                escape(node),
                bytes(tensor.size),
                tensor.first,
                tensor.last
            ));
        }
        let (left, right, below) = (MARGIN - 6.0, MARGIN + WIDTH, HEIGHT + 18.0);
        let lines = [(Some(peak), "#222", ""), (bound, "#b03020", " stroke-dasharray=\"4 3\"")];
        for (at, color, dash) in lines {
            let Some(at) = at else { continue };
            let side = y(at);
            text.put(format_args!(
                "<line x1=\"{MARGIN}\" x2=\"{:.2}\" y1=\"{side:.2}\" y2=\"{side:.2}\" stroke=\"{color}\"{dash}/>\n",
                MARGIN + WIDTH
            ));
        }
        text.put(format_args!(
            "<text x=\"{left:.0}\" y=\"{:.2}\" text-anchor=\"end\">{}</text>\n\
             <text x=\"{left:.0}\" y=\"{HEIGHT}\" text-anchor=\"end\">0</text>\n\
             <text x=\"{MARGIN}\" y=\"{below:.0}\">dispatch 0</text>\n\
             <text x=\"{right:.0}\" y=\"{below:.0}\" text-anchor=\"end\">{}</text>\n</svg></figure>\n",
            y(peak) + 4.0,
            bytes(peak),
            self.n.saturating_sub(1)
        ));
        text.0
    }
}
