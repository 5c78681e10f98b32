// Decodes the manifest of a bundle with tables of its structs, as FORMAT.md lists them. The bytes are not trusted.
//
// Numbers above 2^53 become Infinity, and every use of them is refused.

/** An error in the bytes of a manifest. */
export class Fault extends Error {}

const END = 'it ends inside a value, or a length exceeds the remaining bytes';
const NUMBER = 'a number does not fit its field, or its encoding is not the shortest one';
const CHOICE = 'a value is not valid for its type';

export class Reader {
    at = 0;
    private readonly view: DataView;

    constructor(private readonly bytes: Uint8Array) {
        this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    }

    get left(): number {
        return this.bytes.length - this.at;
    }

    take(length: number): Uint8Array {
        if (length > this.left) throw new Fault(END);
        return this.bytes.subarray(this.at, (this.at += length));
    }

    byte(): number {
        return this.take(1)[0]!;
    }

    /** Returns the upper and the lower 32 bits of an unsigned number. */
    wide(): [number, number] {
        const first = this.byte();
        if (first < 251) return [0, first];
        if (first > 253) throw new Fault(NUMBER);
        const at = this.at;
        this.take(2 << (first - 251));
        const low = first === 251 ? this.view.getUint16(at, true) : this.view.getUint32(at, true);
        const high = first === 253 ? this.view.getUint32(at + 4, true) : 0;
        if (first === 253 ? high === 0 : low < (first === 251 ? 251 : 65536)) throw new Fault(NUMBER);
        return [high, low];
    }

    unsigned(): number {
        const [high, low] = this.wide();
        return high < 1 << 21 ? high * 4294967296 + low : Infinity;
    }

    length(): number {
        const length = this.unsigned();
        if (length > this.left) throw new Fault(END);
        return length;
    }
}

type Decoder<T> = (reader: Reader) => T;
type Decoded<D> = D extends Decoder<infer T> ? T : never;

const below = (limit: number): Decoder<number> => (reader) => {
    const value = reader.unsigned();
    if (value >= limit) throw new Fault(NUMBER);
    return value;
};
const u16 = below(65536);
const u32 = below(4294967296);
const u64: Decoder<number> = (reader) => reader.unsigned();
const i64: Decoder<number> = (reader) => {
    const value = reader.unsigned();
    return value % 2 ? -(value + 1) / 2 : value / 2;
};
/** Decodes a set of bits, as a list of the numbers of the bits that are set. */
const bits: Decoder<number[]> = (reader) => {
    const [high, low] = reader.wide();
    return [...Array(64).keys()].filter((bit) => ((bit < 32 ? low >>> bit : high >>> (bit - 32)) & 1) === 1);
};
const flag: Decoder<boolean> = (reader) => {
    const value = reader.byte();
    if (value > 1) throw new Fault(CHOICE);
    return value === 1;
};
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const text: Decoder<string> = (reader) => {
    const bytes = reader.take(reader.length());
    try {
        return utf8.decode(bytes);
    } catch {
        throw new Fault('a string is not UTF-8');
    }
};
const hash: Decoder<Uint8Array> = (reader) => reader.take(32);
const listOf = <T>(decode: Decoder<T>): Decoder<T[]> => (reader) => {
    const out: T[] = [];
    for (let left = reader.length(); left > 0; left--) out.push(decode(reader));
    return out;
};
const arrayOf = <T>(count: number, decode: Decoder<T>): Decoder<T[]> => (reader) =>
    Array.from({ length: count }, () => decode(reader));
const optional = <T>(decode: Decoder<T>): Decoder<T | undefined> => (reader) => (flag(reader) ? decode(reader) : undefined);
const struct = <F extends Record<string, Decoder<any>>>(fields: F): Decoder<{ [K in keyof F]: Decoded<F[K]> }> => {
    const entries = Object.entries(fields);
    return (reader) => {
        const out: any = {};
        for (const [name, decode] of entries) out[name] = decode(reader);
        return out;
    };
};
const enumOf = <N extends string>(...names: N[]): Decoder<N> => (reader) => {
    const name = names[reader.unsigned()];
    if (name === undefined) throw new Fault(CHOICE);
    return name;
};
const empty: Decoder<undefined> = () => undefined;
/** Decodes an enum whose choices have payloads. */
const unionOf = <F extends Record<string, Decoder<any>>>(
    cases: F,
): Decoder<{ [K in keyof F]: { kind: K; value: Decoded<F[K]> } }[keyof F]> => {
    const entries = Object.entries(cases);
    return (reader) => {
        const found = entries[reader.unsigned()];
        if (!found) throw new Fault(CHOICE);
        return { kind: found[0], value: found[1](reader) };
    };
};

const hostType = enumOf('f32', 'f16', 'bf16', 'f64', 'i8', 'i16', 'i32', 'i64', 'u8', 'u16', 'u32', 'u64', 'bool');
const deviceType = enumOf('f32', 'f16', 'i32', 'u32');
const expr = listOf(
    unionOf({
        const: i64, symbol: u32, add: empty, sub: empty, mul: empty, floorDiv: empty, ceilDiv: empty, mod: empty,
        min: empty, max: empty,
    }),
);
const texture = struct({ kind: enumOf('2d', '2d-array', '3d'), element: deviceType });
const image = struct({ texture, extent: arrayOf(3, u32), chunk: optional(u32) });
const port = struct({ name: text, host_type: hostType, device_type: deviceType, shape: listOf(expr), slot: u32, offset: u64 });
const binding = struct({ slot: u32, offset: u64, size: u64 });
const dispatch = struct({
    pipeline: u32, bindings: listOf(binding), grid: arrayOf(3, expr), params: listOf(expr), params_offset: u64,
    barrier_before: flag, label: text, flops: expr, bytes: expr,
});
const slotKind = unionOf({ weights: u32, arena: empty, input: u32, output: u32, params: empty, state: u32, image });
const func = struct({
    name: text,
    symbols: listOf(struct({ name: text, min: i64, max: i64 })),
    inputs: listOf(port),
    outputs: listOf(port),
    slots: listOf(struct({ kind: slotKind, size: u64 })),
    memory: struct({ peak: u64, lower_bound: u64, naive: u64, strategy: text }),
    dispatches: listOf(dispatch),
});
const bindingKind = unionOf({
    read: empty, write: empty, uniform: empty, texels: deviceType, imageRead: texture, imageWrite: texture,
});
const pipeline = struct({
    name: text, artifact: u32, entry: text, bindings: listOf(bindingKind), required_subgroup_size: optional(u32),
    workgroup_size: arrayOf(3, u32), workgroup_memory: u32,
});
const limits = struct({
    max_storage_buffer_range: u64, max_uniform_buffer_range: u64, max_buffer_size: u64,
    max_workgroup_invocations: u32, max_workgroup_size: arrayOf(3, u32), max_workgroup_memory: u32,
    max_grid: arrayOf(3, u32), max_storage_buffers: u32, max_uniform_buffers: u32, max_push_constants: u32,
    storage_alignment: u32, uniform_alignment: u32, device_memory: u64,
});
/** Decodes an enum that this runtime does not use. */
const opaqueEnum = (choices: number) => enumOf(...Array.from({ length: choices }, String));
const matrixType = opaqueEnum(12);
const requirements = struct({
    api_version: struct({ major: u16, minor: u16 }),
    features: bits,
    limits,
    subgroup_sizes: listOf(u32),
    matrix_shapes: listOf(struct({
        m: u32, n: u32, k: u32, a: matrixType, b: matrixType, c: matrixType, result: matrixType,
        scope: opaqueEnum(4), saturating: flag,
    })),
    hints: struct({ vendor_ids: listOf(u32), device_names: listOf(text), drivers: listOf(text) }),
});
const variant = struct({
    target: text,
    profile_hash: hash,
    requirements,
    pipelines: listOf(pipeline),
    weights: listOf(struct({ size: u64 })),
    placements: listOf(struct({ chunk: u32, slot: u32, offset: u64 })),
    states: listOf(struct({ name: text, size: u64 })),
    functions: listOf(func),
});
const manifest = struct({
    provenance: struct({
        compiler_version: text, flags: listOf(text), model_name: text, model_hash: hash,
        notes: listOf((reader) => [text(reader), text(reader)] as const),
    }),
    chunks: listOf(struct({ hash, offset: u64, size: u64 })),
    artifacts: listOf(struct({ hash, offset: u64, size: u64, kind: enumOf('spirv', 'data', 'wgsl', 'msl', 'hlsl') })),
    attachments: listOf(struct({ name: text, artifact: u32 })),
    variants: listOf(variant),
});

export const decodeManifest = manifest;
export type Manifest = Decoded<typeof manifest>;
export type Variant = Decoded<typeof variant>;
export type Func = Decoded<typeof func>;
export type Port = Decoded<typeof port>;
export type Dispatch = Decoded<typeof dispatch>;
export type Binding = Decoded<typeof binding>;
export type BindingKind = Decoded<typeof bindingKind>;
export type Pipeline = Decoded<typeof pipeline>;
export type Limits = Decoded<typeof limits>;
export type Image = Decoded<typeof image>;
export type Texture = Decoded<typeof texture>;
export type Expr = Decoded<typeof expr>;
export type HostType = Decoded<typeof hostType>;
export type DeviceType = Decoded<typeof deviceType>;
