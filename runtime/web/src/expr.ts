// Integer expressions over a function's symbols: postfix programs with a stack. Results above 2^53 are errors; smaller results
// are exact.

import type { Expr } from './decode.js';

const MAX_DEPTH = 32;
const MAX_OPS = 256;

export class ExprError extends Error {}

const MALFORMED = 'a malformed expression: it does not leave exactly one value';
const TOO_LARGE = `an expression of more than ${MAX_OPS} operations or ${MAX_DEPTH} operands`;

export const constant = (expr: Expr): number | undefined =>
    expr.length === 1 && expr[0]!.kind === 'const' ? expr[0]!.value : undefined;

export const symbolOf = (expr: Expr): number | undefined =>
    expr.length === 1 && expr[0]!.kind === 'symbol' ? expr[0]!.value : undefined;

/** Checks that a program leaves exactly one value and uses only existing symbols. */
export function check(expr: Expr, symbols: number): void {
    let depth = 0;
    if (expr.length > MAX_OPS) throw new ExprError(TOO_LARGE);
    for (const { kind, value } of expr) {
        if (kind === 'symbol' && value >= symbols) {
            throw new ExprError(`an expression names symbol ${value}, which does not exist`);
        }
        if (kind === 'const' || kind === 'symbol') depth++;
        else if (depth < 2) throw new ExprError(MALFORMED);
        else depth--;
        if (depth > MAX_DEPTH) throw new ExprError(TOO_LARGE);
    }
    if (depth !== 1) throw new ExprError(MALFORMED);
}

/** Returns the value of a program that was checked before. */
export function evaluate(expr: Expr, symbols: readonly number[]): number {
    const stack: number[] = [];
    for (const op of expr) {
        let value: number;
        if (op.kind === 'const') value = op.value;
        else if (op.kind === 'symbol') value = symbols[op.value]!;
        else {
            const right = stack.pop()!;
            value = apply(op.kind, stack.pop()!, right);
        }
        if (!Number.isSafeInteger(value)) throw new ExprError('an expression overflows 53 bits');
        // Turns -0 into 0.
        stack.push(value + 0);
    }
    return stack[0]!;
}

function apply(kind: string, left: number, right: number): number {
    switch (kind) {
        case 'add': return left + right;
        case 'sub': return left - right;
        case 'mul': return left * right;
        case 'min': return Math.min(left, right);
        case 'max': return Math.max(left, right);
    }
    if (right === 0) throw new ExprError('an expression divides by zero');
        // A remainder with the sign of the divisor makes the division exact.
    const rest = left % right;
    const modulo = rest !== 0 && rest < 0 !== right < 0 ? rest + right : rest;
    const floor = (left - modulo) / right;
    return kind === 'mod' ? modulo : kind === 'floorDiv' || modulo === 0 ? floor : floor + 1;
}
