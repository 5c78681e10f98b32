// Runs driftc bundles on WebGPU, in pages, workers, Node and Deno.

export { Bundle, type FetchOptions, type Section } from './bundle.js';
export type { TypedArray } from './convert.js';
export type { DeviceType, HostType, Manifest, Variant } from './decode.js';
export type { DeviceOptions } from './device.js';
export { DriftError, type Kind } from './errors.js';
export { blake3 } from './hash.js';
export { Session, type Input, type LoadOptions, type PortInfo, type Progress, type RunOptions, type Stats, type Tensor } from './session.js';
export { cacheStorage, type BundleSource, type Cache } from './source.js';
