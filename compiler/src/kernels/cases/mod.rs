//! Test cases of kernels: graphs in text form, by operator. Their sizes are not multiples of tile sizes. Tests and
//! benches use this list.
//!
//! A case belongs to no kernel. Every kernel that has a candidate for a case computes that case.

/// Test cases of an operator, or of several similar operators.
#[derive(Debug)]
pub struct Cases {
    /// Name of the file that holds the test cases, without extension.
    pub operator: &'static str,
    text: &'static str,
}

impl Cases {
    /// Iterates over the graphs of the test cases. Empty lines separate them in the file.
    pub fn graphs(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        self.text.split("\n\n")
    }
}

/// Test cases of all operators that kernels compute.
pub const CASES: &[Cases] = &[
    Cases { operator: "add_norms", text: include_str!("add_norms.txt") },
    Cases { operator: "arg_reduce", text: include_str!("arg_reduce.txt") },
    Cases { operator: "attention", text: include_str!("attention.txt") },
    Cases { operator: "concat", text: include_str!("concat.txt") },
    Cases { operator: "conv", text: include_str!("conv.txt") },
    Cases { operator: "conv_transpose", text: include_str!("conv_transpose.txt") },
    Cases { operator: "cum_sum", text: include_str!("cum_sum.txt") },
    Cases { operator: "fill", text: include_str!("fill.txt") },
    Cases { operator: "gather", text: include_str!("gather.txt") },
    Cases { operator: "gather_matmul", text: include_str!("gather_matmul.txt") },
    Cases { operator: "grid_sample", text: include_str!("grid_sample.txt") },
    Cases { operator: "map", text: include_str!("map.txt") },
    Cases { operator: "matmul", text: include_str!("matmul.txt") },
    Cases { operator: "normalize", text: include_str!("normalize.txt") },
    Cases { operator: "norms_of_sums", text: include_str!("norms_of_sums.txt") },
    Cases { operator: "pad", text: include_str!("pad.txt") },
    Cases { operator: "pool", text: include_str!("pool.txt") },
    Cases { operator: "quantize_rows", text: include_str!("quantize_rows.txt") },
    Cases { operator: "quantized_rows_matmul", text: include_str!("quantized_rows_matmul.txt") },
    Cases { operator: "recurrent", text: include_str!("recurrent.txt") },
    Cases { operator: "reduce", text: include_str!("reduce.txt") },
    Cases { operator: "resize", text: include_str!("resize.txt") },
    Cases { operator: "scatter", text: include_str!("scatter.txt") },
    Cases { operator: "separable_conv", text: include_str!("separable_conv.txt") },
    Cases { operator: "softmax", text: include_str!("softmax.txt") },
    Cases { operator: "top_k", text: include_str!("top_k.txt") },
    Cases { operator: "winograd", text: include_str!("winograd.txt") },
];
