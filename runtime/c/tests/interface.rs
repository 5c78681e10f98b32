//! The header matches the sources, and invalid calls return errors.

#![allow(unsafe_code)]

mod common;

#[cfg(feature = "self-test")]
use drift::drift_self_test;
use drift::{
    Array, Direction, Dtype, Options, Port, Session, Stats, Status, Ticket, View, drift_array_free,
    drift_close, drift_deliver, drift_device_name, drift_device_output, drift_feed, drift_function_name,
    drift_import_fd, drift_input, drift_last_error, drift_metadata, drift_metadata_key, drift_open,
    drift_open_bytes, drift_output, drift_port, drift_read, drift_run, drift_set_symbol, drift_share_fd,
    drift_stats, drift_submit, drift_wait, drift_write,
};
use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

const MAIN: &CStr = c"main";
const SHAPE: [usize; 2] = [2, 2];
const NONE: Session = Session { id: 0 };

fn message() -> String {
    // SAFETY: the string is valid until the next failure on this thread.
    unsafe { CStr::from_ptr(drift_last_error()) }.to_str().unwrap().to_owned()
}

fn open() -> (tempfile::TempDir, Session) {
    let folder = tempfile::tempdir().unwrap();
    let path = CString::new(common::write_bundle(folder.path()).to_str().unwrap()).unwrap();
    let mut session = NONE;
    // SAFETY: a string, and memory for one session.
    let status = unsafe { drift_open(path.as_ptr(), null(), &raw mut session) };
    assert_eq!(status, Status::Ok, "{}", message());
    (folder, session)
}

fn write(session: Session, dtype: u32, shape: &[usize], values: &[f32]) -> Status {
    let (name, data, size) = (c"x".as_ptr(), values.as_ptr().cast(), size_of_val(values));
    // SAFETY: the pointers match the stated lengths.
    unsafe { drift_write(session, MAIN.as_ptr(), name, dtype, shape.as_ptr(), shape.len(), data, size) }
}

fn run(session: Session, values: [f32; 4]) -> [f32; 4] {
    assert_eq!(write(session, Dtype::F32 as u32, &SHAPE, &values), Status::Ok, "{}", message());
    let mut out = [0f32; 4];
    // SAFETY: strings, and memory for four floats.
    unsafe {
        assert_eq!(drift_run(session, MAIN.as_ptr()), Status::Ok, "{}", message());
        let status =
            drift_read(session, MAIN.as_ptr(), c"y".as_ptr(), (&raw mut out).cast(), size_of_val(&out));
        assert_eq!(status, Status::Ok, "{}", message());
    }
    out
}

#[test]
fn the_header_matches_the_sources() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A separate package, because its dependencies would change features of the workspace's dependencies.
    let built = std::env::current_exe().unwrap();
    let output = std::process::Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--locked", "--manifest-path"])
        .arg(folder.join("header/Cargo.toml"))
        .arg("--target-dir")
        .arg(built.ancestors().nth(3).unwrap().join("header"))
        .arg("--")
        .arg(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (generated, path) = (String::from_utf8(output.stdout).unwrap(), folder.join("include/drift.h"));
    if std::env::var_os("DRIFT_BLESS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(generated == committed, "include/drift.h does not match the sources; run `make bless`");
    let names = generated.matches("drift_").count();
    assert!(
        names > 30,
        "the generated header has {names} names, but more than 30 are expected:\n{generated}"
    );
}

#[test]
fn arrays_are_written_and_read_by_copy_and_in_place() {
    let (_folder, session) = open();
    assert_eq!(run(session, [0.0, 1.0, 2.0, -1.0]), [1.0, 4.0, 7.0, -2.0]);
    let mut before = Stats { pipelines: 0, allocations: 0, allocated_bytes: 0 };
    let mut after = before;
    // SAFETY: strings, and memory for all results.
    unsafe {
        assert_eq!(drift_stats(session, &raw mut before), Status::Ok);
        for round in 0u8..100 {
            let (mut memory, mut size): (*mut c_void, usize) = (null_mut(), 0);
            let (name, shape) = (c"x".as_ptr(), SHAPE.as_ptr());
            let status = drift_input(session, MAIN.as_ptr(), name, shape, 2, &raw mut memory, &raw mut size);
            assert_eq!((status, size), (Status::Ok, 16), "{}", message());
            memory.cast::<[f32; 4]>().write([f32::from(round); 4]);
            let (outputs, mut ticket) = ([c"y".as_ptr()], Ticket { id: 0 });
            let status = drift_submit(session, MAIN.as_ptr(), outputs.as_ptr(), 1, &raw mut ticket);
            assert_eq!(status, Status::Ok, "{}", message());
            assert_eq!(drift_wait(session, ticket), Status::Ok, "{}", message());
            let mut view = std::mem::zeroed::<View>();
            assert_eq!(drift_output(session, MAIN.as_ptr(), c"y".as_ptr(), &raw mut view), Status::Ok);
            assert_eq!((view.size, view.rank, view.device_dtype), (16, 2, Dtype::F32));
            assert_eq!(view.bytes.cast::<[f32; 4]>().read(), [f32::from(round) * 3.0 + 1.0; 4]);
        }
        assert_eq!(drift_stats(session, &raw mut after), Status::Ok);
        assert_eq!(
            (before.pipelines, before.allocations, before.allocated_bytes),
            (after.pipelines, after.allocations, after.allocated_bytes)
        );
    }
    assert_eq!(drift_close(session), Status::Ok);
}

#[test]
fn outputs_become_inputs_on_the_device() {
    let (_folder, session) = open();
    assert_eq!(run(session, [1.0; 4]), [4.0; 4]);
    // SAFETY: strings, and memory for all results.
    unsafe {
        let mut array = Array { id: 0 };
        let (main, x, y) = (MAIN.as_ptr(), c"x".as_ptr(), c"y".as_ptr());
        assert_eq!(drift_device_output(session, main, y, &raw mut array), Status::Ok, "{}", message());
        assert_eq!(drift_feed(session, main, x, array), Status::Ok, "{}", message());
        assert_eq!(drift_run(session, main), Status::Ok, "{}", message());
        let mut out = [0f32; 4];
        assert_eq!(drift_read(session, main, y, (&raw mut out).cast(), 16), Status::Ok, "{}", message());
        assert_eq!(out, [13.0; 4]);
        assert_eq!(drift_array_free(array), Status::Ok);
        assert_eq!(drift_feed(session, main, x, array), Status::Argument);

        let (mut shared, mut descriptor) = (Array { id: 0 }, -1);
        let dtype = Dtype::F32 as u32;
        let status = drift_share_fd(session, dtype, SHAPE.as_ptr(), 2, &raw mut shared, &raw mut descriptor);
        if status == Status::Ok {
            assert_eq!(drift_deliver(session, main, y, shared), Status::Ok, "{}", message());
            let mut imported = Array { id: 0 };
            let shape = SHAPE.as_ptr();
            let status = drift_import_fd(session, descriptor, 0, dtype, shape, 2, &raw mut imported);
            assert_eq!(status, Status::Ok, "{}", message());
            assert_eq!(drift_feed(session, main, x, imported), Status::Ok, "{}", message());
            assert_eq!(drift_run(session, main), Status::Ok, "{}", message());
            assert_eq!(drift_read(session, main, y, (&raw mut out).cast(), 16), Status::Ok);
            assert_eq!(out, [40.0; 4]);
        } else {
            assert!(message().contains("VK_KHR_external_memory_fd"), "{}", message());
        }
        assert_eq!(
            drift_import_fd(session, -1, 0, dtype, SHAPE.as_ptr(), 2, &raw mut shared),
            Status::Argument
        );
    }
    drift_close(session);
}

#[test]
fn metadata_is_read_by_index_and_by_key() {
    let (_folder, session) = open();
    let string = |pointer: *const std::ffi::c_char| {
        // SAFETY: null, or a string that is valid until the session is closed.
        (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_str().unwrap().to_owned())
    };
    let keys: Vec<String> = (0..).map_while(|index| string(drift_metadata_key(session, index))).collect();
    assert_eq!(keys, ["labels", "zeta"]);
    // SAFETY: strings or null.
    unsafe {
        assert_eq!(string(drift_metadata(session, c"labels".as_ptr())).as_deref(), Some("cat\ndog"));
        assert_eq!(string(drift_metadata(session, c"zeta".as_ptr())).as_deref(), Some("ζ"));
        assert!(drift_metadata(session, c"other".as_ptr()).is_null());
        assert!(drift_metadata(session, null()).is_null());
        drift_close(session);
        assert!(drift_metadata(session, c"labels".as_ptr()).is_null());
    }
    assert!(drift_metadata_key(session, 0).is_null());
}

#[test]
fn loading_reports_its_progress() {
    unsafe extern "C" fn progress(pipelines: u32, total: u32, user: *mut c_void) {
        // SAFETY: the pointer that the options have.
        let calls = unsafe { &*user.cast::<Mutex<Vec<(u32, u32)>>>() };
        calls.lock().unwrap().push((pipelines, total));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = CString::new(common::write_bundle(folder.path()).to_str().unwrap()).unwrap();
    let calls: Mutex<Vec<(u32, u32)>> = Mutex::default();
    let (mut session, mut stats) = (NONE, Stats { pipelines: 0, allocations: 0, allocated_bytes: 0 });
    // SAFETY: options with a callback, whose pointer outlives the call; a string; memory for a session and for numbers.
    unsafe {
        let mut options = std::mem::zeroed::<Options>();
        options.progress = Some(progress);
        options.progress_user = (&raw const calls).cast_mut().cast();
        assert_eq!(drift_open(path.as_ptr(), &raw const options, &raw mut session), Status::Ok);
        assert_eq!(drift_stats(session, &raw mut stats), Status::Ok);
    }
    let total = stats.pipelines;
    assert!(total > 0);
    assert_eq!(*calls.lock().unwrap(), (0..=total).map(|created| (created, total)).collect::<Vec<_>>());
    drift_close(session);
}

#[test]
#[cfg(feature = "self-test")]
fn a_bundle_without_vectors_passes_the_self_test() {
    let (_folder, session) = open();
    let mut vectors = 9;
    // SAFETY: memory for a number, or null, which is an error.
    unsafe {
        assert_eq!(drift_self_test(session, &raw mut vectors), Status::Ok);
        assert_eq!(drift_self_test(session, std::ptr::null_mut()), Status::Argument);
    }
    assert_eq!(vectors, 0);
    drift_close(session);
    // SAFETY: as above.
    assert_eq!(unsafe { drift_self_test(session, &raw mut vectors) }, Status::Argument);
}

#[test]
#[cfg(feature = "signatures")]
fn untrusted_bundles_are_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = CString::new(common::write_bundle(folder.path()).to_str().unwrap()).unwrap();
    let key = c"RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3".as_ptr();
    let keys = [key, c"RWQf6LRC".as_ptr()];
    let open = |keys: *const *const std::ffi::c_char, count: usize| {
        let mut session = NONE;
        // SAFETY: options with `count` keys or null, a string, and memory for a session.
        unsafe {
            let mut options = std::mem::zeroed::<Options>();
            (options.trusted_keys, options.trusted_key_count) = (keys, count);
            let status = drift_open(path.as_ptr(), &raw const options, &raw mut session);
            drift_close(session);
            status
        }
    };
    assert_eq!(open(std::ptr::null(), 0), Status::Ok);
    assert_eq!(open(keys.as_ptr(), 1), Status::Untrusted);
    assert!(message().contains("it is not signed, but trusted keys are: E7620F1842B4E81F"), "{}", message());
    assert_eq!(open(keys.as_ptr(), 0), Status::Untrusted);
    assert_eq!(open(keys.as_ptr(), 2), Status::Argument);
    assert!(message().contains("trusted key 2"), "{}", message());
    assert_eq!(open(std::ptr::null(), 1), Status::Argument);
}

#[test]
fn invalid_calls_return_a_status_and_a_message() {
    let (_folder, session) = open();
    let main = MAIN.as_ptr();
    let dtype = Dtype::F32 as u32;
    // SAFETY: pointers are null, or lead to strings or memory.
    unsafe {
        let mut port = std::mem::zeroed::<Port>();
        let input = Direction::Input as u32;
        assert_eq!(drift_port(session, main, input, 0, &raw mut port), Status::Ok);
        assert_eq!(CStr::from_ptr(port.name), c"x");
        assert_eq!((port.rank, port.min_shape[..2].to_vec()), (2, SHAPE.to_vec()));
        assert_eq!(drift_port(session, main, input, 1, &raw mut port), Status::Request);
        assert_eq!(drift_port(session, main, 2, 0, &raw mut port), Status::Argument);
        assert_eq!(drift_port(session, main, input, 0, null_mut()), Status::Argument);
        assert_eq!(drift_port(session, c"other".as_ptr(), input, 0, &raw mut port), Status::Request);
        assert!(message().contains("`main`"), "{}", message());

        assert_eq!(write(session, 99, &SHAPE, &[0.0; 4]), Status::Argument);
        assert_eq!(write(session, Dtype::F64 as u32, &SHAPE, &[0.0; 4]), Status::Request);
        assert_eq!(write(session, dtype, &[2, 3], &[0.0; 6]), Status::Request);
        assert!(message().contains("[2, 3]"), "{}", message());
        assert_eq!(write(session, dtype, &SHAPE, &[0.0; 3]), Status::Request);
        assert_eq!(write(NONE, dtype, &SHAPE, &[0.0; 4]), Status::Argument);
        let huge = usize::MAX;
        let x = c"x".as_ptr();
        let status = drift_write(session, main, x, dtype, SHAPE.as_ptr(), huge, null(), 0);
        assert_eq!(status, Status::Argument);
        assert_eq!(drift_write(session, main, null(), dtype, SHAPE.as_ptr(), 2, null(), 4), Status::Argument);
        assert_eq!(drift_run(session, main), Status::Request);
        assert!(message().contains("`x`"), "{}", message());
        let mut view = std::mem::zeroed::<View>();
        assert_eq!(drift_output(session, main, c"y".as_ptr(), &raw mut view), Status::Request);
        assert_eq!(drift_set_symbol(session, main, c"n".as_ptr(), 3), Status::Request);
        assert_eq!(drift_wait(session, Ticket { id: 7 }), Status::Request);
        assert_eq!(drift_run(session, null()), Status::Argument);
        assert_eq!(drift_run(session, c"\xff".as_ptr()), Status::Argument);

        let mut other = NONE;
        assert_eq!(drift_open(null(), null(), &raw mut other), Status::Argument);
        assert_eq!(drift_open(c"/nowhere/at/all".as_ptr(), null(), &raw mut other), Status::Io);
        assert_eq!(drift_open_bytes(b"nothing".as_ptr().cast(), 7, null(), &raw mut other), Status::Bundle);
        let bundle = std::fs::read(_folder.path().join("small.drift")).unwrap();
        let mut options = std::mem::zeroed::<Options>();
        options.device = c"no such device".as_ptr();
        let (data, size) = (bundle.as_ptr().cast(), bundle.len());
        assert_eq!(drift_open_bytes(data, size, &raw const options, &raw mut other), Status::Device);
        options.device = null();
        options.frames = 65;
        assert_eq!(drift_open_bytes(data, size, &raw const options, &raw mut other), Status::Argument);
        options.frames = 2;
        assert_eq!(drift_open_bytes(data, size, &raw const options, null_mut()), Status::Argument);
        let status = drift_open_bytes(data, size, &raw const options, &raw mut other);
        assert_eq!(status, Status::Ok, "{}", message());
        assert_eq!(run(other, [1.0; 4]), [4.0; 4]);

        assert_eq!(drift_close(session), Status::Ok);
        assert_eq!(drift_close(session), Status::Ok);
        assert_eq!(drift_run(session, main), Status::Argument);
        assert!(message().contains("closed"), "{}", message());
        assert!(drift_device_name(session).is_null() && drift_function_name(session, 0).is_null());
        assert!(drift_function_name(other, 1).is_null() && !drift_device_name(other).is_null());
        drift_close(other);
    }
}

#[test]
fn sessions_run_on_separate_threads_and_a_busy_session_refuses_calls() {
    let (_folder, shared) = open();
    std::thread::scope(|scope| {
        for number in 0u8..3 {
            scope.spawn(move || {
                let (_folder, session) = open();
                let value = f32::from(number);
                for _ in 0..50 {
                    assert_eq!(run(session, [value; 4]), [value * 3.0 + 1.0; 4]);
                }
                drift_close(session);
            });
        }
        for _ in 0..2 {
            scope.spawn(move || {
                for _ in 0..200 {
                    let wrote = write(shared, Dtype::F32 as u32, &SHAPE, &[2.0; 4]);
                    // SAFETY: a string.
                    let ran = unsafe { drift_run(shared, MAIN.as_ptr()) };
                    for status in [wrote, ran] {
                        let fine = matches!(status, Status::Ok | Status::Busy | Status::Request);
                        assert!(fine, "{status:?}: {}", message());
                    }
                }
            });
        }
    });
    assert_eq!(run(shared, [2.0; 4]), [7.0; 4]);
    drift_close(shared);
}
