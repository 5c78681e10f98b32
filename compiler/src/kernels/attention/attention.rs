//! `attention.wgsl`: scaled dot-product attention in one dispatch.

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{Attention, Op};
use crate::ir::ops::attention::{coded, elements_of};
use crate::kernels::cost::{Parameters, barriers, waiting};
use crate::kernels::kernel::{Candidate, Group, InPlace, Kernel};
use crate::shader::access::Coordinates;
use crate::shader::problem::Problem;
use crate::shader::{Grid, Launch, Shader};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "attention",
    wgsl: include_str!("attention.wgsl"),
    candidates,
    launches,
    matrices: None,
    params: &[Group::of::<Params>()],
    in_place: InPlace::Epilogue,
};

/// Sizes of the problem.
pub(super) struct Sizes {
    /// Batch times key heads.
    pub(super) heads: Dim,
    /// Key heads.
    key_heads: Dim,
    /// Query heads that share a key head.
    shared: Dim,
    /// Query positions, keys, and keys that a query may see: the last ones.
    s: Dim,
    pub(super) keys: Dim,
    pub(super) t: Dim,
    /// Head sizes of queries and values.
    pub(super) d: i64,
    pub(super) e: i64,
}

impl Sizes {
    pub(super) fn of(problem: &Problem<'_>, op: &Attention) -> Option<Self> {
        let [q, k, v] = problem.operands.get(..3)? else { return None };
        let (d, e) = (q.shape[3].as_known()?, elements_of(v.dtype, &v.shape[3]).as_known()?);
        let shared = q.shape[1].div_exact(&k.shape[1])?;
        let (s, all) = (&q.shape[2], &k.shape[2]);
        // The first query sees the earliest keys. A mask is read in whole vectors, from its start on.
        let t = match op.window.filter(|_| problem.arity == 3) {
            Some(window) => all.smaller(&s.plus(i64::from(window) - 1), problem.bounds),
            None => all.clone(),
        };
        Some(Self {
            heads: k.shape[0].mul(&k.shape[1]),
            key_heads: k.shape[1].clone(),
            shared,
            s: s.clone(),
            keys: all.clone(),
            t,
            d,
            e,
        })
    }

    /// Which part of the keys is read at all.
    pub(super) fn part(&self, problem: &Problem<'_>) -> f64 {
        let [all, read] = [&self.keys, &self.t].map(|d| problem.max(d).max(1) as f64);
        read / all
    }

    /// The keys that a query sees at most.
    pub(super) fn walked(&self, problem: &Problem<'_>, op: &Attention, block: i64) -> f64 {
        let t = problem.max(&self.t).max(1);
        // Queries of a block are neighbours, whose windows overlap.
        let seen = op.window.map_or(t, |w| i64::from(w).saturating_add(block));
        t.min(seen) as f64
    }

    /// Queries that share their keys.
    pub(super) fn rows(&self) -> Dim {
        self.s.mul(&self.shared)
    }
}

/// Statements that turn `head` and `row` into coordinates.
pub(super) struct Preludes {
    /// `b` and `hk`, of keys and values.
    pub(super) key: String,
    /// Those, `h` and `s`, of queries and results.
    pub(super) query: String,
}

/// Sets the sizes and which keys a row sees.
pub(super) fn declare(shader: &mut Shader<'_>, sizes: &Sizes, op: &Attention) -> Preludes {
    shader.size("rows", &sizes.rows());
    shader.size("size_t", &sizes.keys);
    let [key_heads, shared, s] = [&sizes.key_heads, &sizes.shared, &sizes.s].map(|d| shader.dim(d));
    if op.causal {
        let text = format!(
            "fn visible(row: u32) -> u32 {{
    return u32(max(i32(row / {shared}) + 1 + i32(size_t()) - i32({s}), 0));
}}"
        );
        shader.replace("visible", text);
    }
    if let Some(window) = op.window {
        let text = format!(
            "fn earliest(row: u32) -> u32 {{
    return u32(max(i32(row / {shared}) + 1 + i32(size_t()) - i32({s}) - {window}, 0));
}}"
        );
        shader.replace("earliest", text);
    }
    let key = format!("    let b = head / {key_heads};\n    let hk = head % {key_heads};\n");
    let query = format!("{key}    let h = hk * {shared} + row % {shared};\n    let s = row / {shared};\n");
    Preludes { key, query }
}

/// The hook that caps scores of a type.
pub(super) fn cap(shader: &mut Shader<'_>, op: &Attention, kind: &str) {
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

/// The hooks that read queries, keys, values and what is added to scores.
pub(super) fn loads(shader: &mut Shader<'_>, op: &Attention, Preludes { key, query }: &Preludes) {
    let problem = shader.problem;
    shader.number("scale", op.scale);
    cap(shader, op, "f32");
    let params = "head: u32, row: u32, d4: u32";
    let at = Coordinates::four(axes(["b", "h", "s", "d4"]), 3);
    if problem.operands[0].shape[3].is(1) {
        // A lane axis of one element is read into all lanes, and a score is a sum over lanes.
        let text = shader.read_fn("one_q", params, query, 0, &at, false);
        let call = "return vec4<f32>(one_q(head, row, d4).x, 0.0, 0.0, 0.0);";
        shader.replace("load_q", format!("{text}fn load_q({params}) -> vec4<f32> {{ {call} }}\n"));
    } else {
        shader.read("load_q", params, query, 0, &at);
    }
    for (index, name, unit) in [(1, "load_k", "d4"), (2, "load_v", "e4")] {
        let params = format!("head: u32, key: u32, {unit}: u32");
        if let Some(coded) = Coded::of(shader, index, key) {
            let text = format!("fn {name}({params}) -> vec4<f32> {{ return {}; }}\n", coded.four(unit));
            shader.replace(name, coded.text + &text);
            continue;
        }
        shader.read(name, &params, key, index, &Coordinates::four(axes(["b", "hk", "key", unit]), 3));
    }
    if problem.arity > 3 {
        let rank = problem.operands[3].rank();
        let at = axes(["b", "h", "s", "key"]).split_off(4 - rank);
        shader.read("mask", "head: u32, row: u32, key: u32", query, 3, &Coordinates::element(at));
    }
}

/// Keys or values that are rows of codes.
pub(super) struct Coded {
    /// WGSL functions that read a word.
    pub(super) text: String,
    name: String,
    /// Words of codes in a row; the scale lies behind them.
    words: i64,
}

impl Coded {
    /// Operand `index`, where it is rows of codes, at the `key` of a `head`; `prelude` turns those into coordinates.
    pub(super) fn of(shader: &mut Shader<'_>, index: usize, prelude: &str) -> Option<Self> {
        let operand = shader.problem.operands.get(index).filter(|operand| coded(operand.dtype))?;
        let words = operand.shape.get(3)?.as_known()? - 1;
        let name = format!("word_{index}");
        let at = Coordinates::element(axes(["b", "hk", "key", "word"]));
        let text = shader.read_fn(&name, "head: u32, key: u32, word: u32", prelude, index, &at, false);
        Some(Self { text, name, words })
    }

    /// The four elements of word `at`, a WGSL expression.
    pub(super) fn four(&self, at: &str) -> String {
        let Self { name, words, .. } = self;
        format!(
            "(bitcast<f32>({name}(head, key, {words}u)) * vec4<f32>(unpack4xI8({name}(head, key, {at}))))"
        )
    }

    /// Eight elements in f16 from word `2 * at` on, as the bits of a vector; zeros past the end of a row.
    pub(super) fn eight(&self, name: &str, at: &str) -> String {
        let (low, high) = (self.four("low"), self.four("high"));
        let Self { text, words, .. } = self;
        format!(
            "{text}fn {name}(head: u32, key: u32, {at}: u32) -> vec4<f32> {{
    let low = {at} * 2u;
    let high = min(low + 1u, {words}u - 1u);
    let first = {low};
    let second = select(vec4<f32>(), {high}, low + 1u < {words}u);
    return vec4<f32>(halves(first.xy), halves(first.zw), halves(second.xy), halves(second.zw));
}}
"
        )
    }
}

/// The axes of an operand of rank four.
pub(super) fn axes(names: [&str; 4]) -> Vec<String> {
    names.map(str::to_string).to_vec()
}

/// Queries whose sums are joined at once: as many as have room where the scores of `each` keys an invocation lie.
pub(super) fn joined_queries(block: u32, each: u32) -> u32 {
    (block * each / 4).clamp(1, block)
}

/// Bytes of workgroup memory.
fn memory(threads: u32, block: u32, each: u32, d: i64) -> u32 {
    let d4 = d.div_euclid(4) as u32 + 1;
    block * d4 * 16
        + (block * each).max(joined_queries(block, each) * 4) * threads * 4
        + threads * 4
        + block * 4
}

/// Parameters of the estimate; times are nanoseconds on a device of that latency of memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Part of the arithmetic peak that is reached.
    reached: f64,
    /// Loads that an invocation has in flight.
    abreast: f64,
    /// The latency of memory that belongs to the times below.
    latency: f64,
    /// Until the first key and after the last.
    ends: f64,
    /// A level of the reductions through workgroup memory.
    level: f64,
    /// A vector of a key.
    load: f64,
    /// Its products with a query.
    score: f64,
    /// A value that an invocation weighs, for a query.
    value: f64,
    /// A weight of a query.
    weight: f64,
    /// A query.
    query: f64,
    /// Each invocation that shares a column of a query.
    split: f64,
}

impl Parameters for Params {
    const GROUP: &str = "attention";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    let Op::Attention(op) = problem.op else { return Vec::new() };
    let Some(sizes) = Sizes::of(problem, op) else { return Vec::new() };
    let Some(p) = Params::of(problem) else { return Vec::new() };
    if sizes.d < 1 || sizes.e < 1 || sizes.d > 1024 {
        return Vec::new();
    }
    let (machine, limits) = (&problem.target.machine, &problem.target.limits);
    let rows = problem.max(&sizes.rows()).max(1);
    let heads = problem.max(&sizes.heads) as f64;
    // Multiply-adds of vectors that reading one takes: less than on others where the cache keeps up with arithmetic.
    let read = (2.0 * machine.peak.f32 / machine.cache_bandwidth_gb_s.max(1e-3)).min(4.0);
    let mut out = Vec::new();
    for threads in [32u32, 64, 128, 256] {
        for block in [1u32, 2, 4, 8, 16] {
            let t = sizes.walked(problem, op, i64::from(block));
            for each in [1u32, 2, 4] {
                let fits = threads <= limits.max_workgroup_invocations
                    && i64::from(threads) * 4 >= sizes.e
                    && memory(threads, block, each, sizes.d) <= limits.max_workgroup_memory;
                // No more invocations than keys, unless the columns of a value need them.
                let needed = (t as i64).max(sizes.e / 4);
                let wasted = i64::from(block) >= 2 * rows
                    || threads > 32 && i64::from(threads) >= 2 * needed
                    || each > 1 && i64::from(threads * each) >= 2 * needed;
                if !fits || wasted {
                    continue;
                }
                let blocks = (rows as f64 / f64::from(block)).ceil();
                let groups = blocks * heads;
                let all = groups * f64::from(threads);
                let room = f64::from(machine.compute_units) * f64::from(machine.invocations_per_unit);
                let busy = (p.abreast * all / room).clamp(1e-3, 1.0);
                // More queries per key read mean more arithmetic per byte.
                let work = (sizes.d + sizes.e) as f64 * t * groups * f64::from(block) * 2.0;
                let reuse = f64::from(block) / (f64::from(block) + read);
                let computing = work / (machine.peak.f32 * p.reached * reuse * busy).max(1e-3);
                let bytes = groups * t * (sizes.d + sizes.e) as f64 * 4.0;
                let streaming = bytes / (machine.cache_bandwidth_gb_s.max(1e-3) * busy);
                let lanes = threads / block;
                let tiles = (t / f64::from(threads * each)).ceil();
                let split = (i64::from(threads) / ((sizes.e + 3) / 4)).max(1) as f64;
                let seen = f64::from(threads * each).min(t) / split;
                let (queries, keys) = (f64::from(block), f64::from(each));
                let levels = f64::from(lanes.max(2).ilog2());
                let tile = levels * p.level
                    + keys * (sizes.d as f64 / 4.0).ceil() * (p.load + p.score * queries)
                    + queries * (p.value * seen + p.weight * keys);
                let step = tiles * tile + queries * (p.query + p.split * split) + p.ends;
                let waiting =
                    waiting(problem, all, step / p.latency) + barriers(problem, all, tiles * levels);
                out.push(Candidate {
                    knobs: vec![("THREADS", threads), ("BLOCK", block), ("EACH", each)],
                    cost: computing.max(streaming).max(waiting) + machine.launch_us * 1e3,
                    reason: format!(
                        "{groups} workgroups of {block} queries walk over {t} keys, {} at a time",
                        threads * each
                    ),
                });
            }
        }
    }
    out
}

fn launches(problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
    let Op::Attention(op) = problem.op else { return Err(OpError::new("not attention")) };
    let sizes = Sizes::of(problem, op).ok_or_else(|| OpError::new("head sizes must be known"))?;
    let [threads, block, each] = ["THREADS", "BLOCK", "EACH"].map(|name| candidate.knob(name));
    let mut shader = Shader::new(problem);
    shader.knob("THREADS", threads);
    shader.knob("BLOCK", block);
    shader.knob("EACH", each);
    shader.knob("ROUND", joined_queries(block, each));
    shader.knob("D4", sizes.d.unsigned_abs().div_ceil(4) as u32);
    shader.knob("E4", sizes.e.unsigned_abs().div_ceil(4) as u32);
    let preludes = declare(&mut shader, &sizes, op);
    loads(&mut shader, op, &preludes);
    let query = preludes.query;
    let at = Coordinates::four(axes(["b", "h", "s", "e4"]), 3);
    shader.write("store", "head: u32, row: u32, e4: u32", &query, &at)?;
    shader.workgroup_memory(memory(threads, block, each, sizes.d));
    let groups = [sizes.rows().ceil_div(i64::from(block)), sizes.heads.clone(), Dim::known(1)];
    let flops = sizes.rows().mul(&sizes.heads).mul(&sizes.t).scale(2 * (sizes.d + sizes.e));
    let grid = Grid { groups, workgroup: [threads, 1, 1] };
    Ok(vec![shader.finish("attention", KERNEL.wgsl, grid, flops)?])
}
