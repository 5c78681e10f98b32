// An open bundle: its header and manifest, which are read and checked, and its sections, which are fetched when needed.

import { decodeManifest, type Manifest } from './decode.js';
import { corrupt, fail, messageOf } from './errors.js';
import { blake3, hex, equalBytes } from './hash.js';
import { Fault, Reader } from './reader.js';
import { isBundle, notABundle, openSource, type BundleSource, type Cache, type Source } from './source.js';
import { validate } from './validate.js';

const HEADER = 128;
/** Minor version of the format that this runtime knows. */
const KNOWN_MINOR = 6;
const GAP = 256;
const MANIFEST_LIMIT = 64 << 20;
const SIGNATURE_LIMIT = 1024;
/** Prefix of the keys of notes that are metadata of the source model. */
const METADATA = 'metadata.';
/** Maximum bytes of adjacent sections that one request fetches. */
const GROUP = 4 << 20;
/** Maximum number of concurrent requests. */
const PARALLEL = 4;

/** A range of the file with its expected hash. */
export interface Section {
    name: string;
    offset: number;
    size: number;
    hash: Uint8Array;
}

export interface FetchOptions {
    /** Signal that aborts the requests. */
    signal?: AbortSignal | undefined;
    /** Store that keeps sections between visits of the page. Default: none. */
    cache?: Cache | undefined;
    /** True to compare sections that come from the cache with their hashes too. */
    verifyCached?: boolean | undefined;
    /** Callback for every section: its size in bytes, and true if the section came from the cache. */
    got?: ((bytes: number, cached: boolean) => void) | undefined;
}

export class Bundle {
    private constructor(
        private readonly source: Source,
        readonly manifest: Manifest,
        /** Hash of the manifest, which contains all other hashes. */
        readonly hash: string,
        private readonly header: Uint8Array,
        private readonly end: number,
        /** Number of bytes of header and manifest, which opening fetches. */
        readonly opened: number,
    ) {}

    /** Opens a bundle at a URL, in memory, or in a Blob. Reads its header and manifest. */
    static async open(from: BundleSource, signal?: AbortSignal): Promise<Bundle> {
        const source = openSource(from);
        const start = await source.read(0, Math.min(HEADER, source.size ?? HEADER), signal).catch((error) => {
            // A file shorter than the magic bytes is not a bundle.
            if (source.size !== undefined && source.size < 8) notABundle();
            throw error;
        });
        if (!isBundle(start)) notABundle();
        if (start.length < HEADER) corrupt('header', start.length, 'the file ends inside it');
        const view = new DataView(start.buffer, start.byteOffset, HEADER);
        const u64 = (at: number) => view.getUint32(at, true) + view.getUint32(at + 4, true) * 2 ** 32;
        if (!equalBytes(blake3(start.slice(0, 96)), start.subarray(96))) corrupt('header', 0, 'its hash does not match');
        const [major, minor] = [view.getUint16(8, true), view.getUint16(10, true)];
        const newer = () =>
            fail(
                'Version',
                `the bundle needs format version ${major}.${minor}, but this runtime knows version 1.${KNOWN_MINOR}; ` +
                    'update the runtime, or compile the model again with a matching driftc',
            );
        if (major !== 1) newer();
        if (view.getUint32(12, true) !== HEADER || start.subarray(72, 96).some((byte) => byte)) {
            corrupt('header', 12, "its size or its reserved bytes differ from this version's");
        }
        const [fileSize, offset, size] = [u64(16), u64(24), u64(32)];
        // A signature may follow. `checkSignature` reads it.
        const extra = (source.size ?? fileSize) - fileSize;
        if (extra < 0 || extra > SIGNATURE_LIMIT) {
            if (extra > 0 && minor > KNOWN_MINOR) newer();
            corrupt('header', 16, `the file has ${source.size} bytes, the header says ${fileSize}`);
        }
        if (offset + size !== fileSize || offset < HEADER || size > MANIFEST_LIMIT) {
            corrupt('header', 24, 'the manifest does not lie at the end of the file');
        }
        const bytes = await source.read(offset, size, signal);
        const hash = start.slice(40, 72);
        if (!equalBytes(blake3(bytes), hash)) corrupt('manifest', offset, 'its hash does not match');
        try {
            const manifest = decode(bytes, offset);
            validate(manifest);
            const bundle = new Bundle(source, manifest, hex(hash), start, fileSize, HEADER + size);
            bundle.#checkLayout(offset);
            return bundle;
        } catch (error) {
            // The manifest is undamaged, so it uses an addition of its version.
            if (minor > KNOWN_MINOR) newer();
            throw error;
        }
    }

    /** Metadata of the source model by key, such as the labels of its classes. */
    get metadata(): Record<string, string> {
        const notes = this.manifest.provenance.notes.filter(([key]) => key.startsWith(METADATA));
        return Object.fromEntries(notes.map(([key, value]) => [key.slice(METADATA.length), value]));
    }

    /**
     * Checks that one of the keys signed the bundle, and returns the id of that key. A key is in minisign's format: its base64
     * line, or the text of its file. The signature covers the hashes of all sections.
     */
    async checkSignature(keys: readonly string[], signal?: AbortSignal): Promise<string> {
        const bytes = await this.source.readUpTo(this.end, SIGNATURE_LIMIT + 1, signal);
        const { checkSignature } = await import('./signature.js');
        return checkSignature(new TextDecoder().decode(bytes), this.header, keys).catch((error) =>
            fail('Untrusted', `the bundle is not trusted: ${messageOf(error)}`, error),
        );
    }

    /** Returns a file attached to the bundle, such as a tokenizer, or `undefined`. */
    async attachment(name: string, options: FetchOptions = {}): Promise<Uint8Array | undefined> {
        const found = this.manifest.attachments.find((attachment) => attachment.name === name);
        if (!found) return undefined;
        const section = { ...this.manifest.artifacts[found.artifact]!, name: `attachment \`${name}\`` };
        let bytes: Uint8Array | undefined;
        await this.fetch([section], (_, got) => (bytes = got), options);
        return bytes;
    }

    /** Compares all sections with their hashes, and checks that all gaps are zero. */
    async verify(signal?: AbortSignal): Promise<void> {
        await this.fetch(this.#sections(), () => undefined, { signal });
        let end = HEADER;
        for (const section of [...this.#inOrder(), undefined]) {
            const next = section?.offset ?? this.#manifestOffset;
            checkGap(await this.source.read(end, next - end, signal), end, section?.name ?? 'manifest');
            end = next + (section?.size ?? 0);
        }
    }

    /**
     * Calls `take` with each section and its bytes, in any order. Bytes that come from the file instead of the cache are compared
     * with their hash.
     */
    async fetch(
        sections: readonly Section[],
        take: (section: Section, bytes: Uint8Array) => void,
        options: FetchOptions,
    ): Promise<void> {
        const { cache, signal, got } = options;
        const missing: Section[] = [];
        const puts: Promise<unknown>[] = [];
        await parallel(sections, PARALLEL * 4, async (section) => {
            const bytes = await cache?.get(hex(section.hash)).catch(() => undefined);
            const good = bytes?.length === section.size && (!options.verifyCached || equalBytes(blake3(bytes), section.hash));
            if (!bytes || !good) return void missing.push(section);
            got?.(section.size, true);
            take(section, bytes);
        });
        await parallel(groupAdjacent(missing), PARALLEL, async (group) => {
            const [first, last] = [group[0]!, group.at(-1)!];
            const bytes = await this.source.read(first.offset, last.offset + last.size - first.offset, signal);
            let end = 0;
            for (const section of group) {
                const from = section.offset - first.offset;
                checkGap(bytes.subarray(end, from), first.offset + end, section.name);
                end = from + section.size;
                const sectionBytes = bytes.subarray(from, end);
                if (!equalBytes(blake3(sectionBytes), section.hash)) corrupt(section.name, section.offset, 'its hash does not match');
                // A full cache is not an error.
                if (cache) puts.push(cache.put(hex(section.hash), sectionBytes.slice()).catch(() => undefined));
                got?.(section.size, false);
                take(section, sectionBytes);
            }
        });
        await Promise.all(puts);
    }

    #sections(): Section[] {
        const name = (what: string) => (section: Omit<Section, 'name'>, index: number) => ({ ...section, name: `${what} ${index}` });
        return [...this.manifest.chunks.map(name('chunk')), ...this.manifest.artifacts.map(name('artifact'))];
    }

    #inOrder(): Section[] {
        return this.#sections().sort((a, b) => a.offset - b.offset || a.size - b.size);
    }

    #manifestOffset = 0;

    /** Checks that sections do not overlap between header and manifest, and that gaps are short. */
    #checkLayout(manifestOffset: number): void {
        this.#manifestOffset = manifestOffset;
        let end = HEADER;
        for (const { name, offset, size } of [...this.#inOrder(), { name: 'manifest', offset: manifestOffset, size: 0 }]) {
            if (!(offset >= end && offset - end < GAP)) {
                corrupt(name, offset, `it does not follow the previous section, which ends at byte ${end}`);
            }
            end = offset + size;
        }
    }
}

function checkGap(gap: Uint8Array, at: number, name: string): void {
    if (gap.some((byte) => byte)) corrupt('padding', at, `bytes before ${name} are not zero`);
}

function decode(bytes: Uint8Array, offset: number): Manifest {
    const reader = new Reader(bytes);
    try {
        const manifest = decodeManifest(reader);
        if (reader.left) throw new Fault('there are bytes after its end');
        return manifest;
    } catch (error) {
        if (error instanceof Fault) corrupt('manifest', offset + reader.at, error.message);
        throw error;
    }
}

/** Groups adjacent chunks or artifacts into one request each. Groups at the end of the file come first: they have the shaders. */
function groupAdjacent(sections: Section[]): Section[][] {
    const out: Section[][] = [];
    for (const section of sections.sort((a, b) => a.offset - b.offset)) {
        const group = out[0];
        const last = group?.at(-1);
        const close = last && last.name[0] === section.name[0] && section.offset - last.offset - last.size < GAP;
        if (close && section.offset + section.size - group![0]!.offset <= GROUP) group!.push(section);
        else out.unshift([section]);
    }
    return out;
}

/** Runs a task for each item, with at most `most` tasks at a time. */
async function parallel<T>(items: readonly T[], most: number, task: (item: T) => Promise<void>): Promise<void> {
    const left = items[Symbol.iterator]();
    const worker = async () => {
        for (let next = left.next(); !next.done; next = left.next()) await task(next.value);
    };
    await Promise.all(Array.from({ length: Math.min(most, items.length) }, worker));
}
