//! Settings of static quantization.

/// Method that selects the quantized range of a tensor from its values on the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// The smallest and the largest value.
    #[default]
    MinMax,
    /// The range without the most extreme values: 0.005% of the values at each end.
    Percentile,
    /// The range whose quantized distribution has the smallest Kullback-Leibler divergence from the distribution of the
    /// values.
    Entropy,
}

/// Integer type of quantized activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activations {
    /// 0 to 255 with a zero point.
    #[default]
    U8,
    /// -127 to 127, symmetric: the zero point is 0.
    I8,
}

/// Settings of static quantization.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Method that selects ranges of activations.
    pub method: Method,
    /// Integer type of activations.
    pub activations: Activations,
    /// Nodes that stay in float, by the name of the node or of one of its outputs.
    pub leave: Vec<String>,
}
