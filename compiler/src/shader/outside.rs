//! What a shader counts on where it reads outside of textures.

/// What a shader counts on where it reads outside of a texture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outside {
    /// Nothing: it does not.
    Nothing,
    /// Zeros in the first three channels.
    ThreeZeros,
    /// Zeros.
    Zeros,
}
