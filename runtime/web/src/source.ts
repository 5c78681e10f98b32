// Sources of a bundle's bytes, and the cache that keeps sections between visits.

import { corrupt, fail, messageOf } from './errors.js';

/** A file that is read in ranges. */
export interface Source {
    /** Name of the file in error messages. */
    readonly name: string;
    /** Size of the file in bytes, if known. */
    size: number | undefined;
    read(offset: number, size: number, signal?: AbortSignal): Promise<Uint8Array>;
    /** Reads at most `size` bytes, fewer at the end of the file. */
    readUpTo(offset: number, size: number, signal?: AbortSignal): Promise<Uint8Array>;
}

export type BundleSource = string | URL | ArrayBuffer | Uint8Array | Blob;

export function openSource(from: BundleSource): Source {
    if (from instanceof Blob) {
        const readUpTo = async (offset: number, size: number) =>
            new Uint8Array(await from.slice(offset, offset + size).arrayBuffer());
        return exactly({ name: 'the blob', size: from.size, readUpTo });
    }
    if (typeof from !== 'string' && !(from instanceof URL)) {
        const bytes = from instanceof Uint8Array ? from : new Uint8Array(from);
        const readUpTo = async (offset: number, size: number) => bytes.subarray(offset, offset + size);
        return exactly({ name: 'the array', size: bytes.length, readUpTo });
    }
    return url(String(from));
}

/** Adds `read`, which requires all bytes of a range, to a source. */
function exactly(source: Omit<Source, 'read'>): Source {
    return Object.assign(source, {
        async read(offset: number, size: number, signal?: AbortSignal) {
            const bytes = size ? await source.readUpTo(offset, size, signal) : new Uint8Array();
            return bytes.length === size ? bytes : corrupt('section', offset, `${size} bytes at this offset exceed the file`);
        },
    });
}

const MAGIC = [0x89, 0x44, 0x52, 0x49, 0x46, 0x54, 0x0d, 0x0a];

export const isBundle = (bytes: Uint8Array): boolean => MAGIC.every((byte, index) => bytes[index] === byte);

export const notABundle = (): never =>
    fail('NotABundle', "not a drift bundle: it does not start with the bundle's magic bytes");

function url(name: string): Source {
    const source = exactly({
        name,
        size: undefined,
        async readUpTo(offset, size, signal) {
            const headers = { Range: `bytes=${offset}-${offset + size - 1}` };
            try {
                // Sections are cached by their hashes, so the browser's cache is not used.
                const response = await fetch(name, { headers, cache: 'no-store', ...(signal && { signal }) });
                if (response.status === 416) return new Uint8Array();
                if (!response.ok) fail('Io', `${name}: ${response.status} ${response.statusText}`.trim());
                if (response.status !== 206) {
                    const start = await response.body?.getReader().read();
                    if (offset === 0 && !isBundle(start?.value ?? new Uint8Array())) notABundle();
                    fail(
                        'NoRange',
                        `${name}: the server does not support Range requests; fetch the file and open the ArrayBuffer`,
                    );
                }
                const total = /\/(\d+)$/.exec(response.headers.get('Content-Range') ?? '');
                if (total) source.size = Number(total[1]);
                return new Uint8Array(await response.arrayBuffer());
            } catch (error) {
                if (signal?.aborted || (error as Error).name === 'DriftError') throw error;
                return fail('Io', `${name}: ${messageOf(error)}; check the address and the network`, error);
            }
        },
    });
    return source;
}

/** Store of sections by their hash. Stored bytes are trusted if their size matches. */
export interface Cache {
    get(hash: string): Promise<Uint8Array | undefined>;
    put(hash: string, bytes: Uint8Array): Promise<void>;
}

/** Returns a store in the Cache API, which all pages and workers of an origin share, or `undefined` without this API. */
export async function cacheStorage(name = 'driftc'): Promise<Cache | undefined> {
    try {
        const store = await caches.open(name);
        const key = (hash: string) => new URL(`/${name}/${hash}`, location.origin).href;
        return {
            async get(hash) {
                const found = await store.match(key(hash));
                return found && new Uint8Array(await found.arrayBuffer());
            },
            put: (hash, bytes) => store.put(key(hash), new Response(bytes as BodyInit)),
        };
    } catch {
        return undefined;
    }
}
