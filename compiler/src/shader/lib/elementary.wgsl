// Element functions that WGSL lacks. Pure; `Elem` is a scalar or a vector of f32, and `ElemBits` and `ElemBool` are as wide.
alias Elem = vec4<f32>;
alias ElemBits = vec4<u32>;
alias ElemBool = vec4<bool>;

/// Error function: Abramowitz and Stegun 7.1.26 is too coarse for f32, so a Chebyshev fit of erfc is used
/// (relative error below 1.2e-7 everywhere; W. H. Press et al., Numerical Recipes, section 6.2).
fn erf(x: Elem) -> Elem {
    let z = abs(x);
    let t = Elem(1.0) / (Elem(1.0) + Elem(0.5) * z);
    let p = Elem(-1.26551223) + t * (Elem(1.00002368) + t * (Elem(0.37409196) + t * (Elem(0.09678418)
        + t * (Elem(-0.18628806) + t * (Elem(0.27886807) + t * (Elem(-1.13520398) + t * (Elem(1.48851587)
        + t * (Elem(-0.82215223) + t * Elem(0.17087277)))))))));
    let r = Elem(1.0) - t * exp(-z * z + p);
    // Near zero the difference above cancels; the series does not.
    let s = Elem(1.1283791671) * z * (Elem(1.0) - z * z * (Elem(0.3333333333) - z * z * (Elem(0.1) - z * z * Elem(0.0238095238))));
    let m = select(r, s, z < Elem(0.25));
    return select(m, -m, x < Elem(0.0));
}

/// tanh without overflow.
fn tanh_safe(x: Elem) -> Elem {
    return tanh(clamp(x, Elem(-15.0), Elem(15.0)));
}

/// 1 / (1 + e^-x) without overflow.
fn sigmoid(x: Elem) -> Elem {
    return Elem(1.0) / (Elem(1.0) + exp(-clamp(x, Elem(-87.0), Elem(87.0))));
}

/// ln(1 + e^x) without overflow.
fn softplus(x: Elem) -> Elem {
    return max(x, Elem(0.0)) + log(Elem(1.0) + exp(-abs(x)));
}

/// x^y for any sign of x; a negative x needs an integral y.
fn power(x: Elem, y: Elem) -> Elem {
    let m = pow(abs(x), y);
    let whole = floor(y);
    let odd = (whole - Elem(2.0) * floor(whole * Elem(0.5))) != Elem(0.0);
    let signed = select(m, -m, odd);
    let r = select(m, signed, x < Elem(0.0));
    return select(r, Elem(1.0), y == Elem(0.0));
}

/// The remainder of a division that truncates, with the sign of x; x itself where y is infinite.
fn remainder(x: Elem, y: Elem) -> Elem {
    let rest = x - y * trunc(x / y);
    return select(rest, x, is_inf(y) & (abs(x) < Elem(3.4e38)));
}

/// The remainder of a division that rounds down, with the sign of y.
fn modulo(x: Elem, y: Elem) -> Elem {
    let rest = remainder(x, y);
    let other = (rest != Elem(0.0)) & ((rest < Elem(0.0)) != (y < Elem(0.0)));
    return select(rest, rest + y, other);
}

/// Whether x is not a number, by its bits, since a compiler may take `x != x` for false.
fn is_nan(x: Elem) -> ElemBool {
    return (bitcast<ElemBits>(x) & ElemBits(0x7fffffffu)) > ElemBits(0x7f800000u);
}

/// Whether x is infinite.
fn is_inf(x: Elem) -> ElemBool {
    return (bitcast<ElemBits>(x) & ElemBits(0x7fffffffu)) == ElemBits(0x7f800000u);
}
