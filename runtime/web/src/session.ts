// A bundle on a device: load once, run many times. After loading no pipeline is created and no memory is allocated,
// whatever shapes arrive within the bounds that the bundle was compiled for.

import { Bundle, type FetchOptions, type Section } from './bundle.js';
import { fromDevice, holds, toDevice, type TypedArray } from './convert.js';
import type { DeviceType, Func, HostType, Port, Variant } from './decode.js';
import { openDevice, type DeviceOptions } from './device.js';
import { DriftError, fail, list, text } from './errors.js';
import { constant } from './expr.js';
import { allocate, rowBytes, type Memory, type Ready } from './memory.js';
import { cacheStorage, type BundleSource, type Cache } from './source.js';
import { shapeAt, shapeText, solve, valueAt } from './symbols.js';
import { deviceSize, isSpecial } from './validate.js';

const MAP_READ = 1;

export interface Progress {
    /** Bytes so far of the total: fetched, and from the cache. */
    done: number;
    total: number;
}

export interface LoadOptions extends DeviceOptions {
    /** Where sections are kept for the next visit; the Cache API where it is left out and there is one. */
    cache?: Cache | false | undefined;
    /** Compares what comes from the cache with its hash, too. */
    verifyCached?: boolean | undefined;
    progress?: ((progress: Progress) => void) | undefined;
    signal?: AbortSignal | undefined;
}

/** An array of the caller, or elements on the device in the type and order that `ports` tells. */
export type Input = TypedArray | { data: TypedArray; shape: readonly number[] } | { buffer: GPUBuffer; shape: readonly number[]; offset?: number };

export interface Tensor {
    type: HostType;
    shape: number[];
    data: TypedArray;
}

export interface RunOptions {
    /** Values of symbols that no shape tells. */
    symbols?: Readonly<Record<string, number>>;
    /** Outputs that are copied into a buffer instead of being read back. */
    into?: Readonly<Record<string, { buffer: GPUBuffer; offset?: number }>>;
    /** The outputs that are read back; all where it is left out. */
    outputs?: readonly string[];
}

export interface PortInfo {
    name: string;
    type: HostType;
    /** The type of the elements in the buffer. */
    deviceType: DeviceType;
    /** Such as `1, seq in 1..=8, 384`. */
    shape: string;
    /** The elements on the device, row-major and without gaps. */
    buffer: GPUBuffer;
}

export interface Stats {
    /** Bytes that came from the file, its header and manifest among them, and from the cache. */
    fetched: number;
    cached: number;
    /** Milliseconds until the session could run. */
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

    /** Opens a bundle, chooses a device and a variant, fetches what it needs, and creates everything. */
    static async load(from: BundleSource | Bundle, options: LoadOptions = {}): Promise<Session> {
        const start = performance.now();
        const { signal, progress, verifyCached } = options;
        const bundle = from instanceof Bundle ? from : await Bundle.open(from, signal);
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
            const { wanted, take, pipelines } = consumer(bundle, device, variant, memory);
            const total = wanted.reduce((sum, section) => sum + section.size, 0);
            const fetching: FetchOptions = {
                signal,
                verifyCached,
                cache: cache || undefined,
                got(bytes, cached) {
                    if (cached) stats.cached += bytes;
                    else stats.fetched += bytes;
                    progress?.({ done: stats.cached + stats.fetched - bundle.opened, total });
                },
            };
            await Promise.race([Promise.all([memory.checked, bundle.fetch(wanted, take, fetching)]), lost]);
            const ready = await Promise.race([pipelines(), lost]);
            stats.loadMs = performance.now() - start;
            return new Session(bundle, device, variant, memory, ready, !options.device, stats);
        } catch (error) {
            memory?.destroy();
            if (!options.device) device.destroy();
            throw error;
        }
    }

    /** The name of the target whose variant runs. */
    get target(): string {
        return this.variant.target;
    }

    /** The names of the functions. */
    get functions(): string[] {
        return [...this.memory.ports.keys()];
    }

    /** The names of what is kept between runs. */
    get states(): string[] {
        return this.variant.states.map((state) => state.name);
    }

    inputs(name: string): PortInfo[] {
        return this.#ports(name, 'inputs');
    }

    outputs(name: string): PortInfo[] {
        return this.#ports(name, 'outputs');
    }

    /** Runs a function. Runs of a session wait for one another. */
    run(name: string, inputs: Readonly<Record<string, Input>>, options: RunOptions = {}): Promise<Record<string, Tensor>> {
        return this.#inTurn(() => this.#runNow(name, inputs, options));
    }

    /** The bytes of a state. */
    readState(name: string): Promise<ArrayBuffer> {
        return this.#inTurn(async () => {
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

    /** Replaces a state by bytes of the same size. */
    writeState(name: string, bytes: ArrayBuffer | Uint8Array): Promise<void> {
        return this.#inTurn(async () => {
            const to = this.#state(name);
            const given = bytes.byteLength;
            if (given !== to.size) fail('WrongLength', `state \`${name}\` takes ${to.size} bytes, but ${given} were given`);
            this.device.queue.writeBuffer(to, 0, bytes as BufferSource);
        });
    }

    /** Makes all states zero, as they are after loading. */
    resetStates(): Promise<void> {
        return this.#inTurn(async () => {
            const encoder = this.device.createCommandEncoder();
            for (const state of this.memory.states) encoder.clearBuffer(state);
            this.device.queue.submit([encoder.finish()]);
        });
    }

    /** Frees what the session has on the device, and the device unless it was given. */
    destroy(): void {
        this.memory.destroy();
        if (this.ownsDevice) this.device.destroy();
    }

    #inTurn<T>(task: () => Promise<T>): Promise<T> {
        const guarded = async () => {
            const during = 'running';
            if (this.#lostReason !== undefined) throw deviceLost(during, this.#lostReason);
            try {
                return await Promise.race([task(), this.device.lost.then((info) => Promise.reject(deviceLost(during, info.message)))]);
            } catch (error) {
                if (error instanceof DriftError) throw error;
                // What fails because the device went away fails before that is told.
                const gone = await Promise.race([this.device.lost, new Promise<undefined>((done) => setTimeout(done, 100))]);
                if (gone) throw deviceLost(during, gone.message);
                return fail('Gpu', `the device failed in a run: ${text(error)}`, error);
            }
        };
        const result = this.#queue.then(guarded);
        this.#queue = result.catch(() => undefined);
        return result;
    }

    async #runNow(name: string, inputs: Readonly<Record<string, Input>>, options: RunOptions): Promise<Record<string, Tensor>> {
        const general = this.#find(name);
        const ports = this.memory.ports.get(name)!;
        for (const given of Object.keys(inputs)) known(general, 'input', general.inputs, given);
        for (const wanted of [...Object.keys(options.into ?? {}), ...(options.outputs ?? [])]) known(general, 'output', general.outputs, wanted);
        for (const symbol of Object.keys(options.symbols ?? {})) known(general, 'symbol', general.symbols, symbol);
        const given = general.inputs.map((port) => {
            const input = inputs[port.name];
            if (input === undefined) fail('Missing', `function \`${name}\` lacks a value for input \`${port.name}\``);
            return { port, ...normal(general, port, input!) };
        });
        const symbols = solve(general, given.map(({ shape }) => shape), options.symbols);
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
                // An array without elements is no memory, on which Deno ends.
                if (size) queue.writeBuffer(to, port.offset, toDevice(port.host_type, data, port.device_type, port.name) as BufferSource);
            } else if (buffer !== to) {
                encoder.copyBufferToBuffer(buffer!, offset ?? 0, to, port.offset, size);
            }
        });
        const ready = this.#prepared(name, symbols);
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
        // All are asked for before the first is waited for.
        await Promise.all(reading.filter(({ size }) => size).map(({ back, size }) => back.mapAsync(MAP_READ, 0, size)));
        for (const { port, shape, back, size } of reading) {
            const bytes = size ? back.getMappedRange(0, size) : new ArrayBuffer(0);
            const count = elements(shape);
            out[port.name] = { type: port.host_type, shape, data: fromDevice(port.device_type, bytes, port.host_type, count) };
            if (size) back.unmap();
        }
        return out;
    }

    /** The function for given symbol values, with its parameters written. */
    #prepared(name: string, symbols: number[]): Ready {
        const fits = ({ func }: Ready) => func.name === name && func.symbols.every(({ min, max }, i) => symbols[i]! >= min && symbols[i]! <= max);
        const ready = this.memory.functions.filter(fits).at(-1)!;
        const key = symbols.join();
        if (ready.symbols === key) return ready;
        const most = this.device.limits.maxComputeWorkgroupsPerDimension;
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
                if (value < 0 || value > most) tooLarge(`grid of \`${dispatch.label}\``, value);
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
        const found = functions.find((func, index) => func.name === name && !isSpecial(this.variant, index));
        return found ?? fail('NoSuchFunction', `no function \`${name}\`; there are: ${list(this.functions)}`);
    }

    #state(name: string): GPUBuffer {
        const found = this.memory.states[this.states.indexOf(name)];
        return found ?? fail('NoSuchState', `the bundle has no state \`${name}\`; there are: ${list(this.states)}`);
    }
}

const elements = (shape: readonly number[]): number => shape.reduce((product, dim) => product * dim, 1);

const tooLarge = (place: string, value: number): never =>
    fail('TooLarge', `${place}: ${value} does not fit; the sizes given are more than the bundle can run`);

const deviceLost = (during: string, message: string): DriftError =>
    new DriftError('DeviceLost', `the device was lost during ${during}${message ? ` (${message})` : ''}; load the bundle again`);

function known(func: Func, kind: string, items: readonly { name: string }[], name: string): void {
    if (items.some((item) => item.name === name)) return;
    fail('NoSuchName', `function \`${func.name}\` has no ${kind} \`${name}\`; there are: ${list(items.map((item) => item.name))}`);
}

/** What was given for an input: its shape, and either elements or a buffer of them. */
function normal(func: Func, port: Port, input: Input): { shape: readonly number[]; data?: TypedArray; buffer?: GPUBuffer; offset?: number } {
    const given = ArrayBuffer.isView(input) ? { data: input } : input;
    if ('data' in given && !holds(port.host_type, given.data)) {
        fail('WrongType', `\`${port.name}\` takes ${port.host_type}, but the array given is ${given.data?.constructor.name}`);
    }
    const fixed = port.shape.map(constant);
    const shape = 'shape' in given ? given.shape : fixed.every((dim) => dim !== undefined) ? (fixed as number[]) : undefined;
    if (!shape) fail('WrongShape', `\`${port.name}\` takes shape [${shapeText(func, port)}]; give { data, shape }`);
    return { ...given, shape: shape! };
}

/** The sections that a variant needs, and what is done with each: shaders become pipelines, chunks fill memory. */
function consumer(bundle: Bundle, device: GPUDevice, variant: Variant, memory: Memory) {
    const { chunks, artifacts } = bundle.manifest;
    const actions = new Map<string, ((bytes: Uint8Array) => void)[]>();
    const wanted: Section[] = [];
    const want = (name: string, section: Omit<Section, 'name'>, action: (bytes: Uint8Array) => void) => {
        const known = actions.get(name);
        if (known) return void known.push(action);
        actions.set(name, [action]);
        wanted.push({ ...section, name });
    };
    const made: Promise<GPUComputePipeline>[] = [];
    variant.pipelines.forEach(({ name, artifact, entry }, index) => {
        want(`artifact ${artifact}`, artifacts[artifact]!, (bytes) => {
            const module = device.createShaderModule({ label: name, code: new TextDecoder().decode(bytes) });
            const making = device.createComputePipelineAsync({ label: name, layout: memory.layouts[index]!, compute: { module, entryPoint: entry } });
            making.catch(() => undefined);
            made[index] = making;
        });
    });
    for (const { chunk, slot, offset } of variant.placements) {
        want(`chunk ${chunk}`, chunks[chunk]!, (bytes) => {
            const rest = bytes.length % 4;
            const padded = rest ? new Uint8Array(bytes.length + 4 - rest) : bytes;
            if (rest) padded.set(bytes);
            device.queue.writeBuffer(memory.weights[slot]!, offset, padded as BufferSource);
        });
    }
    for (const [image, texture] of memory.constants) {
        want(`chunk ${image.chunk}`, chunks[image.chunk!]!, (bytes) => {
            const layout = { bytesPerRow: rowBytes(image), rowsPerImage: image.extent[1]! };
            device.queue.writeTexture({ texture }, bytes as BufferSource, layout, image.extent);
        });
    }
    const take = (section: Section, bytes: Uint8Array) => actions.get(section.name)!.forEach((action) => action(bytes));
    const pipelines = () =>
        Promise.all(
            made.map((making, index) =>
                making.catch((error) => fail('Gpu', `the driver failed in creating pipeline \`${variant.pipelines[index]!.name}\`: ${text(error)}`, error)),
            ),
        );
    return { wanted, take, pipelines };
}

