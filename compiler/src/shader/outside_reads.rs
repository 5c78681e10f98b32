//! Values that a shader expects from reads outside of textures.

/// Values that a shader expects from reads outside of a texture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutsideReads {
    /// Any values: the shader does not use them.
    Unused,
    /// Zeros in the first three channels.
    ZeroRgb,
    /// Zeros in all channels.
    Zero,
}
