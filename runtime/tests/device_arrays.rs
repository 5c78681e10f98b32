//! Tests of arrays without host copies: access to transfer memory, outputs used as inputs, and external memory.

mod common;

use common::small_bundle;
use drift_runtime::format::DeviceType;
use drift_runtime::{Array, Bundle, Error, Options, Session};

fn bundle() -> Bundle {
    Bundle::from_vec(small_bundle()).unwrap()
}

fn options(frames: usize, always_stage: bool) -> Options {
    Options { frames, always_stage, ..Options::default() }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn fill(session: &mut Session, values: [f32; 4]) {
    session.input_mut("main", "x", &[4]).unwrap().copy_from_slice(&values.map(f32::to_le_bytes).concat());
}

const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
/// Output of function `main` for the input `X`: the weights are added twice.
const Y: [f32; 4] = [21.0, 42.0, 63.0, 84.0];
/// Output of function `main` for the input `Y`.
const Z: [f32; 4] = [41.0, 82.0, 123.0, 164.0];

#[test]
fn transfer_memory_is_accessed_directly() {
    for (frames, staged) in [(1, false), (1, true), (3, false), (3, true)] {
        let mut session = Session::from_bundle(bundle(), &options(frames, staged)).unwrap();
        let before = session.stats();
        for _ in 0..4 {
            fill(&mut session, X);
            session.replay("main").unwrap();
            let view = session.output("main", "y").unwrap();
            assert_eq!((view.dtype, view.shape.as_slice()), (DeviceType::F32, [2, 2].as_slice()));
            assert_eq!(floats(view.bytes), Y);
            // The input stays for later runs, in every frame.
            let ticket = session.submit("main", &["y"]).unwrap();
            assert!(matches!(session.output_of(ticket, "y"), Err(Error::NotRun(_))));
            session.wait(ticket).unwrap();
            assert_eq!(floats(session.output_of(ticket, "y").unwrap().bytes), Y);
        }
        let after = session.stats();
        assert_eq!((after.pipelines, after.allocations), (before.pipelines, before.allocations));
        let error = session.input_mut("main", "x", &[5]).unwrap_err();
        assert!(matches!(error, Error::WrongShape { .. }), "{error}");
        let error = session.input_mut("scale", "ids", &[1, 101]).unwrap_err();
        assert!(matches!(error, Error::OutOfBounds { .. }), "{error}");
        assert!(matches!(session.input_mut("main", "z", &[4]), Err(Error::NoSuchName { .. })));
        assert_eq!(session.input_mut("scale", "ids", &[1, 7]).unwrap().len(), 28);
    }
}

#[test]
fn outputs_become_inputs_on_the_device() {
    // The output of `main` is 2 x 2 and its input has 4 elements, so `sum` is used.
    for staged in [false, true] {
        let mut session = Session::from_bundle(bundle(), &options(2, staged)).unwrap();
        let x =
            Array { dtype: drift_runtime::format::HostType::F16, shape: vec![4], bytes: [0, 0x3c].repeat(4) };
        session.write_input("sum", "x", x.as_ref()).unwrap();
        let mut total = 1.0;
        session.replay_on_device("sum").unwrap();
        for _ in 0..5 {
            let output = session.device_output("sum", "total").unwrap();
            session.feed("sum", "x", &output).unwrap();
            let ticket = session.submit("sum", &["total"]).unwrap();
            total *= 2.0;
            session.wait(ticket).unwrap();
            assert_eq!(floats(session.output_of(ticket, "total").unwrap().bytes), [total; 4]);
        }
        // A host array replaces the device array once it is written.
        session.write_input("sum", "x", x.as_ref()).unwrap();
        session.replay("sum").unwrap();
        assert_eq!(session.read_output("sum", "total").unwrap().to_f64(), [f64::from(total) + 1.0; 4]);
    }
}

#[test]
fn sessions_on_one_device_exchange_arrays() {
    for staged in [false, true] {
        let mut sessions = Session::load_together(vec![bundle(), bundle()], &options(2, staged)).unwrap();
        let [first, second] = sessions.as_mut_slice() else { panic!("two sessions") };
        let before = second.stats();
        for round in 1u8..4 {
            let value = f32::from(round);
            fill(first, [value; 4]);
            let ticket = first.submit("main", &[]).unwrap();
            let output = first.device_output_of(ticket, "y").unwrap();
            assert_eq!((output.dtype(), output.shape()), (DeviceType::F32, [2, 2].as_slice()));
            let error = second.feed("main", "x", &output).unwrap_err();
            assert!(matches!(error, Error::WrongShape { .. }), "{error}");
            // No call waits for the first run.
            let error = second.feed("scale", "ids", &output).unwrap_err();
            assert!(matches!(error, Error::WrongDeviceType { .. }), "{error}");
            fill(second, X);
            second.replay("main").unwrap();
            assert_eq!(floats(second.output("main", "y").unwrap().bytes), Y);
        }
        let after = second.stats();
        assert_eq!((after.pipelines, after.allocations), (before.pipelines, before.allocations));
        // The array outlives its session.
        let x = first.smallest_input("sum", "x").unwrap();
        first.run("sum", &[("x", x.as_ref())]).unwrap();
        let kept = first.device_output("sum", "total").unwrap();
        second.feed("sum", "x", &kept).unwrap();
        drop(sessions.remove(0));
        sessions[0].replay("sum").unwrap();
        assert_eq!(sessions[0].read_output("sum", "total").unwrap().to_f64(), [0.0; 4]);
    }
}

#[test]
fn arrays_of_another_device_are_rejected() {
    let mut first = Session::from_bundle(bundle(), &Options::default()).unwrap();
    let mut second = Session::from_bundle(bundle(), &Options::default()).unwrap();
    let x = first.smallest_input("sum", "x").unwrap();
    first.run("sum", &[("x", x.as_ref())]).unwrap();
    let array = first.device_output("sum", "total").unwrap();
    assert!(matches!(second.feed("sum", "x", &array), Err(Error::OtherDevice { .. })));
    assert!(matches!(first.device_output("main", "y"), Err(Error::NotRun(_))));
}

#[cfg(unix)]
#[test]
fn memory_is_exported_and_imported() {
    let mut first = Session::from_bundle(bundle(), &Options::default()).unwrap();
    let mut second = Session::from_bundle(bundle(), &Options::default()).unwrap();
    let (exported, descriptor) = match first.export_memory(DeviceType::F32, &[2, 2]) {
        Ok(memory) => memory,
        // Not every driver supports it.
        Err(error) => return assert!(error.to_string().contains("VK_KHR_external_memory_fd"), "{error}"),
    };
    let imported = second.import_memory(descriptor, None, DeviceType::F32, &[4]).unwrap();
    fill(&mut first, X);
    first.replay_on_device("main").unwrap();
    first.copy_output("main", "y", &exported).unwrap();
    second.feed("main", "x", &imported).unwrap();
    second.replay("main").unwrap();
    assert_eq!(floats(second.output("main", "y").unwrap().bytes), Z);
    assert!(matches!(first.copy_output("main", "y", &imported), Err(Error::OtherDevice { .. })));
    assert!(matches!(first.export_memory(DeviceType::F32, &[0]), Err(Error::TooLarge { .. })));
    assert!(matches!(first.export_memory(DeviceType::F32, &[usize::MAX, 4]), Err(Error::TooLarge { .. })));
}
