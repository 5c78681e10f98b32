// Reads values in the encoding of the manifest, as FORMAT.md describes it. The bytes are not trusted.
//
// Numbers above 2^53 become Infinity, and every use of them is refused.

/** An error in the bytes of a manifest. */
export class Fault extends Error {}

const END = 'it ends inside a value, or a length exceeds the remaining bytes';
const NUMBER = 'a number does not fit its field, or its encoding is not the shortest one';
const CHOICE = 'a value is not valid for its type';

export class Reader {
    at = 0;
    private readonly view: DataView;

    constructor(private readonly bytes: Uint8Array) {
        this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    }

    get left(): number {
        return this.bytes.length - this.at;
    }

    take(length: number): Uint8Array {
        if (length > this.left) throw new Fault(END);
        return this.bytes.subarray(this.at, (this.at += length));
    }

    byte(): number {
        return this.take(1)[0]!;
    }

    /** Returns the upper and the lower 32 bits of an unsigned number. */
    wide(): [number, number] {
        const first = this.byte();
        if (first < 251) return [0, first];
        if (first > 253) throw new Fault(NUMBER);
        const at = this.at;
        this.take(2 << (first - 251));
        const low = first === 251 ? this.view.getUint16(at, true) : this.view.getUint32(at, true);
        const high = first === 253 ? this.view.getUint32(at + 4, true) : 0;
        if (first === 253 ? high === 0 : low < (first === 251 ? 251 : 65536)) throw new Fault(NUMBER);
        return [high, low];
    }

    unsigned(): number {
        const [high, low] = this.wide();
        return high < 1 << 21 ? high * 4294967296 + low : Infinity;
    }

    length(): number {
        const length = this.unsigned();
        if (length > this.left) throw new Fault(END);
        return length;
    }
}

export type Decoder<T> = (reader: Reader) => T;
export type Decoded<D> = D extends Decoder<infer T> ? T : never;

const below = (limit: number): Decoder<number> => (reader) => {
    const value = reader.unsigned();
    if (value >= limit) throw new Fault(NUMBER);
    return value;
};
export const u16 = below(65536);
export const u32 = below(4294967296);
export const u64: Decoder<number> = (reader) => reader.unsigned();
export const i64: Decoder<number> = (reader) => {
    const value = reader.unsigned();
    return value % 2 ? -(value + 1) / 2 : value / 2;
};
export const f64: Decoder<number> = (reader) => {
    const bytes = reader.take(8);
    return new DataView(bytes.buffer, bytes.byteOffset).getFloat64(0, true);
};
/** Decodes a set of bits, as a list of the numbers of the bits that are set. */
export const bits: Decoder<number[]> = (reader) => {
    const [high, low] = reader.wide();
    return [...Array(64).keys()].filter((bit) => ((bit < 32 ? low >>> bit : high >>> (bit - 32)) & 1) === 1);
};
export const flag: Decoder<boolean> = (reader) => {
    const value = reader.byte();
    if (value > 1) throw new Fault(CHOICE);
    return value === 1;
};
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
export const text: Decoder<string> = (reader) => {
    const bytes = reader.take(reader.length());
    try {
        return utf8.decode(bytes);
    } catch {
        throw new Fault('a string is not UTF-8');
    }
};
export const hash: Decoder<Uint8Array> = (reader) => reader.take(32);
export const listOf = <T>(decode: Decoder<T>): Decoder<T[]> => (reader) => {
    const out: T[] = [];
    for (let left = reader.length(); left > 0; left--) out.push(decode(reader));
    return out;
};
export const arrayOf = <T>(count: number, decode: Decoder<T>): Decoder<T[]> => (reader) =>
    Array.from({ length: count }, () => decode(reader));
export const optional = <T>(decode: Decoder<T>): Decoder<T | undefined> => (reader) => (flag(reader) ? decode(reader) : undefined);
export const struct = <F extends Record<string, Decoder<any>>>(fields: F): Decoder<{ [K in keyof F]: Decoded<F[K]> }> => {
    const entries = Object.entries(fields);
    return (reader) => {
        const out: any = {};
        for (const [name, decode] of entries) out[name] = decode(reader);
        return out;
    };
};
export const enumOf = <N extends string>(...names: N[]): Decoder<N> => (reader) => {
    const name = names[reader.unsigned()];
    if (name === undefined) throw new Fault(CHOICE);
    return name;
};
export const empty: Decoder<undefined> = () => undefined;
/** Decodes an enum whose choices have payloads. */
export const unionOf = <F extends Record<string, Decoder<any>>>(
    cases: F,
): Decoder<{ [K in keyof F]: { kind: K; value: Decoded<F[K]> } }[keyof F]> => {
    const entries = Object.entries(cases);
    return (reader) => {
        const found = entries[reader.unsigned()];
        if (!found) throw new Fault(CHOICE);
        return { kind: found[0], value: found[1](reader) };
    };
};
