// Conversion between the caller's arrays and elements on the device. Integers sent to the device are checked; integers read
// from the device wrap to the caller's width. Floats are rounded.

import type { DeviceType, HostType } from './decode.js';
import { fail } from './errors.js';

export type TypedArray =
    | Float32Array | Float64Array | Int8Array | Int16Array | Int32Array | BigInt64Array | Uint8Array
    | Uint8ClampedArray | Uint16Array | Uint32Array | BigUint64Array;

type ArrayClass = { new (length: number): any; readonly BYTES_PER_ELEMENT: number };

/** Array class for each element type. Arrays of f16 and bf16 hold the bits. */
const ARRAY_CLASSES: Record<HostType, ArrayClass> = {
    f32: Float32Array, f16: Uint16Array, bf16: Uint16Array, f64: Float64Array, i8: Int8Array, i16: Int16Array,
    i32: Int32Array, i64: BigInt64Array, u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, u64: BigUint64Array,
    bool: Uint8Array,
};

/** Returns the bytes of an element in a caller's array. */
export function elementBytes(type: HostType): number {
    return ARRAY_CLASSES[type].BYTES_PER_ELEMENT;
}

/** True if an array can hold elements of this type. */
export function isArrayOf(type: HostType, array: unknown): boolean {
    const name = (array as object).constructor.name;
    return (
        name === ARRAY_CLASSES[type].name ||
        (type === 'f16' && name === 'Float16Array') ||
        ((type === 'u8' || type === 'bool') && name === 'Uint8ClampedArray')
    );
}

const wide = new Float64Array(1);
const words = new Uint32Array(wide.buffer);
const single = new Float32Array(1);
const bits = new Uint32Array(single.buffer);

/** Rounds to f16, ties to even. */
function toF16(value: number): number {
    wide[0] = value;
    const sign = (words[1]! >>> 16) & 0x8000;
    const size = Math.abs(value);
    if (!(size < 65520)) return sign | (size >= 65520 ? 0x7c00 : 0x7e00);
    const exponent = Math.max(((words[1]! >>> 20) & 0x7ff) - 1023, -14);
    const scaled = size * 2 ** (10 - exponent);
    let rounded = Math.floor(scaled);
    const rest = scaled - rounded;
    if (rest > 0.5 || (rest === 0.5 && rounded % 2)) rounded++;
        // Subnormal numbers have exponent field 0. Rounding up may carry into it, which gives the smallest normal number.
    return sign | (((exponent + 14) << 10) + rounded);
}

function fromF16(value: number): number {
    const exponent = (value >> 10) & 31;
    const fraction = value & 1023;
    const size =
        exponent === 31 ? (fraction ? NaN : Infinity)
        : exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15)
        : fraction * 2 ** -24;
    return value & 0x8000 ? -size : size;
}

function toBf16(value: number): number {
    single[0] = value;
    if (value !== value) return 0x7fc0;
    return (bits[0]! + 0x7fff + ((bits[0]! >>> 16) & 1)) >>> 16;
}

function fromBf16(value: number): number {
    bits[0] = value << 16;
    return single[0]!;
}

const DECODE: Partial<Record<HostType, (bits: number) => number>> = { f16: fromF16, bf16: fromBf16 };
const ENCODE: Partial<Record<HostType, (value: number) => number>> = { f16: toF16, bf16: toBf16 };

/** The lowest and the highest number of each integer type on the device. */
const RANGES: Partial<Record<DeviceType, [number, number]>> = {
    i32: [-2147483648, 2147483647], u32: [0, 4294967295], i8: [-128, 127], u8: [0, 255],
};

/** Converts an array to the bytes of its slot, padded with zeros to a multiple of 4. */
export function toDevice(host: HostType, given: TypedArray, device: DeviceType, port: string): Uint8Array {
    // The bits of a Float16Array are used directly.
    const array: any = given.constructor.name === 'Float16Array' ? new Uint16Array(given.buffer, given.byteOffset, given.length) : given;
    const count = array.length;
    const size = elementBytes(device);
    if (host === device && (count * size) % 4 === 0) return new Uint8Array(array.buffer, array.byteOffset, count * size);
    const out = new Uint8Array(Math.ceil((count * size) / 4) * 4);
    const to: any = new (ARRAY_CLASSES[device] as any)(out.buffer, 0, count);
    if (host === device) {
        to.set(array);
    } else if (host.includes('f')) {
        const [decode, encode] = [DECODE[host], ENCODE[device]];
        for (let i = 0; i < count; i++) {
            const value = decode ? decode(array[i]) : array[i];
            to[i] = encode ? encode(value) : value;
        }
    } else {
        const [min, max] = RANGES[device] ?? RANGES.i32!;
        for (let i = 0; i < count; i++) {
            const value = host === 'bool' ? Number(array[i] !== 0) : array[i];
            if (value < min || value > max) {
                fail(
                    'ValueOutOfRange',
                    `element ${i} of \`${port}\` is ${value}, which the device type ${device} cannot represent`,
                );
            }
            to[i] = Number(value);
        }
    }
    return out;
}

/** Converts `count` elements from the device to the caller's type. */
export function fromDevice(device: DeviceType, bytes: ArrayBuffer, host: HostType, count: number): TypedArray {
    const from: any = new (ARRAY_CLASSES[device] as any)(bytes, 0, count);
    if (host === device) return from.slice();
    const to: any = new ARRAY_CLASSES[host](count);
    const [decode, encode] = [DECODE[device], ENCODE[host]];
    const big = host === 'i64' || host === 'u64';
    for (let i = 0; i < count; i++) {
        const value = decode ? decode(from[i]) : from[i];
        to[i] = encode ? encode(value) : big ? BigInt(value) : host === 'bool' ? Number(value !== 0) : value;
    }
    return to;
}
