// Test kernel: a language model with 32 tokens. Token ids are written to a cache; logits depend on the cached ids.
struct Params {
    past: i32,
    count: i32,
    chunk: i32,
    // If 1, the outputs have a row for every id. If 0, they have one row, for the last id that is not padding, and the
    // state `token` keeps the next token.
    rows: i32,
    // If 0, logits depend on the last two ids only. If 1, they depend on all ids.
    memory: i32,
    // Selects one of several test models. For most inputs, a model with another salt gives the same logits as the model
    // with salt 0.
    salt: i32,
}

@group(0) @binding(0) var<storage, read> ids: array<i32>;
@group(0) @binding(1) var<storage, read_write> cache: array<i32>;
@group(0) @binding(2) var<storage, read_write> token: array<i32>;
@group(0) @binding(3) var<storage, read_write> next: array<i32>;
@group(0) @binding(4) var<storage, read_write> logits: array<f32>;
@group(0) @binding(5) var<uniform> params: Params;

fn mix(value: u32) -> u32 {
    var x = value;
    x = (x ^ (x >> 16u)) * 0x7feb352du;
    x = (x ^ (x >> 15u)) * 0x846ca68bu;
    return x ^ (x >> 16u);
}

fn write_logits(last: i32, row: i32) -> i32 {
    var state = 0u;
    if params.memory == 1 {
        for (var at = 0; at <= last; at++) {
            state = mix(state * 31u + u32(cache[at]) + u32(at) * 1000u);
        }
    } else {
        state = u32(cache[last]);
        if last > 0 {
            state += 100u * u32(cache[last - 1]);
        }
        state = mix(state);
    }
    if params.salt != 0 && state % 4u == 0u {
        state += u32(params.salt);
    }
    var best = 0;
    for (var id = 0; id < 32; id++) {
        let value = f32(mix(state + u32(id) * 7919u) % 1000u) / 100.0;
        logits[row * 32 + id] = value;
        if value > logits[row * 32 + best] {
            best = id;
        }
    }
    return best;
}

@compute @workgroup_size(1)
fn main() {
    for (var at = 0; at < params.chunk; at++) {
        var id = ids[at];
        if id == -1 {
            id = token[0];
        }
        cache[params.past + at] = id + 1;
    }
    if params.rows == 1 {
        for (var row = 0; row < params.chunk; row++) {
            next[row] = write_logits(params.past + row, row);
        }
    } else {
        let best = write_logits(params.past + params.count - 1, 0);
        next[0] = best;
        token[0] = best;
    }
}
