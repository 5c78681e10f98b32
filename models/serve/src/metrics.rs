//! Counters and histograms, as text in the format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets of latencies, in seconds.
const BOUNDS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];

/// Number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds a number.
    pub(crate) fn add(&self, n: usize) {
        self.0.fetch_add(u64::try_from(n).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the present value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Distribution of latencies.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// Number of latencies in each bucket of [`BOUNDS`]; the last element counts the longer ones.
    buckets: [Counter; BOUNDS.len() + 1],
    /// Sum of all latencies in microseconds.
    sum: Counter,
}

impl Histogram {
    /// Adds a latency.
    pub(crate) fn observe(&self, latency: Duration) {
        let seconds = latency.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.add(1);
        }
        self.sum.add(usize::try_from(latency.as_micros()).unwrap_or(usize::MAX));
    }

    fn write(&self, name: &str, model: &str, out: &mut String) {
        let mut total = 0;
        let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, bucket) in bounds.zip(&self.buckets) {
            total += bucket.get();
            line(out, format_args!("{name}_bucket{{model=\"{model}\",le=\"{bound}\"}} {total}"));
        }
        let sum = self.sum.get() as f64 / 1e6;
        line(out, format_args!("{name}_sum{{model=\"{model}\"}} {sum}"));
        line(out, format_args!("{name}_count{{model=\"{model}\"}} {total}"));
    }
}

/// Metrics of a model.
#[derive(Debug, Default)]
pub(crate) struct ModelMetrics {
    /// Tokens of all prompts.
    pub(crate) prompt_tokens: Counter,
    /// Tokens of prompts that the KV cache already had.
    pub(crate) cached_tokens: Counter,
    /// Generated tokens.
    pub(crate) generated_tokens: Counter,
    /// Requests that ended because the client closed the connection.
    pub(crate) disconnected: Counter,
    /// Requests that ended because the client did not read its events.
    pub(crate) slow: Counter,
    /// Time from a request to its first token.
    pub(crate) first_token: Histogram,
    /// Time between two tokens of a request.
    pub(crate) token: Histogram,
}

/// Present state of a model.
pub(crate) struct ModelState<'a> {
    pub(crate) id: &'a str,
    pub(crate) metrics: &'a ModelMetrics,
    pub(crate) waiting: usize,
    pub(crate) running: usize,
    pub(crate) slots: usize,
    pub(crate) failed: bool,
}

/// Metrics of the server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Number of requests by endpoint and HTTP status.
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
}

impl Metrics {
    /// Counts a request.
    pub(crate) fn count(&self, endpoint: &'static str, status: u16) {
        if let Ok(mut requests) = self.requests.lock() {
            *requests.entry((endpoint, status)).or_default() += 1;
        }
    }

    /// Returns all metrics as text.
    pub(crate) fn text(&self, models: &[ModelState<'_>]) -> String {
        let mut out = String::new();
        head(&mut out, "driftc_requests_total", "counter", "Requests by endpoint and HTTP status");
        if let Ok(requests) = self.requests.lock() {
            for ((endpoint, status), count) in requests.iter() {
                let labels = format_args!("endpoint=\"{endpoint}\",status=\"{status}\"");
                line(&mut out, format_args!("driftc_requests_total{{{labels}}} {count}"));
            }
        }
        for (name, kind, about, value) in VALUES {
            head(&mut out, name, kind, about);
            for model in models {
                line(&mut out, format_args!("{name}{{model=\"{}\"}} {}", escape(model.id), value(model)));
            }
        }
        head(&mut out, "driftc_cancelled_total", "counter", "Requests that ended early, by reason");
        for model in models {
            let id = escape(model.id);
            let reasons = [("disconnect", &model.metrics.disconnected), ("slow_client", &model.metrics.slow)];
            for (reason, count) in reasons {
                let labels = format_args!("model=\"{id}\",reason=\"{reason}\"");
                line(&mut out, format_args!("driftc_cancelled_total{{{labels}}} {}", count.get()));
            }
        }
        for (name, about, histogram) in HISTOGRAMS {
            head(&mut out, name, "histogram", about);
            for model in models {
                histogram(model.metrics).write(name, &escape(model.id), &mut out);
            }
        }
        out
    }
}

/// Value of a model: name, kind, description, and function that returns the value.
type Value = (&'static str, &'static str, &'static str, fn(&ModelState<'_>) -> u64);

/// Values of each model.
const VALUES: &[Value] = &[
    ("driftc_queue_depth", "gauge", "Requests that wait for a slot", |m| count(m.waiting)),
    ("driftc_slots", "gauge", "Requests that can run at once", |m| count(m.slots)),
    ("driftc_slots_busy", "gauge", "Requests that run", |m| count(m.running)),
    ("driftc_model_failed", "gauge", "1 if the model's device failed", |m| u64::from(m.failed)),
    ("driftc_prompt_tokens_total", "counter", "Tokens of prompts", |m| m.metrics.prompt_tokens.get()),
    ("driftc_cached_prompt_tokens_total", "counter", "Tokens of prompts found in a KV cache", |m| {
        m.metrics.cached_tokens.get()
    }),
    ("driftc_generated_tokens_total", "counter", "Generated tokens", |m| m.metrics.generated_tokens.get()),
];

/// Histogram of a model: name, description, and function that returns the histogram.
type LatencyMetric = (&'static str, &'static str, fn(&ModelMetrics) -> &Histogram);

/// Histograms of each model.
const HISTOGRAMS: &[LatencyMetric] = &[
    ("driftc_time_to_first_token_seconds", "Time from a request to its first token", |m| &m.first_token),
    ("driftc_time_per_token_seconds", "Time between two tokens of a request", |m| &m.token),
];

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Escapes the value of a label.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn head(out: &mut String, name: &str, kind: &str, about: &str) {
    line(out, format_args!("# HELP {name} {about}\n# TYPE {name} {kind}"));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string never fails.
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Metrics, ModelMetrics, ModelState};

    #[test]
    fn buckets_are_cumulative() {
        let (all, metrics) = (Metrics::default(), ModelMetrics::default());
        all.count("/health", 200);
        all.count("/health", 200);
        for latency in [1, 20, 20, 500_000] {
            metrics.token.observe(Duration::from_millis(latency));
        }
        let id = "a\"b";
        let state = ModelState { id, metrics: &metrics, waiting: 3, running: 1, slots: 2, failed: false };
        let text = all.text(&[state]);
        for wanted in [
            "driftc_requests_total{endpoint=\"/health\",status=\"200\"} 2",
            "driftc_queue_depth{model=\"a\\\"b\"} 3",
            "driftc_time_per_token_seconds_bucket{model=\"a\\\"b\",le=\"0.001\"} 1",
            "driftc_time_per_token_seconds_bucket{model=\"a\\\"b\",le=\"0.025\"} 3",
            "driftc_time_per_token_seconds_bucket{model=\"a\\\"b\",le=\"120\"} 3",
            "driftc_time_per_token_seconds_bucket{model=\"a\\\"b\",le=\"+Inf\"} 4",
            "driftc_time_per_token_seconds_count{model=\"a\\\"b\"} 4",
            "driftc_time_per_token_seconds_sum{model=\"a\\\"b\"} 500.041",
        ] {
            assert!(text.lines().any(|line| line == wanted), "no line `{wanted}` in\n{text}");
        }
    }
}
