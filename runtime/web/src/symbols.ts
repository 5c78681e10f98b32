// Derives the values of a function's symbols from input shapes, and checks all shapes.

import type { Expr, Func, Port } from './decode.js';
import { fail, messageOf } from './errors.js';
import { constant, evaluate, symbolOf } from './expr.js';

/** Evaluates an expression. `place` names the expression in errors. */
export function valueAt(expr: Expr, symbols: readonly number[], place: string): number {
    try {
        return evaluate(expr, symbols);
    } catch (error) {
        return fail('Expression', `${place}: ${messageOf(error)}`);
    }
}

/** Returns the shape of a port for these symbol values. */
export const shapeAt = (port: Port, symbols: readonly number[]): number[] =>
    port.shape.map((dim) => valueAt(dim, symbols, `shape of \`${port.name}\``));

/** Formats a port's shape with symbol names and bounds, such as `1, seq in 1..8, 384`. A computed dimension is `?`. */
export const shapeText = (func: Func, port: Port): string =>
    port.shape
        .map((dim) => {
            const symbol = func.symbols[symbolOf(dim) ?? -1];
            return constant(dim) ?? (symbol ? `${symbol.name} in ${symbol.min}..${symbol.max}` : '?');
        })
        .join(', ');

function wrongShape(func: Func, port: Port, given: readonly number[]): never {
    return fail(
        'WrongShape',
        `\`${port.name}\` takes shape [${shapeText(func, port)}], but the array given has shape [${given.join(', ')}]`,
    );
}

/** Binds every symbol, checks bounds, and compares every dimension of every input. `given` has symbol values set by name. */
export function bindSymbols(
    func: Func,
    shapes: readonly (readonly number[])[],
    given: Readonly<Record<string, number>> = {},
): number[] {
    const values: (number | undefined)[] = func.symbols.map(({ name, min, max }) => {
        const value = given[name];
        if (value !== undefined && !(Number.isInteger(value) && value >= min && value <= max)) {
            fail(
                'SymbolOutOfBounds',
                `symbol \`${name}\` is ${value}, but the bundle was compiled for ${min}..${max}; compile with other bounds`,
            );
        }
        return value;
    });
    func.inputs.forEach((port, index) => {
        const shape = shapes[index]!;
        if (shape.length !== port.shape.length) wrongShape(func, port, shape);
        port.shape.forEach((dim, dimension) => {
            const at = symbolOf(dim);
            if (at === undefined) return;
            const { name, min, max } = func.symbols[at]!;
            const size = shape[dimension]!;
            if (!(size >= min && size <= max)) {
                fail(
                    'OutOfBounds',
                    `dimension ${dimension} of \`${port.name}\` (${name}) is ${size}, but the bundle was compiled for ` +
                        `${min}..${max}; compile with other bounds`,
                );
            }
            values[at] ??= size;
        });
    });
    const symbols = values.map(
        (value, index) =>
            value ?? fail('Missing', `function \`${func.name}\` lacks a value for symbol \`${func.symbols[index]!.name}\``),
    );
    func.inputs.forEach((port, index) => {
        const expected = shapeAt(port, symbols);
        if (!expected.every((dim, at) => dim === shapes[index]![at])) wrongShape(func, port, shapes[index]!);
    });
    return symbols;
}
