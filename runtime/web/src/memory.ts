// Buffers, textures and bind groups of a variant on a device.

import type { BindingKind, Func, Image, Variant } from './decode.js';
import { fail } from './errors.js';
import { arenaSizes, deviceBytes, images, isSpecialization } from './validate.js';

// Values of GPUBufferUsage, GPUTextureUsage and GPUShaderStage. Some hosts have no such globals.
const COPY_SRC = 4;
const COPY_DST = 8;
const UNIFORM = 64;
const STORAGE = 128;
const MAP_READ = 1;
const TEXTURE_COPY_DST = 2;
const TEXTURE_BINDING = 4;
const STORAGE_BINDING = 8;
const COMPUTE = 4;

/** A function with its resources, ready for replay. */
export interface Ready {
    func: Func;
    params: GPUBuffer | undefined;
    words: Uint32Array;
    groups: GPUBindGroup[];
    /** Number of workgroups of each dispatch along x, y and z, for the symbol values `symbols`. */
    grids: [number, number, number][];
    symbols: string | undefined;
}

export interface Memory {
    weights: GPUBuffer[];
    states: GPUBuffer[];
    /** Buffers of the inputs and outputs of each entry point, by its name; the host reads outputs through the buffers `back`. */
    ports: Map<string, { inputs: GPUBuffer[]; outputs: GPUBuffer[]; back: GPUBuffer[] }>;
    /** Textures that loading fills, with their descriptions. */
    constants: [Image, GPUTexture][];
    layouts: GPUPipelineLayout[];
    functions: Ready[];
    /** Promise that rejects if the device refused a resource. */
    checked: Promise<void>;
    destroy(): void;
}

const FORMATS = {
    f32: 'rgba32float', f16: 'rgba16float', i32: 'rgba32sint', u32: 'rgba32uint', i8: 'rgba8sint', u8: 'rgba8uint',
} as const;
const SAMPLE_TYPES = {
    f32: 'unfilterable-float', f16: 'unfilterable-float', i32: 'sint', u32: 'uint', i8: 'sint', u8: 'uint',
} as const;

/** Returns the number of bytes of a row of texels. */
export const rowBytes = ({ extent, texture }: Image): number => extent[0]! * 4 * deviceBytes(texture.element);

/** Creates all resources of a variant except pipelines. */
export function allocate(device: GPUDevice, variant: Variant): Memory {
    device.pushErrorScope('validation');
    device.pushErrorScope('out-of-memory');
    const resources: { destroy(): void }[] = [];
    const buffer = (label: string, size: number, usage = STORAGE | UNIFORM | COPY_SRC | COPY_DST): GPUBuffer => {
        const created = device.createBuffer({ label, size, usage });
        resources.push(created);
        return created;
    };
    const weights = variant.weights.map(({ size }, index) => buffer(`weights ${index}`, size));
    const states = variant.states.map(({ size }, index) => buffer(`state ${index}`, size));
    const arenas = arenaSizes(variant).map((size, index) => buffer(`arena ${index}`, size));
    const ports: Memory['ports'] = new Map();
    variant.functions.forEach((func, index) => {
        if (isSpecialization(variant, index)) return;
        const portBuffers = (kind: string, slots: number[]) =>
            slots.map((slot, at) => buffer(`${kind} ${at} of ${func.name}`, func.slots[slot]!.size));
        ports.set(func.name, {
            inputs: portBuffers('input', func.inputs.map(({ slot }) => slot)),
            outputs: portBuffers('output', func.outputs.map(({ slot }) => slot)),
            back: func.outputs.map(({ slot, name }) => buffer(`${name}, read`, func.slots[slot]!.size, MAP_READ | COPY_DST)),
        });
    });
    const [all, places] = images(variant);
    const textures = all.map(({ texture, extent, chunk }, index) => {
        const created = device.createTexture({
            label: `image ${index}`,
            size: extent,
            dimension: texture.kind === '3d' ? '3d' : '2d',
            format: FORMATS[texture.element],
            usage: TEXTURE_BINDING | (chunk === undefined ? STORAGE_BINDING : TEXTURE_COPY_DST),
        });
        resources.push(created);
        return created;
    });
    const views = textures.map((texture, index) => texture.createView({ dimension: all[index]!.texture.kind }));
    const groupLayouts = new Map<string, GPUBindGroupLayout>();
    const groupLayout = (bindings: readonly BindingKind[]): GPUBindGroupLayout => {
        const key = JSON.stringify(bindings);
        const known = groupLayouts.get(key);
        if (known) return known;
        const entries = bindings.map((kind, binding) => ({ binding, visibility: COMPUTE, ...layoutOf(kind) }));
        const layout = device.createBindGroupLayout({ entries });
        groupLayouts.set(key, layout);
        return layout;
    };
    const layouts = variant.pipelines.map(({ bindings }) =>
        device.createPipelineLayout({ bindGroupLayouts: [groupLayout(bindings)] }),
    );
    let image = 0;
    const functions = variant.functions.map((func) => {
        let arena = 0;
        let params: GPUBuffer | undefined;
        const entryPorts = ports.get(func.name)!;
        const slots: (GPUBuffer | GPUTextureView)[] = func.slots.map(({ kind, size }) => {
            switch (kind.kind) {
                case 'weights': return weights[kind.value]!;
                case 'state': return states[kind.value]!;
                case 'arena': return arenas[arena++]!;
                case 'input': return entryPorts.inputs[kind.value]!;
                case 'output': return entryPorts.outputs[kind.value]!;
                case 'params': return (params = buffer(`params of ${func.name}`, size));
                case 'image': return views[places[image++]!]!;
            }
        });
        const known = new Map<string, GPUBindGroup>();
        const groups = func.dispatches.map(({ pipeline, bindings }) => {
            const kinds = variant.pipelines[pipeline]!.bindings;
            const key = JSON.stringify([kinds, bindings]);
            const found = known.get(key);
            if (found) return found;
            const entries = bindings.map(({ slot, offset, size }, binding) => {
                const resource = slots[slot]!;
                return { binding, resource: 'mapState' in resource ? { buffer: resource, offset, size } : resource };
            });
            const group = device.createBindGroup({ layout: groupLayout(kinds), entries });
            known.set(key, group);
            return group;
        });
        const words = new Uint32Array((params?.size ?? 0) / 4);
        return { func, params, words, groups, grids: [], symbols: undefined };
    });
    const checked = Promise.all([device.popErrorScope(), device.popErrorScope()]).then(([memory, other]) => {
        const size = variant.requirements.limits.device_memory;
        if (memory) fail('OutOfMemory', `out of memory: ${size} bytes for \`${variant.target}\`; close other programs or compile for a smaller bound`);
        if (other) fail('Gpu', `the device refused a resource of the bundle: ${other.message}`);
    });
    const destroy = () => resources.forEach((resource) => resource.destroy());
    const constants = all.flatMap((image, index): [Image, GPUTexture][] => (image.chunk === undefined ? [] : [[image, textures[index]!]]));
    return { weights, states, ports, constants, layouts, functions, checked, destroy };
}

function layoutOf(kind: BindingKind): Partial<GPUBindGroupLayoutEntry> {
    switch (kind.kind) {
        case 'read': return { buffer: { type: 'read-only-storage' } };
        case 'write': return { buffer: { type: 'storage' } };
        case 'uniform': return { buffer: { type: 'uniform' } };
        case 'imageRead': return { texture: { sampleType: SAMPLE_TYPES[kind.value.element], viewDimension: kind.value.kind } };
        case 'imageWrite':
            return { storageTexture: { access: 'write-only', format: FORMATS[kind.value.element], viewDimension: kind.value.kind } };
        // Validation rejects texel buffers in WGSL variants.
        case 'texels': return {};
    }
}
