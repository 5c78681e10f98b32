// Elementary functions that WGSL lacks. `Elem` is f32 or vec4<f32>; `ElemBits` and `ElemBool` have the same width.
alias Elem = vec4<f32>;
alias ElemBits = vec4<u32>;
alias ElemBool = vec4<bool>;

/// Error function, from a Chebyshev fit of erfc (relative error below 1.2e-7; W. H. Press et al., Numerical Recipes,
/// section 6.2). Abramowitz and Stegun 7.1.26 is too coarse for f32.
fn erf(x: Elem) -> Elem {
    let z = abs(x);
    let t = Elem(1.0) / (Elem(1.0) + Elem(0.5) * z);
    let p = Elem(-1.26551223) + t * (Elem(1.00002368) + t * (Elem(0.37409196) + t * (Elem(0.09678418)
        + t * (Elem(-0.18628806) + t * (Elem(0.27886807) + t * (Elem(-1.13520398) + t * (Elem(1.48851587)
        + t * (Elem(-0.82215223) + t * Elem(0.17087277)))))))));
    let r = Elem(1.0) - t * exp(-z * z + p);
    // Near zero the difference `1 - erfc` cancels, so a series is used.
    let s = Elem(1.1283791671) * z * (Elem(1.0) - z * z * (Elem(0.3333333333) - z * z * (Elem(0.1) - z * z * Elem(0.0238095238))));
    let m = select(r, s, z < Elem(0.25));
    return select(m, -m, x < Elem(0.0));
}

/// GELU, `x * normal_cdf(x)`, for results that are stored as f16. The logistic form takes a third of the instructions of
/// `erf`: the polynomial of |x| is a minimax fit of `log2(normal_cdf(x) / normal_cdf(-x)) / x` from 0 to 6. The error is
/// at most 0.11 (2.4e-4 |r| + 4e-6) for a result r, a tenth of the rounding to f16.
fn gelu_half(x: Elem) -> Elem {
    let z = min(abs(x), Elem(6.0));
    let p = Elem(2.3008077) + z * (Elem(0.0078311842) + z * (Elem(0.089939356) + z * (Elem(0.012632905)
        + z * (Elem(-0.0048130038) + z * Elem(0.0003788491)))));
    return x / (Elem(1.0) + exp2(min(-x * p, Elem(120.0))));
}

/// Hyperbolic tangent without overflow.
fn tanh_safe(x: Elem) -> Elem {
    return tanh(clamp(x, Elem(-15.0), Elem(15.0)));
}

/// Sigmoid, `1 / (1 + e^-x)`, without overflow.
fn sigmoid(x: Elem) -> Elem {
    return Elem(1.0) / (Elem(1.0) + exp(-clamp(x, Elem(-87.0), Elem(87.0))));
}

/// Softplus, `ln(1 + e^x)`, without overflow.
fn softplus(x: Elem) -> Elem {
    return max(x, Elem(0.0)) + log(Elem(1.0) + exp(-abs(x)));
}

/// Power `x^y` for any sign of x. A negative x needs an integral y.
fn power(x: Elem, y: Elem) -> Elem {
    let m = pow(abs(x), y);
    let whole = floor(y);
    let odd = (whole - Elem(2.0) * floor(whole * Elem(0.5))) != Elem(0.0);
    let signed = select(m, -m, odd);
    let r = select(m, signed, x < Elem(0.0));
    return select(r, Elem(1.0), y == Elem(0.0));
}

/// Remainder of the truncated division `x / y`, with the sign of x. Returns x if y is infinite.
fn remainder(x: Elem, y: Elem) -> Elem {
    let rest = x - y * trunc(x / y);
    return select(rest, x, is_inf(y) & (abs(x) < Elem(3.4e38)));
}

/// Remainder of the floored division `x / y`, with the sign of y.
fn modulo(x: Elem, y: Elem) -> Elem {
    let rest = remainder(x, y);
    let other = (rest != Elem(0.0)) & ((rest < Elem(0.0)) != (y < Elem(0.0)));
    return select(rest, rest + y, other);
}

/// True if x is NaN. The function tests the bits, because a compiler may assume that `x != x` is false.
fn is_nan(x: Elem) -> ElemBool {
    return (bitcast<ElemBits>(x) & ElemBits(0x7fffffffu)) > ElemBits(0x7f800000u);
}

/// True if x is infinite.
fn is_inf(x: Elem) -> ElemBool {
    return (bitcast<ElemBits>(x) & ElemBits(0x7fffffffu)) == ElemBits(0x7f800000u);
}
