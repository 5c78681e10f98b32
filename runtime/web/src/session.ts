// A bundle loaded on a device. After loading, no pipeline is created and no memory is allocated, whatever shapes arrive within
// the bounds that the bundle was compiled for.

import { Bundle, type FetchOptions } from './bundle.js';
import { fromDevice, isArrayOf, toDevice, type TypedArray } from './convert.js';
import type { DeviceType, Func, HostType, Port, Variant } from './decode.js';
import { openDevice, type DeviceOptions } from './device.js';
import { DriftError, fail, quoteList, messageOf } from './errors.js';
import { constant } from './expr.js';
import { allocate, type Memory, type Ready } from './memory.js';
import { planFetch } from './plan-fetch.js';
import { cacheStorage, type BundleSource, type Cache } from './source.js';
import { shapeAt, shapeText, bindSymbols, valueAt } from './symbols.js';
import { deviceSize, isSpecialization } from './validate.js';

const MAP_READ = 1;
/** Name of the attachment with the self-test vectors. */
const SELF_TEST = 'driftc.self-test';

export interface Progress {
    /** Bytes of weights and shaders that loading has so far, fetched or from the cache. */
    done: number;
    total: number;
    /** Number of pipelines that are created, of `pipelines`. The browser compiles a shader for each. */
    created: number;
    pipelines: number;
}

export interface LoadOptions extends DeviceOptions {
    /** Store that keeps sections between visits of the page, or `false` for none. Default: the Cache API, if available. */
    cache?: Cache | false | undefined;
    /** True to compare sections that come from the cache with their hashes too. */
    verifyCached?: boolean | undefined;
    progress?: ((progress: Progress) => void) | undefined;
    /**
     * Public keys in minisign's format: the base64 line, or the text of the key file. Only bundles that one of these keys signed
     * are loaded, none if the list is empty. Default: all bundles.
     */
    trustedKeys?: readonly string[] | undefined;
    signal?: AbortSignal | undefined;
}

/** An array of the caller, or a buffer on the device with elements of the port's `deviceType` in row-major order. */
export type Input = TypedArray | { data: TypedArray; shape: readonly number[] } | { buffer: GPUBuffer; shape: readonly number[]; offset?: number };

export interface Tensor {
    type: HostType;
    shape: number[];
    data: TypedArray;
}

export interface RunOptions {
    /** Values by name for symbols that no input shape determines. */
    symbols?: Readonly<Record<string, number>>;
    /** Outputs to copy into a buffer of the caller on the device, instead of reading them back to the host. */
    into?: Readonly<Record<string, { buffer: GPUBuffer; offset?: number }>>;
    /** Names of the outputs to read back to the host. Default: all outputs. */
    outputs?: readonly string[];
}

export interface PortInfo {
    name: string;
    type: HostType;
    /** Element type in the device buffer of the port. */
    deviceType: DeviceType;
    /** Shape as text, such as `1, seq in 1..8, 384`. */
    shape: string;
    /** Buffer of the port on the device: row-major elements without gaps. */
    buffer: GPUBuffer;
}

export interface Stats {
    /** Bytes that loading got from the file, including header and manifest, and bytes that it got from the cache. */
    fetched: number;
    cached: number;
    /** Milliseconds from the call of `load` until the session is ready. */
    loadMs: number;
}

export class Session {
    #queue: Promise<unknown> = Promise.resolve();
    #lostReason: string | undefined;

    private constructor(
        readonly bundle: Bundle,
        readonly device: GPUDevice,
        private readonly variant: Variant,
        private readonly memory: Memory,
        private readonly pipelines: GPUComputePipeline[],
        private readonly ownsDevice: boolean,
        readonly stats: Stats,
    ) {
        void device.lost.then((info) => (this.#lostReason = info.message || info.reason));
    }

    /** Opens a bundle, selects a device and a variant, fetches the variant's sections, and creates all resources. */
    static async load(from: BundleSource | Bundle, options: LoadOptions = {}): Promise<Session> {
        const start = performance.now();
        const { signal, progress, trustedKeys } = options;
        const verifyCached = options.verifyCached || !!trustedKeys;
        const bundle = from instanceof Bundle ? from : await Bundle.open(from, signal);
        if (trustedKeys) await bundle.checkSignature(trustedKeys, signal);
        const [device, variant] = await openDevice(bundle.manifest, options);
        const stats: Stats = { fetched: bundle.opened, cached: 0, loadMs: 0 };
        const lost = device.lost.then((info) => {
            throw deviceLost('loading', info.message);
        });
        lost.catch(() => undefined);
        let memory: Memory | undefined;
        try {
            const cache = options.cache ?? (await cacheStorage());
            memory = allocate(device, variant);
            let created = 0;
            const report = () => {
                const done = stats.cached + stats.fetched - bundle.opened;
                progress?.({ done, total, created, pipelines: variant.pipelines.length });
            };
            const { sections, take, pipelines } = planFetch(bundle, device, variant, memory, () => {
                created++;
                report();
            });
            const total = sections.reduce((sum, section) => sum + section.size, 0);
            const fetching: FetchOptions = {
                signal,
                verifyCached,
                cache: cache || undefined,
                got(bytes, cached) {
                    if (cached) stats.cached += bytes;
                    else stats.fetched += bytes;
                    report();
                },
            };
            await Promise.race([Promise.all([memory.checked, bundle.fetch(sections, take, fetching)]), lost]);
            const ready = await Promise.race([pipelines(), lost]);
            stats.loadMs = performance.now() - start;
            return new Session(bundle, device, variant, memory, ready, !options.device, stats);
        } catch (error) {
            memory?.destroy();
            if (!options.device) device.destroy();
            throw error;
        }
    }

    /** Target of the bundle's variant in use. */
    get target(): string {
        return this.variant.target;
    }

    /** Names of the functions. */
    get functions(): string[] {
        return [...this.memory.ports.keys()];
    }

    /** Names of the states. */
    get states(): string[] {
        return this.variant.states.map((state) => state.name);
    }

    inputs(name: string): PortInfo[] {
        return this.#ports(name, 'inputs');
    }

    outputs(name: string): PortInfo[] {
        return this.#ports(name, 'outputs');
    }

    /** Runs a function. Runs of a session execute one after the other. */
    run(name: string, inputs: Readonly<Record<string, Input>>, options: RunOptions = {}): Promise<Record<string, Tensor>> {
        return this.#runExclusive(() => this.#runFunction(name, inputs, options));
    }

    /** Returns the bytes of a state. */
    readState(name: string): Promise<ArrayBuffer> {
        return this.#runExclusive(async () => {
            const from = this.#state(name);
            const back = this.device.createBuffer({ size: from.size, usage: MAP_READ | 8 });
            const encoder = this.device.createCommandEncoder();
            encoder.copyBufferToBuffer(from, 0, back, 0, from.size);
            this.device.queue.submit([encoder.finish()]);
            await back.mapAsync(MAP_READ);
            const bytes = back.getMappedRange().slice(0);
            back.destroy();
            return bytes;
        });
    }

    /** Writes a state. The number of bytes must be the size of the state. */
    writeState(name: string, bytes: ArrayBuffer | Uint8Array): Promise<void> {
        return this.#runExclusive(async () => {
            const to = this.#state(name);
            const given = bytes.byteLength;
            if (given !== to.size) fail('WrongLength', `state \`${name}\` takes ${to.size} bytes, but ${given} were given`);
            this.device.queue.writeBuffer(to, 0, bytes as BufferSource);
        });
    }

    /** Sets all states to zero, as after loading. */
    resetStates(): Promise<void> {
        return this.#runExclusive(async () => this.#clearStates());
    }

    /**
     * Runs the bundle's self-test vectors and compares the outputs with the outputs of the CPU reference. Returns the
     * number of vectors: 0 if the bundle has none. Fails with the first output that differs. All states are zero afterwards.
     */
    selfTest(): Promise<number> {
        return this.#runExclusive(async () => {
            const bytes = await this.bundle.attachment(SELF_TEST);
            if (!bytes) return 0;
            const { selfTest } = await import('./self-test.js');
            return selfTest(bytes, {
                find: (name) => this.#find(name),
                reset: () => this.#clearStates(),
                run: (name, inputs, options) => this.#runFunction(name, inputs, options),
                fail,
            });
        });
    }

    /** Frees the session's resources, and the device unless the caller passed it. */
    destroy(): void {
        this.memory.destroy();
        if (this.ownsDevice) this.device.destroy();
    }

    #clearStates(): void {
        const encoder = this.device.createCommandEncoder();
        for (const state of this.memory.states) encoder.clearBuffer(state);
        this.device.queue.submit([encoder.finish()]);
    }

    #runExclusive<T>(task: () => Promise<T>): Promise<T> {
        const guarded = async () => {
            const during = 'running';
            if (this.#lostReason !== undefined) throw deviceLost(during, this.#lostReason);
            try {
                return await Promise.race([task(), this.device.lost.then((info) => Promise.reject(deviceLost(during, info.message)))]);
            } catch (error) {
                if (error instanceof DriftError) throw error;
                // The operation may fail before the loss of the device is reported.
                const gone = await Promise.race([this.device.lost, new Promise<undefined>((done) => setTimeout(done, 100))]);
                if (gone) throw deviceLost(during, gone.message);
                return fail('Gpu', `the device failed in a run: ${messageOf(error)}`, error);
            }
        };
        const result = this.#queue.then(guarded);
        this.#queue = result.catch(() => undefined);
        return result;
    }

    async #runFunction(name: string, inputs: Readonly<Record<string, Input>>, options: RunOptions): Promise<Record<string, Tensor>> {
        const general = this.#find(name);
        const ports = this.memory.ports.get(name)!;
        for (const input of Object.keys(inputs)) checkName(general, 'input', general.inputs, input);
        for (const output of [...Object.keys(options.into ?? {}), ...(options.outputs ?? [])]) checkName(general, 'output', general.outputs, output);
        for (const symbol of Object.keys(options.symbols ?? {})) checkName(general, 'symbol', general.symbols, symbol);
        const given = general.inputs.map((port) => {
            const input = inputs[port.name];
            if (input === undefined) fail('Missing', `function \`${name}\` lacks a value for input \`${port.name}\``);
            return { port, ...normalizeInput(general, port, input!) };
        });
        const symbols = bindSymbols(general, given.map(({ shape }) => shape), options.symbols);
        const { queue } = this.device;
        const encoder = this.device.createCommandEncoder();
        given.forEach(({ port, shape, data, buffer, offset }, index) => {
            const to = ports.inputs[index]!;
            const size = deviceSize(port, shape)!;
            if (data) {
                const count = elements(shape);
                if (data.length !== count) {
                    const bytes = data.BYTES_PER_ELEMENT;
                    fail(
                        'WrongLength',
                        `\`${port.name}\` of shape [${shape.join(', ')}] takes ${count * bytes} bytes, but ${data.length * bytes} were given`,
                    );
                }
                // Deno fails on writes of zero bytes.
                if (size) queue.writeBuffer(to, port.offset, toDevice(port.host_type, data, port.device_type, port.name) as BufferSource);
            } else if (buffer !== to) {
                encoder.copyBufferToBuffer(buffer!, offset ?? 0, to, port.offset, size);
            }
        });
        const ready = this.#prepareFunction(name, symbols);
        const pass = encoder.beginComputePass();
        ready.func.dispatches.forEach(({ pipeline }, index) => {
            const [x, y, z] = ready.grids[index]!;
            if (x === 0 || y === 0 || z === 0) return;
            pass.setPipeline(this.pipelines[pipeline]!);
            pass.setBindGroup(0, ready.groups[index]!);
            pass.dispatchWorkgroups(x, y, z);
        });
        pass.end();
        const reading: { port: Port; shape: number[]; back: GPUBuffer; size: number }[] = [];
        general.outputs.forEach((port, index) => {
            const shape = shapeAt(port, symbols);
            const size = deviceSize(port, shape)!;
            const from = ports.outputs[index]!;
            const into = options.into?.[port.name];
            if (into) return void encoder.copyBufferToBuffer(from, port.offset, into.buffer, into.offset ?? 0, size);
            if (options.outputs && !options.outputs.includes(port.name)) return;
            const back = ports.back[index]!;
            if (size) encoder.copyBufferToBuffer(from, port.offset, back, 0, size);
            reading.push({ port, shape, back, size });
        });
        queue.submit([encoder.finish()]);
        const out: Record<string, Tensor> = {};
        // Map all buffers at the same time.
        await Promise.all(reading.filter(({ size }) => size).map(({ back, size }) => back.mapAsync(MAP_READ, 0, size)));
        for (const { port, shape, back, size } of reading) {
            const bytes = size ? back.getMappedRange(0, size) : new ArrayBuffer(0);
            const count = elements(shape);
            out[port.name] = { type: port.host_type, shape, data: fromDevice(port.device_type, bytes, port.host_type, count) };
            if (size) back.unmap();
        }
        return out;
    }

    /** Returns the function for these symbol values, with its parameters written. */
    #prepareFunction(name: string, symbols: number[]): Ready {
        const fits = ({ func }: Ready) => func.name === name && func.symbols.every(({ min, max }, i) => symbols[i]! >= min && symbols[i]! <= max);
        const ready = this.memory.functions.filter(fits).at(-1)!;
        const key = symbols.join();
        if (ready.symbols === key) return ready;
        const maxGrid = this.device.limits.maxComputeWorkgroupsPerDimension;
        ready.symbols = undefined;
        ready.grids = ready.func.dispatches.map((dispatch) => {
            const place = `dispatch \`${dispatch.label}\``;
            dispatch.params.forEach((expr, index) => {
                const value = valueAt(expr, symbols, place);
                if (value < -2147483648 || value > 4294967295) tooLarge(`parameter of \`${dispatch.label}\``, value);
                ready.words[dispatch.params_offset / 4 + index] = value;
            });
            return dispatch.grid.map((expr) => {
                const value = valueAt(expr, symbols, place);
                if (value < 0 || value > maxGrid) tooLarge(`grid of \`${dispatch.label}\``, value);
                return value;
            }) as [number, number, number];
        });
        if (ready.params) this.device.queue.writeBuffer(ready.params, 0, ready.words as BufferSource);
        ready.symbols = key;
        return ready;
    }

    #ports(name: string, kind: 'inputs' | 'outputs'): PortInfo[] {
        const func = this.#find(name);
        return func[kind].map((port, index) => ({
            name: port.name,
            type: port.host_type,
            deviceType: port.device_type,
            shape: shapeText(func, port),
            buffer: this.memory.ports.get(name)![kind][index]!,
        }));
    }

    #find(name: string): Func {
        const { functions } = this.variant;
        const found = functions.find((func, index) => func.name === name && !isSpecialization(this.variant, index));
        return found ?? fail('NoSuchFunction', `no function \`${name}\`; there are: ${quoteList(this.functions)}`);
    }

    #state(name: string): GPUBuffer {
        const found = this.memory.states[this.states.indexOf(name)];
        return found ?? fail('NoSuchState', `the bundle has no state \`${name}\`; there are: ${quoteList(this.states)}`);
    }
}

const elements = (shape: readonly number[]): number => shape.reduce((product, dim) => product * dim, 1);

const tooLarge = (place: string, value: number): never =>
    fail('TooLarge', `${place}: ${value} is out of range; the given sizes exceed what the bundle supports`);

const deviceLost = (during: string, message: string): DriftError =>
    new DriftError('DeviceLost', `the device was lost during ${during}${message ? ` (${message})` : ''}; load the bundle again`);

function checkName(func: Func, kind: string, items: readonly { name: string }[], name: string): void {
    if (items.some((item) => item.name === name)) return;
    fail('NoSuchName', `function \`${func.name}\` has no ${kind} \`${name}\`; there are: ${quoteList(items.map((item) => item.name))}`);
}

/** Returns the shape of an input, and either its array or its buffer. */
function normalizeInput(func: Func, port: Port, input: Input): { shape: readonly number[]; data?: TypedArray; buffer?: GPUBuffer; offset?: number } {
    const given = ArrayBuffer.isView(input) ? { data: input } : input;
    if ('data' in given && !isArrayOf(port.host_type, given.data)) {
        fail('WrongType', `\`${port.name}\` takes ${port.host_type}, but the array given is ${given.data?.constructor.name}`);
    }
    const fixed = port.shape.map(constant);
    const shape = 'shape' in given ? given.shape : fixed.every((dim) => dim !== undefined) ? (fixed as number[]) : undefined;
    if (!shape) fail('WrongShape', `\`${port.name}\` takes shape [${shapeText(func, port)}]; give { data, shape }`);
    return { ...given, shape: shape! };
}
