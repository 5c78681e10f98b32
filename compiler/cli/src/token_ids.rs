//! Token ids in `.npy` files.

use std::path::Path;

use drift_runtime::Array;
use drift_runtime::format::HostType;

use crate::failure::{Failure, Result};
use crate::npy;

/// Reads token ids from a `.npy` file: integers of shape `[n]` or `[1, n]`.
pub(crate) fn read_token_ids(path: &Path) -> Result<Vec<u32>> {
    let array = npy::read(path)?;
    let wrong = |reason: String| {
        Failure::input(format!("{} holds no token ids: {reason}", path.display()))
            .help("save integers along one axis, for example numpy.array([1, 15043, 3186])")
    };
    if !matches!(array.shape.as_slice(), [_] | [1, _]) {
        return Err(wrong(format!("its shape is {:?}", array.shape)));
    }
    let is_integer = !matches!(
        array.dtype,
        HostType::F16 | HostType::Bf16 | HostType::F32 | HostType::F64 | HostType::Bool
    );
    if !is_integer {
        return Err(wrong(format!("its type is {}", array.dtype.name())));
    }
    let id = |value: f64| match value >= 0.0 && value <= f64::from(u32::MAX) {
        true => Ok(value as u32),
        false => Err(wrong(format!("{value} is not a token id"))),
    };
    array.to_f64().into_iter().map(id).collect()
}

/// Writes token ids to a `.npy` file, as an array with one axis.
pub(crate) fn write_token_ids(path: &Path, ids: &[u32]) -> Result<()> {
    let values: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
    npy::write(path, &Array::from_i64(&[values.len()], &values))
}
