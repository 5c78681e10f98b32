//! Self-tests of bundles on the device.

use crate::errors::call;
use crate::handles;
use crate::pointers::{check, put};
use crate::types::{Session, Status};

/// Runs the bundle's self-test vectors and compares the outputs with the outputs of the CPU reference. `vectors` receives
/// their number: 0 if the bundle has none. Returns `DRIFT_STATUS_DEVICE` if an output differs; the message names the output.
/// All states are zero afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_self_test(session: Session, vectors: *mut usize) -> Status {
    call(|| {
        check("vectors", vectors, 1)?;
        let opened = handles::session(session.id)?;
        let count = opened.state()?.session.self_test()?;
        // SAFETY: C passes memory for a number.
        unsafe { put("vectors", vectors, count) }
    })
}
