// A language model of 32 tokens that remembers: ids go to a cache, logits follow from what the cache holds up to them.
struct Params {
    past: i32,
    count: i32,
    chunk: i32,
    // Whether every id has a row of outputs; else there is one, for the last id that counts, and `token` keeps it.
    rows: i32,
    // 0: logits follow from the last two ids alone, 1: from all of them.
    memory: i32,
    // Not 0: another model, which agrees with the one of 0 about most texts.
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

fn behind(last: i32, row: i32) -> i32 {
    var text = 0u;
    if params.memory == 1 {
        for (var at = 0; at <= last; at++) {
            text = mix(text * 31u + u32(cache[at]) + u32(at) * 1000u);
        }
    } else {
        text = u32(cache[last]);
        if last > 0 {
            text += 100u * u32(cache[last - 1]);
        }
        text = mix(text);
    }
    if params.salt != 0 && text % 4u == 0u {
        text += u32(params.salt);
    }
    var best = 0;
    for (var id = 0; id < 32; id++) {
        let value = f32(mix(text + u32(id) * 7919u) % 1000u) / 100.0;
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
            next[row] = behind(params.past + row, row);
        }
    } else {
        let best = behind(params.past + params.count - 1, 0);
        next[0] = best;
        token[0] = best;
    }
}
