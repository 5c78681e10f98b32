//! What the tests share.

pub mod compare;
pub mod device;
pub mod stored;
