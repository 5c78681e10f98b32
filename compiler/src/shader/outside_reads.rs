//! Values that a shader expects from reads outside the edges of a texture.

/// Values that a shader expects from reads outside the edges of a texture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutsideReads {
    /// The shader does not use values from reads outside of a texture.
    Unused,
    /// The shader expects zeros in the first three channels.
    ZeroRgb,
    /// The shader expects zeros in all four channels.
    Zero,
}
