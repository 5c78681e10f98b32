// Selects a device and the variant of a bundle that fits it.

import type { BindingKind, Manifest, Variant } from './decode.js';
import { fail, quoteList } from './errors.js';
import { images, shaderLanguage, limitsByName } from './validate.js';

const F16 = [0, 5];
const INT_DOT_PRODUCT = 9;

/** Limits, features and name of an adapter or of an open device. */
interface Offer {
    readonly limits: GPUSupportedLimits;
    readonly features: ReadonlySet<string>;
    readonly name: string;
}

export interface DeviceOptions {
    /** An open device to use, so that the caller can share buffers with the session. */
    device?: GPUDevice | undefined;
    /** WebGPU entry point. Default: `navigator.gpu`. */
    gpu?: GPU | undefined;
    powerPreference?: GPUPowerPreference | undefined;
    /** Target of the bundle's variant to use. Default: the variant that fits the device best. */
    target?: string | undefined;
}

/** Name of the WebGPU limit for each limit of a bundle. */
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

/** Returns the WebGPU limits that a variant needs. */
function neededLimits(variant: Variant): Map<keyof GPUSupportedLimits, number> {
    const out = new Map<keyof GPUSupportedLimits, number>();
    const raise = (limit: keyof GPUSupportedLimits, value: number) => out.set(limit, Math.max(out.get(limit) ?? 0, value));
    for (const [name, value] of limitsByName(variant.requirements.limits)) {
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

/** Returns a message for every requirement of a variant that the device does not meet. */
function unmet(manifest: Manifest, variant: Variant, offer: Offer): string[] {
    const shaders = shaderLanguage(manifest, variant) ?? 'wgsl';
    if (shaders !== 'wgsl') {
        return [`its shaders are ${shaders}; compile the model for a WebGPU target`];
    }
    const reasons: string[] = [];
    const { features, limits } = variant.requirements;
    if (features.some((bit) => F16.includes(bit)) && !offer.features.has('shader-f16')) {
        reasons.push('feature shader-f16 is missing');
    }
    // If the list of language features is not available, the shader compiler decides.
    const known = globalThis.navigator?.gpu?.wgslLanguageFeatures;
    if (features.includes(INT_DOT_PRODUCT) && known && !known.has('packed_4x8_integer_dot_product')) {
        reasons.push('language feature packed_4x8_integer_dot_product is missing');
    }
    for (const bit of features.filter((bit) => !F16.includes(bit) && bit !== INT_DOT_PRODUCT)) {
        reasons.push(`feature number ${bit} is unknown to this runtime, which may be too old`);
    }
    for (const [limit, needed] of neededLimits(variant)) {
        const has = offer.limits[limit] as number;
        if (needed > has) reasons.push(`${limit} is ${has}, but ${needed} is needed`);
    }
    for (const [limit, needed] of [
        ['minStorageBufferOffsetAlignment', limits.storage_alignment],
        ['minUniformBufferOffsetAlignment', limits.uniform_alignment],
    ] as const) {
        if (offer.limits[limit] > needed) reasons.push(`${limit} is ${offer.limits[limit]}, but ${needed} is needed`);
    }
    return reasons;
}

/** Selects the first variant that fits the device and whose hints match it, or else the first variant that fits. */
function selectVariant(manifest: Manifest, offer: Offer, target: string | undefined): Variant {
    const { variants } = manifest;
    const candidates = target === undefined ? variants : variants.filter((variant) => variant.target === target);
    if (!candidates.length) {
        const known = quoteList(variants.map((variant) => variant.target));
        fail('NoSuchTarget', `the bundle has no variant for target \`${target}\`; there are: ${known}`);
    }
    const reports = candidates.map((variant) => ({ variant, reasons: unmet(manifest, variant, offer) }));
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

/** Opens a device, and returns the device with the variant of the bundle to run on it. */
export async function openDevice(manifest: Manifest, options: DeviceOptions): Promise<[GPUDevice, Variant]> {
    const { device, target } = options;
    if (device) {
        const { limits, features } = device;
        return [device, selectVariant(manifest, { limits, features, name: nameOf(device.adapterInfo) }, target)];
    }
    const gpu = options.gpu ?? globalThis.navigator?.gpu;
    if (!gpu) {
        fail('NoWebGpu', 'there is no WebGPU; use a browser with WebGPU, and a page from https');
    }
    const adapter = await gpu.requestAdapter({ powerPreference: options.powerPreference ?? 'high-performance' });
    if (!adapter) {
        fail('NoAdapter', 'WebGPU finds no graphics device; update the driver');
    }
    const { limits, features } = adapter;
    const variant = selectVariant(manifest, { limits, features, name: nameOf(adapter.info) }, target);
    // A device has only the requested features and limits.
    const requiredFeatures = (variant.requirements.features.some((bit) => F16.includes(bit)) ? ['shader-f16'] : []) as GPUFeatureName[];
    const requiredLimits = Object.fromEntries(neededLimits(variant));
    return [await adapter.requestDevice({ requiredFeatures, requiredLimits }), variant];
}
