// Decodes the manifest of a bundle with tables of its structs, as FORMAT.md lists them. The bytes are not trusted.

import {
    arrayOf, bits, empty, enumOf, flag, hash, i64, listOf, optional, struct, text, u16, u32, u64, unionOf, type Decoded,
} from './reader.js';

const hostType = enumOf('f32', 'f16', 'bf16', 'f64', 'i8', 'i16', 'i32', 'i64', 'u8', 'u16', 'u32', 'u64', 'bool');
const deviceType = enumOf('f32', 'f16', 'i32', 'u32', 'i8', 'u8');
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
