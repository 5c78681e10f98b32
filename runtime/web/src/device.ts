// What a device can do, and which variant of a bundle fits it.

import type { BindingKind, Manifest, Variant } from './decode.js';
import { fail, list } from './errors.js';
import { images, language, named } from './validate.js';

const F16 = [0, 5];
const INT_DOT_PRODUCT = 9;

/** What an adapter offers, or what a device that is there already has. */
interface Offer {
    readonly limits: GPUSupportedLimits;
    readonly features: ReadonlySet<string>;
    readonly name: string;
}

export interface DeviceOptions {
    /** A device that is there already, for buffers that are shared with it. */
    device?: GPUDevice | undefined;
    /** Where to ask for one; `navigator.gpu` where it is left out. */
    gpu?: GPU | undefined;
    powerPreference?: GPUPowerPreference | undefined;
    /** Takes the variant of this target, instead of the first that fits. */
    target?: string | undefined;
}

/** The limit of WebGPU that each of a bundle's limits is compared with. */
const LIMITS: Record<string, keyof GPUSupportedLimits> = {
    max_storage_buffer_range: 'maxStorageBufferBindingSize',
    max_uniform_buffer_range: 'maxUniformBufferBindingSize',
    max_buffer_size: 'maxBufferSize',
    max_workgroup_invocations: 'maxComputeInvocationsPerWorkgroup',
    max_workgroup_memory: 'maxComputeWorkgroupStorageSize',
    max_storage_buffers: 'maxStorageBuffersPerShaderStage',
    max_uniform_buffers: 'maxUniformBuffersPerShaderStage',
};

for (const axis of 'xyz') {
    LIMITS[`max_grid.${axis}`] = 'maxComputeWorkgroupsPerDimension';
    LIMITS[`max_workgroup_size.${axis}`] = `maxComputeWorkgroupSize${axis.toUpperCase() as 'X'}`;
}

/** What a variant needs of a device, by WebGPU's names. */
function needs(variant: Variant): Map<keyof GPUSupportedLimits, number> {
    const out = new Map<keyof GPUSupportedLimits, number>();
    const raise = (limit: keyof GPUSupportedLimits, value: number) => out.set(limit, Math.max(out.get(limit) ?? 0, value));
    for (const [name, value] of named(variant.requirements.limits)) {
        const limit = LIMITS[name];
        if (limit) raise(limit, value);
    }
    for (const { texture, extent } of images(variant)[0]) {
        const [x, y, z] = extent as [number, number, number];
        raise(texture.kind === '3d' ? 'maxTextureDimension3D' : 'maxTextureDimension2D', Math.max(x, y));
        raise(texture.kind === '3d' ? 'maxTextureDimension3D' : 'maxTextureArrayLayers', z);
    }
    const count = (bindings: BindingKind[], kind: string) => bindings.filter((binding) => binding.kind === kind).length;
    for (const { bindings } of variant.pipelines) {
        raise('maxSampledTexturesPerShaderStage', count(bindings, 'imageRead'));
        raise('maxStorageTexturesPerShaderStage', count(bindings, 'imageWrite'));
    }
    return out;
}

/** Every requirement of a variant that is not met, in words. */
function unmet(manifest: Manifest, variant: Variant, offer: Offer): string[] {
    const spoken = language(manifest, variant) ?? 'wgsl';
    if (spoken !== 'wgsl') {
        return [`its shaders are ${spoken}, and this runtime drives WebGPU; compile the model for a WebGPU target`];
    }
    const reasons: string[] = [];
    const { features, limits } = variant.requirements;
    if (features.some((bit) => F16.includes(bit)) && !offer.features.has('shader-f16')) {
        reasons.push('feature shader-f16 is missing');
    }
    // Where the list of language features is not told, the shader compiler has the last word.
    const known = globalThis.navigator?.gpu?.wgslLanguageFeatures;
    if (features.includes(INT_DOT_PRODUCT) && known && !known.has('packed_4x8_integer_dot_product')) {
        reasons.push('language feature packed_4x8_integer_dot_product is missing');
    }
    for (const bit of features.filter((bit) => !F16.includes(bit) && bit !== INT_DOT_PRODUCT)) {
        reasons.push(`feature number ${bit} is unknown to this runtime, which may be too old`);
    }
    for (const [limit, needed] of needs(variant)) {
        const has = offer.limits[limit] as number;
        if (needed > has) reasons.push(`${limit} is ${has}, ${needed} is needed`);
    }
    for (const [limit, keeps] of [
        ['minStorageBufferOffsetAlignment', limits.storage_alignment],
        ['minUniformBufferOffsetAlignment', limits.uniform_alignment],
    ] as const) {
        if (offer.limits[limit] > keeps) reasons.push(`${limit} is ${offer.limits[limit]}, the bundle keeps ${keeps}`);
    }
    return reasons;
}

/** The variant that fits and is hinted at, else the first that fits. */
function choose(manifest: Manifest, offer: Offer, target: string | undefined): Variant {
    const { variants } = manifest;
    const wanted = target === undefined ? variants : variants.filter((variant) => variant.target === target);
    if (!wanted.length) {
        const known = list(variants.map((variant) => variant.target));
        fail('NoSuchTarget', `the bundle has no variant for target \`${target}\`; there are: ${known}`);
    }
    const reports = wanted.map((variant) => ({ variant, reasons: unmet(manifest, variant, offer) }));
    const fitting = reports.filter(({ reasons }) => !reasons.length).map(({ variant }) => variant);
    const hinted = ({ requirements: { hints } }: Variant) =>
        hints.device_names.some((part) => offer.name.toLowerCase().includes(part.toLowerCase()));
    return (
        fitting.find(hinted) ?? fitting[0] ??
        fail(
            'Unmet',
            `no variant of the bundle runs on ${offer.name || 'this device'}; compile for this device` +
                reports.map(({ variant, reasons }) => `\n  ${variant.target}: ${reasons.join('; ')}`).join(''),
        )
    );
}

const nameOf = (info: GPUAdapterInfo | undefined): string =>
    info ? [info.description, info.device, info.architecture, info.vendor].find(Boolean) ?? '' : '';

/** A device and the variant that it runs. */
export async function openDevice(manifest: Manifest, options: DeviceOptions): Promise<[GPUDevice, Variant]> {
    const { device, target } = options;
    if (device) {
        const { limits, features } = device;
        return [device, choose(manifest, { limits, features, name: nameOf(device.adapterInfo) }, target)];
    }
    const gpu = options.gpu ?? globalThis.navigator?.gpu;
    if (!gpu) {
        fail(
            'NoWebGpu',
            'there is no WebGPU; take a browser that has it, and a page from https',
        );
    }
    const adapter = await gpu.requestAdapter({ powerPreference: options.powerPreference ?? 'high-performance' });
    if (!adapter) {
        fail('NoAdapter', 'WebGPU finds no graphics device; update the driver');
    }
    const { limits, features } = adapter;
    const variant = choose(manifest, { limits, features, name: nameOf(adapter.info) }, target);
    // A feature or limit that is not asked for is not there.
    const requiredFeatures = (variant.requirements.features.some((bit) => F16.includes(bit)) ? ['shader-f16'] : []) as GPUFeatureName[];
    const requiredLimits = Object.fromEntries(needs(variant));
    return [await adapter.requestDevice({ requiredFeatures, requiredLimits }), variant];
}
