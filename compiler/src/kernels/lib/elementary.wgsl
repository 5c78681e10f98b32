// Element functions that WGSL lacks. Pure; `V` is a scalar or a vector of f32 and `B` the bool of the same width.
alias V = vec4<f32>;
alias U = vec4<u32>;
alias B = vec4<bool>;

/// Error function: Abramowitz and Stegun 7.1.26 is too coarse for f32, so a Chebyshev fit of erfc is used
/// (relative error below 1.2e-7 everywhere; W. H. Press et al., Numerical Recipes, section 6.2).
fn erf(x: V) -> V {
    let z = abs(x);
    let t = V(1.0) / (V(1.0) + V(0.5) * z);
    let p = V(-1.26551223) + t * (V(1.00002368) + t * (V(0.37409196) + t * (V(0.09678418)
        + t * (V(-0.18628806) + t * (V(0.27886807) + t * (V(-1.13520398) + t * (V(1.48851587)
        + t * (V(-0.82215223) + t * V(0.17087277)))))))));
    let r = V(1.0) - t * exp(-z * z + p);
    // Near zero the difference above cancels; the series does not.
    let s = V(1.1283791671) * z * (V(1.0) - z * z * (V(0.3333333333) - z * z * (V(0.1) - z * z * V(0.0238095238))));
    let m = select(r, s, z < V(0.25));
    return select(m, -m, x < V(0.0));
}

/// tanh without overflow.
fn tanh_safe(x: V) -> V {
    return tanh(clamp(x, V(-15.0), V(15.0)));
}

/// 1 / (1 + e^-x) without overflow.
fn sigmoid(x: V) -> V {
    return V(1.0) / (V(1.0) + exp(-clamp(x, V(-87.0), V(87.0))));
}

/// ln(1 + e^x) without overflow.
fn softplus(x: V) -> V {
    return max(x, V(0.0)) + log(V(1.0) + exp(-abs(x)));
}

/// x^y for any sign of x; a negative x needs an integral y.
fn power(x: V, y: V) -> V {
    let m = pow(abs(x), y);
    let whole = floor(y);
    let odd = (whole - V(2.0) * floor(whole * V(0.5))) != V(0.0);
    let signed = select(m, -m, odd);
    let r = select(m, signed, x < V(0.0));
    return select(r, V(1.0), y == V(0.0));
}

/// Whether x is not a number, by its bits, since a compiler may take `x != x` for false.
fn is_nan(x: V) -> B {
    return (bitcast<U>(x) & U(0x7fffffffu)) > U(0x7f800000u);
}

/// Whether x is infinite.
fn is_inf(x: V) -> B {
    return (bitcast<U>(x) & U(0x7fffffffu)) == U(0x7f800000u);
}
