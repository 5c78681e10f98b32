// Checks that a manifest does not contradict itself: everything that FORMAT.md says a reader rejects. Later code relies on
// these checks.

import type {
    Binding, BindingKind, DeviceType, Dispatch, Expr, Func, HostType, Image, Limits, Manifest, Pipeline, Port, Variant,
} from './decode.js';
import { fail, messageOf } from './errors.js';
import { check as checkExpr, constant, evaluate } from './expr.js';

const MAX_BINDINGS = 64;
const MAX_IMAGES = 4096;
const MAX_RANK = 16;
const SUBGROUP_SIZE_CONTROL = 19;
const COOPERATIVE_MATRIX = 22;

/** A contradiction in a manifest, with the path of its place (innermost component last). */
class Rejection extends Error {
    readonly place: string[] = [];
}

const reject = (reason: string): never => {
    throw new Rejection(reason);
};

/** Runs `body`, and adds a path component to errors that it throws. */
function at<T>(place: string, body: () => T): T {
    try {
        return body();
    } catch (error) {
        const found = error instanceof Rejection ? error : new Rejection(messageOf(error));
        found.place.unshift(place);
        throw found;
    }
}

const each = <T>(place: string, items: readonly T[], body: (item: T, index: number) => void): void =>
    items.forEach((item, index) => at(`${place}[${index}]`, () => body(item, index)));

const lookup = <T>(items: readonly T[], index: number, what: string): T =>
    items[index] ?? reject(`${what} ${index} does not exist; there are ${items.length}`);

const checkRange = (offset: number, size: number, total: number): void => {
    // The comparison is false for infinite sizes.
    if (!(offset + size <= total && total < Infinity)) {
        reject(`offset ${offset} and size ${size} do not lie inside ${total} bytes`);
    }
};

function checkUnique(names: readonly string[], what: string): void {
    const seen = new Set<string>();
    for (const name of names) {
        if (seen.has(name)) at(what, () => reject(`two items have the name \`${name}\``));
        seen.add(name);
    }
}

export function validate(manifest: Manifest): void {
    try {
        checkManifest(manifest);
    } catch (error) {
        const place = error instanceof Rejection ? error.place.join('.') || 'manifest' : 'manifest';
        fail('Invalid', `invalid bundle, ${place}: ${messageOf(error)}`);
    }
}

function checkManifest(manifest: Manifest): void {
    if (!manifest.variants.length) reject('the bundle has no variant');
    each('chunks', manifest.chunks, (chunk) => {
        if (chunk.size === 0 || chunk.offset % 256 !== 0) reject('it is empty, or its offset is not a multiple of 256');
    });
    each('artifacts', manifest.artifacts, ({ size, offset, kind }) => {
        if (size === 0 || offset % 16 !== 0) reject('it is empty, or its offset is not a multiple of 16');
        if (kind === 'spirv' && (size % 4 !== 0 || size < 20)) reject('its size is impossible for a SPIR-V module');
    });
    each('attachments', manifest.attachments, (attachment) => {
        if (lookup(manifest.artifacts, attachment.artifact, 'artifact').kind !== 'data') reject('its artifact is a shader, not data');
    });
    checkUnique(manifest.attachments.map((attachment) => attachment.name), 'attachments');
    each('variants', manifest.variants, (variant) => checkVariant(manifest, variant));
}

/** Returns the language of a variant's shaders, or `undefined` without pipelines. */
export const shaderLanguage = (manifest: Manifest, variant: Variant): string | undefined => {
    const first = variant.pipelines[0];
    return first && manifest.artifacts[first.artifact]?.kind;
};

/** True if a function is a specialization: an earlier function of the same name covers more sizes. */
export const isSpecialization = (variant: Variant, index: number): boolean =>
    index > 0 && variant.functions[index - 1]!.name === variant.functions[index]!.name;

function checkVariant(manifest: Manifest, variant: Variant): void {
    const { requirements, pipelines, weights, states, functions } = variant;
    at('requirements', () => {
        for (const alignment of [requirements.limits.storage_alignment, requirements.limits.uniform_alignment]) {
            if (!isPower(alignment) || alignment < 4 || alignment > 256) {
                reject(`alignment ${alignment} is not a power of two in 4..256`);
            }
        }
        if (requirements.subgroup_sizes.some((size) => !isPower(size) || size > 128)) {
            reject('a subgroup size is not a power of two up to 128');
        }
        if (requirements.matrix_shapes.length && !requirements.features.includes(COOPERATIVE_MATRIX)) {
            reject('matrix shapes without the feature cooperative_matrix');
        }
    });
    each('pipelines', pipelines, (pipeline) => checkPipeline(manifest, variant, pipeline));
    at('weights or states', () => [...weights, ...states].forEach(({ size }) => checkSlotSize(size)));
    at('placements', () => checkPlacements(manifest, variant));
    checkUnique(functions.filter((_, index) => !isSpecialization(variant, index)).map(({ name }) => name), 'functions');
    const images = functions.flatMap(({ slots }) => slots).filter(({ kind }) => kind.kind === 'image');
    if (images.length > MAX_IMAGES) reject(`more than ${MAX_IMAGES} images`);
    let general: Func | undefined;
    each('functions', functions, (func, index) => {
        if (general && isSpecialization(variant, index)) checkSpecialization(general, func);
        else general = func;
        checkFunction(manifest, variant, func);
    });
    at('requirements.limits', () => {
        const declared = limitsByName(requirements.limits);
        for (const [name, value] of neededLimits(variant)) {
            const limit = declared.get(name)!;
            if (value > limit) reject(`${name} is declared as ${limit}, but ${value} is used`);
        }
    });
}

const isPower = (value: number): boolean => value > 0 && Number.isInteger(Math.log2(value));

function checkPipeline(manifest: Manifest, variant: Variant, pipeline: Pipeline): void {
    const { kind } = lookup(manifest.artifacts, pipeline.artifact, 'artifact');
    if (kind === 'data') reject('its artifact is not a shader');
    if (kind !== shaderLanguage(manifest, variant)) reject("its shader is in another language than the first pipeline's");
    if (kind !== 'spirv' && pipeline.bindings.some((b) => b.kind === 'texels')) reject('texel buffers need a SPIR-V shader');
    if (!pipeline.entry || pipeline.entry.includes('\0')) reject("the entry point's name is empty or contains a zero");
    if (pipeline.bindings.length > MAX_BINDINGS) reject(`more than ${MAX_BINDINGS} bindings`);
    if (pipeline.workgroup_size.includes(0)) reject('a workgroup size is zero');
    const size = pipeline.required_subgroup_size;
    if (size !== undefined) {
        if (!isPower(size) || size > 128) reject(`required subgroup size ${size} is not a power of two up to 128`);
        if (!variant.requirements.features.includes(SUBGROUP_SIZE_CONTROL)) {
            reject('a required subgroup size without the feature subgroup_size_control');
        }
    }
}

function checkPlacements(manifest: Manifest, variant: Variant): void {
    const ranges = variant.placements.map((placement, index) =>
        at(`[${index}]`, () => {
            const chunk = lookup(manifest.chunks, placement.chunk, 'chunk');
            const slot = lookup(variant.weights, placement.slot, 'weight slot');
            if (placement.offset % 4 !== 0) reject('its offset is not a multiple of 4');
            checkRange(placement.offset, chunk.size, slot.size);
            return [placement.slot, placement.offset, placement.offset + chunk.size] as const;
        }),
    );
    ranges.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    ranges.forEach(([slot, start], index) => {
        const before = ranges[index - 1];
        if (before && before[0] === slot && start < before[2]) reject('two placements overlap');
    });
}

function checkFunction(manifest: Manifest, variant: Variant, func: Func): void {
    const { symbols, inputs, outputs, slots, dispatches } = func;
    for (const { name, min, max } of symbols) {
        if (!(min <= max && min >= 0)) reject(`symbol \`${name}\` has the empty or negative range ${min}..${max}`);
    }
    const names = (items: readonly { name: string }[]) => items.map(({ name }) => name);
    checkUnique(names(symbols), 'symbols');
    checkUnique(names(inputs), 'inputs');
    checkUnique(names(outputs), 'outputs');
    each('slots', slots, (slot, index) => {
        checkSlotSize(slot.size);
        const sameSize = (size: number) => {
            if (size !== slot.size) reject(`its size is ${slot.size}, but the item it refers to has size ${size}`);
        };
        const sameSlot = (other: number) => {
            if (other !== index) reject(`its port is in slot ${other}`);
        };
        const { kind } = slot;
        switch (kind.kind) {
            case 'weights': return sameSize(lookup(variant.weights, kind.value, 'weight slot').size);
            case 'state': return sameSize(lookup(variant.states, kind.value, 'state').size);
            case 'input': return sameSlot(lookup(inputs, kind.value, 'input').slot);
            case 'output': return sameSlot(lookup(outputs, kind.value, 'output').slot);
            case 'image':
                sameSize(imageSize(kind.value));
                if (kind.value.chunk !== undefined) sameSize(lookup(manifest.chunks, kind.value.chunk, 'chunk').size);
        }
    });
    if (slots.filter(({ kind }) => kind.kind === 'params').length > 1) reject('more than one params slot');
    each('inputs', inputs, (port, index) => checkPort(func, port, index, 'input'));
    each('outputs', outputs, (port, index) => checkPort(func, port, index, 'output'));
    each('dispatches', dispatches, (dispatch) => checkDispatch(manifest, variant, func, dispatch));
    checkParams(func);
}

/** Checks that a specialization has the ports of its general function, and symbols with bounds inside the general bounds. */
function checkSpecialization(general: Func, special: Func): void {
    const narrower = general.symbols.every((a, index) => {
        const b = special.symbols[index];
        return b && a.name === b.name && a.min <= b.min && b.max <= a.max;
    });
    const ports = (func: Func) =>
        JSON.stringify([...func.inputs, null, ...func.outputs].map((p) => p && [p, func.slots[p.slot]?.size]));
    if (!narrower || general.symbols.length !== special.symbols.length || ports(general) !== ports(special)) {
        reject('its symbols or ports do not match the first function of the same name');
    }
}

function checkSlotSize(size: number): void {
    if (size === 0 || size % 4 !== 0) reject(`size ${size} is not a positive multiple of 4`);
}

const isFloat = (type: HostType | DeviceType): boolean => type.includes('f');

function checkPort(func: Func, port: Port, index: number, kind: 'input' | 'output'): void {
    const slot = lookup(func.slots, port.slot, 'slot');
    if (slot.kind.kind !== kind || slot.kind.value !== index) reject('its slot belongs to another port');
    const { host_type: host, device_type: device } = port;
    if (isFloat(host) !== isFloat(device)) reject(`${host} cannot be stored as ${device}`);
    if (port.shape.length > MAX_RANK) reject(`more than ${MAX_RANK} dimensions`);
    if (port.offset % 4 !== 0) reject('its offset is not a multiple of 4');
    checkExprs(port.shape, func);
    for (const symbols of corners(func)) {
        const shape = at('shape', () => port.shape.map((dim) => evaluate(dim, symbols)));
        const size = deviceSize(port, shape);
        if (size === undefined) reject(`shape [${shape.join(', ')}] is negative or too large`);
        checkRange(port.offset, size!, slot.size);
    }
}

function checkDispatch(manifest: Manifest, variant: Variant, func: Func, dispatch: Dispatch): void {
    const { bindings } = lookup(variant.pipelines, dispatch.pipeline, 'pipeline');
    if (bindings.length !== dispatch.bindings.length) {
        reject(`it has ${dispatch.bindings.length} bindings, its pipeline ${bindings.length}`);
    }
    each('bindings', dispatch.bindings, (binding, index) => checkBinding(variant, func, binding, bindings[index]!));
    checkExprs([...dispatch.grid, ...dispatch.params, dispatch.flops, dispatch.bytes], func);
    for (const size of dispatch.grid.map(constant)) {
        if (size !== undefined && !(size >= 0 && size < 2 ** 32)) reject(`grid size ${size} does not fit 32 bits`);
    }
    if (/[wh].sl/.test(shaderLanguage(manifest, variant)!) && readsAndWritesOneResource(func, dispatch, bindings)) {
        reject('it binds one buffer or image for reading and for writing');
    }
    if (!dispatch.params.length) return;
    const slot = func.slots.find(({ kind }) => kind.kind === 'params');
    if (!slot) return reject('it has parameters, but the function has no params slot');
    if (dispatch.params_offset % 4 !== 0) reject('params_offset is not a multiple of 4');
    checkRange(dispatch.params_offset, dispatch.params.length * 4, slot.size);
}

const writes = ({ kind }: BindingKind): boolean => kind === 'write' || kind === 'imageWrite';

function readsAndWritesOneResource(func: Func, dispatch: Dispatch, kinds: readonly BindingKind[]): boolean {
    const buffer = ({ slot }: Binding): string => {
        const { kind } = func.slots[slot]!;
        return kind.kind === 'state' ? `state ${kind.value}` : String(slot);
    };
    const written = new Set(dispatch.bindings.filter((_, index) => writes(kinds[index]!)).map(buffer));
    return dispatch.bindings.some((binding, index) => !writes(kinds[index]!) && written.has(buffer(binding)));
}

function checkBinding(variant: Variant, func: Func, binding: Binding, kind: BindingKind): void {
    const slot = lookup(func.slots, binding.slot, 'slot');
    const { limits } = variant.requirements;
    const alignment = kind.kind === 'uniform' ? limits.uniform_alignment : limits.storage_alignment;
    const bound = kind.kind === 'imageRead' || kind.kind === 'imageWrite' ? kind.value : undefined;
    const image = slot.kind.kind === 'image' ? slot.kind.value : undefined;
    if (
        bound?.kind !== image?.texture.kind || bound?.element !== image?.texture.element ||
        (image && binding.size !== slot.size)
    ) {
        reject('slot and pipeline differ: a buffer and an image, two kinds of images, or part of an image');
    }
    if (binding.offset % alignment !== 0) reject(`offset ${binding.offset} is not a multiple of ${alignment}`);
    if (binding.size === 0 || binding.size % 4 !== 0) reject(`size ${binding.size} is not a positive multiple of 4`);
    const readOnly = ['weights', 'input', 'params'].includes(slot.kind.kind) || image?.chunk !== undefined;
    if (readOnly && writes(kind)) reject('it writes to weights, to an input or to the parameters');
    checkRange(binding.offset, binding.size, slot.size);
}

/** Checks that parameter words of two dispatches overlap only if offset and words are equal. */
function checkParams(func: Func): void {
    const owners = func.dispatches.filter(({ params }) => params.length);
    owners.sort((a, b) => a.params_offset - b.params_offset || a.params.length - b.params.length);
    owners.forEach((second, index) => {
        const first = owners[index - 1];
        if (!first || first.params_offset + first.params.length * 4 <= second.params_offset) return;
        const same = first.params_offset === second.params_offset;
        if (!same || JSON.stringify(first.params) !== JSON.stringify(second.params)) {
            reject(`the parameters of \`${first.label}\` and \`${second.label}\` overlap`);
        }
    });
}

const checkExprs = (exprs: readonly Expr[], func: Func): void =>
    at('expression', () => exprs.forEach((expr) => checkExpr(expr, func.symbols.length)));

/** Returns the symbol values with every symbol at its minimum, and with every symbol at its maximum. */
const corners = (func: Func): number[][] => [func.symbols.map(({ min }) => min), func.symbols.map(({ max }) => max)];

export const deviceBytes = (type: DeviceType): number => (type === 'f16' ? 2 : type === 'i8' || type === 'u8' ? 1 : 4);

/** Returns the byte size of an array on the device, rounded up to 4, or `undefined` if a dimension is negative or the size is above 2^53. */
export function deviceSize(port: Port, shape: readonly number[]): number | undefined {
    const count = shape.reduce((product, dim) => product * dim, 1);
    const size = Math.ceil((count * deviceBytes(port.device_type)) / 4) * 4;
    return shape.some((dim) => dim < 0) || !Number.isSafeInteger(size) ? undefined : size;
}

/** Returns the byte size of all texels; 0 if an extent is zero, or if a 2-D image has more than one layer. */
function imageSize({ extent: [x, y, z], texture }: Image): number {
    return z === 1 || texture.kind !== '2d' ? x! * y! * z! * 4 * deviceBytes(texture.element) : 0;
}

/** Returns the images that loading creates, and for each image slot, over all functions, the index of its image. */
export function images(variant: Variant): [Image[], number[]] {
    const all: Image[] = [];
    const places: number[] = [];
    for (const func of variant.functions) {
        const first = places.length;
        for (const { kind } of func.slots) {
            if (kind.kind !== 'image') continue;
            const text = JSON.stringify(kind.value);
            const used = new Set(places.slice(first));
            let place = all.findIndex(
                (known, index) => JSON.stringify(known) === text && (known.chunk !== undefined || !used.has(index)),
            );
            if (place < 0) place = all.push(kind.value) - 1;
            places.push(place);
        }
    }
    return [all, places];
}

/** Returns the sizes of the arena buffers: the n-th arena slots of all functions share one buffer. */
export function arenaSizes(variant: Variant): number[] {
    const sizes: number[] = [];
    for (const func of variant.functions) {
        func.slots
            .filter(({ kind }) => kind.kind === 'arena')
            .forEach(({ size }, index) => (sizes[index] = Math.max(sizes[index] ?? 0, size)));
    }
    return sizes;
}

/** Returns limits by name; a limit with three axes becomes three entries. */
export function limitsByName(limits: Limits): Map<string, number> {
    const out = new Map<string, number>();
    for (const [name, value] of Object.entries(limits)) {
        if (Array.isArray(value)) value.forEach((size, axis) => out.set(`${name}.${AXES[axis]}`, size));
        else if (!name.endsWith('_alignment')) out.set(name, value);
    }
    return out;
}

const AXES = 'xyz';

/** Returns the smallest limits with which a variant can run. */
function neededLimits(variant: Variant): Map<string, number> {
    const out = new Map<string, number>();
    const raise = (name: string, value: number) => out.set(`max_${name}`, Math.max(out.get(`max_${name}`) ?? 0, value));
    let memory = 0;
    const add = ({ size }: { size: number }) => (memory += size);
    for (const { bindings, workgroup_size: size, workgroup_memory } of variant.pipelines) {
        const count = (kinds: string) => bindings.filter(({ kind }) => kinds.includes(kind)).length;
        raise('workgroup_invocations', size[0]! * size[1]! * size[2]!);
        size.forEach((value, axis) => raise(`workgroup_size.${AXES[axis]}`, value));
        raise('workgroup_memory', workgroup_memory);
        raise('storage_buffers', count('read write'));
        raise('uniform_buffers', count('uniform'));
    }
    for (const slot of [...variant.weights, ...variant.states]) {
        raise('buffer_size', slot.size);
        add(slot);
    }
    variant.functions.forEach((func, index) => {
        for (const slot of func.slots) {
            const { kind } = slot.kind;
            if (kind !== 'image') raise('buffer_size', slot.size);
            const special = isSpecialization(variant, index);
            if (kind === 'params' || (!special && (kind === 'input' || kind === 'output'))) add(slot);
        }
        for (const { grid, pipeline, bindings } of func.dispatches) {
            for (const symbols of corners(func)) {
                grid.forEach((size, axis) => {
                    try {
                        raise(`grid.${AXES[axis]}`, Math.min(evaluate(size, symbols), 2 ** 32 - 1));
                    } catch {
                        // An expression that cannot be evaluated is reported when the dispatch is checked or run.
                    }
                });
            }
            bindings.forEach(({ size }, at) => {
                const { kind } = variant.pipelines[pipeline]!.bindings[at]!;
                if (kind === 'uniform') raise('uniform_buffer_range', size);
                if (kind === 'read' || kind === 'write') raise('storage_buffer_range', size);
            });
        }
    });
    arenaSizes(variant).forEach((size) => add({ size }));
    images(variant)[0].forEach((image) => add({ size: imageSize(image) }));
    return out.set('device_memory', memory);
}
