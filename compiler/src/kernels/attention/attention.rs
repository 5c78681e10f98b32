//! `attention.wgsl`: scaled dot-product attention in one dispatch, without matrix units.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{Attention, Op};
use crate::ir::ops::attention::{elements_per_row, is_quantized};
use crate::kernels::cost::{Estimate, Parameters, barriers, waiting};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, config};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{Grid, LaunchDraft, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "attention",
    wgsl: include_str!("attention.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Epilogue,
};

config! {
    /// Configuration of the kernel `attention`.
    struct Config {
        /// Invocations per workgroup.
        THREADS => threads: u32,
        /// Queries per workgroup.
        QUERIES => queries: u32,
        /// Number of keys for which one invocation computes scores in each step of the loop over keys.
        KEYS => keys: u32,
    }
}

/// Sizes of an attention problem.
pub(super) struct Sizes {
    /// Batch size times the number of key heads.
    pub(super) heads: Dim,
    /// Key heads.
    key_heads: Dim,
    /// Number of query heads that share a key head (GQA).
    queries_per_key_head: Dim,
    /// Query positions.
    s: Dim,
    /// Keys.
    pub(super) keys: Dim,
    /// Number of keys that at least one query may see. With a sliding window these are the last keys.
    pub(super) t: Dim,
    /// Head size of queries and keys, in elements.
    pub(super) d: i64,
    /// Head size of values, in elements.
    pub(super) e: i64,
}

impl Sizes {
    /// Returns the sizes of an attention problem, or `None` if a head size is symbolic.
    pub(super) fn from_problem(problem: &Problem<'_>, op: &Attention) -> Option<Self> {
        let [q, k, v] = problem.operands.get(..3)? else { return None };
        let (d, e) = (q.shape[3].as_known()?, elements_per_row(v.dtype, &v.shape[3]).as_known()?);
        let queries_per_key_head = q.shape[1].div_exact(&k.shape[1])?;
        let (s, keys) = (&q.shape[2], &k.shape[2]);
        // The first query sees the earliest keys. With a mask, all keys are read: mask vectors start at key 0.
        let t = match op.window.filter(|_| problem.arity == 3) {
            Some(window) => keys.smaller(&s.plus(i64::from(window) - 1), problem.bounds),
            None => keys.clone(),
        };
        Some(Self {
            heads: k.shape[0].mul(&k.shape[1]),
            key_heads: k.shape[1].clone(),
            queries_per_key_head,
            s: s.clone(),
            keys: keys.clone(),
            t,
            d,
            e,
        })
    }

    /// Returns the fraction of the keys that the kernel reads: less than 1 with a sliding window.
    pub(super) fn read_fraction(&self, problem: &Problem<'_>) -> f64 {
        let [all, read] = [&self.keys, &self.t].map(|d| problem.max(d).max(1) as f64);
        read / all
    }

    /// Returns the maximum number of keys that a tile of `queries` queries reads.
    pub(super) fn visible_keys(&self, problem: &Problem<'_>, op: &Attention, queries: i64) -> f64 {
        let t = problem.max(&self.t).max(1);
        // Queries of a tile are adjacent, so their windows overlap.
        let visible = op.window.map_or(t, |w| i64::from(w).saturating_add(queries));
        t.min(visible) as f64
    }

    /// Returns the number of query rows per key head: query positions times the query heads that share it.
    pub(super) fn rows(&self) -> Dim {
        self.s.mul(&self.queries_per_key_head)
    }
}

/// WGSL statements that turn a head index and a row index into tensor coordinates.
pub(super) struct HeadCoordinates {
    /// Statements for keys and values. They define the batch `b` and the key head `hk`.
    pub(super) key: String,
    /// Statements for queries and results. They define the batch `b`, the key head `hk`, the query head `h` and the
    /// position `s`.
    pub(super) query: String,
}

/// Declares the sizes of an attention shader and the range of keys that a query row may see.
pub(super) fn declare_sizes(shader: &mut Shader<'_>, sizes: &Sizes, op: &Attention) -> HeadCoordinates {
    shader.size("rows", &sizes.rows());
    shader.size("size_t", &sizes.keys);
    let [key_heads, queries_per_key_head, s] =
        [&sizes.key_heads, &sizes.queries_per_key_head, &sizes.s].map(|d| shader.dim(d));
    if op.causal {
        let function = format!(
            "fn visible_end(row: u32) -> u32 {{
    return u32(max(i32(row / {queries_per_key_head}) + 1 + i32(size_t()) - i32({s}), 0));
}}"
        );
        shader.replace("visible_end", function);
    }
    if let Some(window) = op.window {
        let function = format!(
            "fn visible_start(row: u32) -> u32 {{
    return u32(max(i32(row / {queries_per_key_head}) + 1 + i32(size_t()) - i32({s}) - {window}, 0));
}}"
        );
        shader.replace("visible_start", function);
    }
    let key = format!("    let b = head / {key_heads};\n    let hk = head % {key_heads};\n");
    let query = format!(
        "{key}    let h = hk * {queries_per_key_head} + row % {queries_per_key_head};\n    let s = row / {queries_per_key_head};\n"
    );
    HeadCoordinates { key, query }
}

/// Declares the hook that applies the soft cap (`cap * tanh(score / cap)`) to attention scores of WGSL type `kind`.
pub(super) fn declare_softcap(shader: &mut Shader<'_>, op: &Attention, kind: &str) {
    let Some(cap) = op.softcap else { return };
    let inner = 1.0 / cap;
    shader.replace(
        "capped",
        format!(
            "fn capped(score: {kind}) -> {kind} {{
    return {cap:?} * tanh(clamp(score * {inner:?}, {kind}(-15.0), {kind}(15.0)));
}}"
        ),
    );
}

/// Declares the hooks that load queries, keys, values and the mask.
pub(super) fn declare_loads(
    shader: &mut Shader<'_>,
    op: &Attention,
    HeadCoordinates { key, query }: &HeadCoordinates,
) {
    let problem = shader.problem;
    shader.number("scale", op.scale);
    declare_softcap(shader, op, "f32");
    let params = "head: u32, row: u32, d4: u32";
    let at = Coordinates::vec4(axes(["b", "h", "s", "d4"]), 3);
    if problem.operands[0].shape[3].is(1) {
        // An axis of one element is broadcast to all lanes, but a score is a sum over lanes.
        let one_q = shader.read_fn("one_q", params, query, 0, &at, false);
        let call = "return vec4<f32>(one_q(head, row, d4).x, 0.0, 0.0, 0.0);";
        shader.replace("load_q", format!("{one_q}fn load_q({params}) -> vec4<f32> {{ {call} }}\n"));
    } else {
        shader.read("load_q", params, query, 0, &at);
    }
    for (index, name, unit) in [(1, "load_k", "d4"), (2, "load_v", "e4")] {
        let params = format!("head: u32, key: u32, {unit}: u32");
        if let Some(quantized) = QuantizedRows::from_operand(shader, index, key) {
            let text = format!(
                "fn {name}({params}) -> vec4<f32> {{ return {}; }}\n",
                quantized.vec4_expression(unit)
            );
            shader.replace(name, quantized.word_function + &text);
            continue;
        }
        shader.read(name, &params, key, index, &Coordinates::vec4(axes(["b", "hk", "key", unit]), 3));
    }
    if problem.arity > 3 {
        let rank = problem.operands[3].rank();
        let at = axes(["b", "h", "s", "key"]).split_off(4 - rank);
        shader.read("mask", "head: u32, row: u32, key: u32", query, 3, &Coordinates::element(at));
    }
}

/// Keys or values of an attention whose rows are quantized to 8 bits, with one scale per row.
pub(super) struct QuantizedRows {
    /// WGSL function that reads one packed word of a quantized key or value.
    pub(super) word_function: String,
    name: String,
    /// Number of packed words per quantized row, without the scale that follows them.
    words: i64,
}

impl QuantizedRows {
    /// Returns operand `index` (keys or values) if it is quantized, else `None`. The WGSL statements in `prelude` turn
    /// `head` and `key` into coordinates.
    pub(super) fn from_operand(shader: &mut Shader<'_>, index: usize, prelude: &str) -> Option<Self> {
        let operand = shader.problem.operands.get(index).filter(|operand| is_quantized(operand.dtype))?;
        let words = operand.shape.get(3)?.as_known()? - 1;
        let name = format!("word_{index}");
        let at = Coordinates::element(axes(["b", "hk", "key", "word"]));
        let word_function =
            shader.read_fn(&name, "head: u32, key: u32, word: u32", prelude, index, &at, false);
        Some(Self { word_function, name, words })
    }

    /// Returns a WGSL expression that dequantizes the four elements in packed word `at` of a row. `at` is a WGSL
    /// expression too.
    pub(super) fn vec4_expression(&self, at: &str) -> String {
        let Self { name, words, .. } = self;
        format!(
            "(bitcast<f32>({name}(head, key, {words}u)) * vec4<f32>(unpack4xI8({name}(head, key, {at}))))"
        )
    }

    /// Returns the WGSL function `name`, which dequantizes 8 elements of a row to f16 pairs, from two packed words.
    /// `at` is the name of its parameter: the first packed word has index `2 * at`. Elements past the end of the row
    /// are zero.
    pub(super) fn f16_vec8_function(&self, name: &str, at: &str) -> String {
        let (low, high) = (self.vec4_expression("low"), self.vec4_expression("high"));
        let Self { word_function, words, .. } = self;
        format!(
            "{word_function}fn {name}(head: u32, key: u32, {at}: u32) -> vec4<f32> {{
    let low = {at} * 2u;
    let high = min(low + 1u, {words}u - 1u);
    let first = {low};
    let second = select(vec4<f32>(), {high}, low + 1u < {words}u);
    return vec4<f32>(pack_f16(first.xy), pack_f16(first.zw), pack_f16(second.xy), pack_f16(second.zw));
}}
"
        )
    }
}

/// Returns the given WGSL variable names as a list: the coordinates of a rank-4 operand.
pub(super) fn axes(names: [&str; 4]) -> Vec<String> {
    names.map(str::to_string).to_vec()
}

/// Returns the number of queries whose partial sums of weighted values are added at once. The partial sums reuse the
/// workgroup memory of the scores, which has room for the scores of `keys` keys per invocation.
pub(super) fn summed_queries(queries: u32, keys: u32) -> u32 {
    (queries * keys / 4).clamp(1, queries)
}

/// Returns the workgroup memory of the kernel `attention`, in bytes.
fn memory(Config { threads, queries, keys }: Config, d: i64) -> u32 {
    let d4 = d.div_euclid(4) as u32 + 1;
    queries * d4 * 16
        + (queries * keys).max(summed_queries(queries, keys) * 4) * threads * 4
        + threads * 4
        + queries * 4
}

/// Cost parameters of the kernel `attention`. All are positive. Times in nanoseconds hold for a device with the memory
/// latency `reference_latency_ns`; on other devices they scale with the memory latency.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Number of loads that an invocation has in flight. With more loads in flight, fewer invocations occupy the device.
    concurrent_loads: f64,
    /// Fixed nanoseconds before and after the loop over keys.
    fixed_ns: f64,
    /// Memory latency, in nanoseconds, of the device for which the other times of this struct were fitted.
    reference_latency_ns: f64,
    /// Nanoseconds per level of a tree reduction in workgroup memory.
    reduction_level_ns: f64,
    /// Nanoseconds of an invocation to load four elements of a key.
    key_vec4_ns: f64,
    /// Fixed nanoseconds for each query that a workgroup computes.
    query_ns: f64,
    /// Arithmetic throughput relative to the f32 peak, if the device is full and loaded keys are reused by many
    /// queries. May exceed 1.
    peak_ratio: f64,
    /// Nanoseconds to multiply four elements of a key by one query.
    score_vec4_ns: f64,
    /// Nanoseconds per query to add the partial sum of one invocation, where several invocations split the keys of a
    /// value column.
    value_split_ns: f64,
    /// Nanoseconds per query to add four elements of a weighted value to the sum.
    value_ns: f64,
    /// Nanoseconds to compute the softmax weight of one query and key.
    weight_ns: f64,
}

impl Parameters for Params {
    const GROUP: &str = "attention";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Attention(op) = problem.op else { return Vec::new() };
    let Some(sizes) = Sizes::from_problem(problem, op) else { return Vec::new() };
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    if sizes.d < 1 || sizes.e < 1 || sizes.d > 1024 {
        return Vec::new();
    }
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let rows = problem.max(&sizes.rows()).max(1);
    let heads = problem.max(&sizes.heads) as f64;
    // Cost of reading a vec4 from the cache, in multiply-adds of vec4s.
    let read = (2.0 * machine.peak.f32 / machine.cache_bandwidth_gb_s.max(1e-3)).min(4.0);
    let mut out = Vec::new();
    for threads in [32u32, 64, 128, 256] {
        for queries in [1u32, 2, 4, 8, 16] {
            let t = sizes.visible_keys(problem, op, i64::from(queries));
            for keys in [1u32, 2, 4] {
                let config = Config { threads, queries, keys };
                let fits = threads <= limits.max_workgroup_invocations
                    && i64::from(threads) * 4 >= sizes.e
                    && memory(config, sizes.d) <= limits.max_workgroup_memory;
                // Not more invocations than keys, unless the value columns need them.
                let needed = (t as i64).max(sizes.e / 4);
                let wasted = i64::from(queries) >= 2 * rows
                    || threads > 32 && i64::from(threads) >= 2 * needed
                    || keys > 1 && i64::from(threads * keys) >= 2 * needed;
                if !fits || wasted {
                    continue;
                }
                let groups = (rows as f64 / f64::from(queries)).ceil() * heads;
                let invocations = groups * f64::from(threads);
                let resident = machine.invocations();
                let occupancy = (p.concurrent_loads * invocations / resident).clamp(1e-3, 1.0);
                // More queries per loaded key mean more arithmetic per byte.
                let work = (sizes.d + sizes.e) as f64 * t * groups * f64::from(queries) * 2.0;
                let reuse = f64::from(queries) / (f64::from(queries) + read);
                let bytes = groups * t * (sizes.d + sizes.e) as f64 * 4.0;
                let lanes = threads / queries;
                let tiles = (t / f64::from(threads * keys)).ceil();
                let split = (i64::from(threads) / ((sizes.e + 3) / 4)).max(1) as f64;
                let visible = f64::from(threads * keys).min(t) / split;
                let [queries_f, keys_f] = [queries, keys].map(f64::from);
                let levels = f64::from(lanes.max(2).ilog2());
                let tile = levels * p.reduction_level_ns
                    + keys_f * (sizes.d as f64 / 4.0).ceil() * (p.key_vec4_ns + p.score_vec4_ns * queries_f)
                    + queries_f * (p.value_ns * visible + p.weight_ns * keys_f);
                let total_ns =
                    tiles * tile + queries_f * (p.query_ns + p.value_split_ns * split) + p.fixed_ns;
                let estimate = Estimate {
                    cache: bytes / (machine.cache_bandwidth_gb_s.max(1e-3) * occupancy),
                    compute: work / (machine.peak.f32 * p.peak_ratio * reuse * occupancy).max(1e-3),
                    latency: waiting(problem, invocations, total_ns / p.reference_latency_ns)
                        + barriers(problem, invocations, tiles * levels),
                    ..Estimate::for_dispatches(problem, 1.0)
                };
                let reason = format!(
                    "{groups} workgroups with {queries} queries each loop over {t} keys in tiles of {} keys",
                    threads * keys
                );
                // Sums of weighted values, a query and a key; scores.
                out.push(Candidate::new(&config, estimate, reason).with_live_values(queries + 2, queries));
            }
        }
    }
    out
}

fn launches(problem: &Problem<'_>, config: Config) -> Result<Vec<LaunchDraft>, OpError> {
    let Op::Attention(op) = problem.op else { return Err(OpError::new("the operator is not attention")) };
    let sizes = Sizes::from_problem(problem, op)
        .ok_or_else(|| OpError::new("a head size is symbolic; it must be known"))?;
    let Config { threads, queries, keys } = config;
    let mut shader = Shader::new(problem);
    config.declare(&mut shader);
    shader.knob("SUMMED_QUERIES", summed_queries(queries, keys));
    shader.knob("D4", sizes.d.unsigned_abs().div_ceil(4) as u32);
    shader.knob("E4", sizes.e.unsigned_abs().div_ceil(4) as u32);
    let coordinates = declare_sizes(&mut shader, &sizes, op);
    declare_loads(&mut shader, op, &coordinates);
    let query = coordinates.query;
    let at = Coordinates::vec4(axes(["b", "h", "s", "e4"]), 3);
    shader.write("store", "head: u32, row: u32, e4: u32", &query, &at)?;
    shader.workgroup_memory(memory(config, sizes.d));
    let groups = [sizes.rows().ceil_div(i64::from(queries)), sizes.heads.clone(), Dim::known(1)];
    let flops = sizes.rows().mul(&sizes.heads).mul(&sizes.t).scale(2 * (sizes.d + sizes.e));
    let grid = Grid { groups, workgroup: [threads, 1, 1] };
    Ok(vec![shader.finish("attention", KERNEL.wgsl, grid, flops)])
}
