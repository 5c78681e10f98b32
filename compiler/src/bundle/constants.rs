//! Chunks of a bundle: packs constants and writes them.

use std::io::{Read, Write};

use drift_format::codec::BundleWriter;

use super::convert::format_error;
use super::stream;
use crate::error::{Error, OpError, Result};
use crate::shader::pack::{Identity, Packed};

/// Identity of a packed constant, and the byte size of its chunk in the bundle.
pub(super) type Key = (Identity, u64);

/// Error that kept the weights from being written to the bundle.
struct Refused(Error);

impl From<OpError> for Refused {
    fn from(e: OpError) -> Self {
        Self(Error::internal("pack", e.0))
    }
}

/// Packs constants and writes them as chunks of the bundle. Returns the indices of the chunks.
pub(super) fn write_constants(writer: &mut BundleWriter, constants: &[(&Packed, &Key)]) -> Result<Vec<u32>> {
    let packed = constants.iter().map(|(packed, _)| *packed);
    let written = stream::stream(packed, |portions| write(writer, constants, portions));
    written.map(|(chunks, _)| chunks).map_err(|e: Refused| e.0)
}

/// Writes constants as chunks of the bundle, each padded to the byte size in its key. Returns the indices of the
/// chunks.
fn write(
    writer: &mut BundleWriter,
    constants: &[(&Packed, &Key)],
    portions: &stream::Portions,
) -> std::result::Result<Vec<u32>, Refused> {
    let each = constants.iter().map(|(packed, (_, bytes))| {
        let fill = |out: &mut dyn Write| {
            portions.write(out)?;
            let padding = bytes.saturating_sub(packed.bytes());
            std::io::copy(&mut std::io::repeat(0).take(padding), out).map(|_| ())
        };
        writer.chunk(fill).map_err(|e| Refused(format_error(e)))
    });
    each.collect()
}
