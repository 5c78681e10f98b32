//! Generation through C with a model that always predicts the next higher token: texts, callbacks, invalid arguments.

#![allow(unsafe_code)]

use drift::{
    Ended, Generated, Generator, Request, Session, Status, Time, drift_generate, drift_generator_close,
    drift_generator_open, drift_generator_sizes, drift_last_error, drift_open, drift_reset_states,
    drift_run_timed, drift_set_text, drift_text,
};
use driftc::compile::{EntryPoint, Model, Options, compile};
use driftc::ir::graph_text;
use driftc::target::TargetProfile;
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

/// Graph of the test model's function `decode`. It looks up the logits of token i in row i of a table. The largest logit of
/// row i is at i + 1; the largest logit of the last row is at 0.
const DECODE: &str = r#"
symbol past 0..15
%0 = input {"name":"ids","dtype":"i32","shape":[1,1]}
%1 = constant {"dtype":"f32","shape":[4,4],"values":[0,9,1,2,0,1,9,2,0,1,2,9,9,1,2,0]}
%2 = gather %1 %0 {"axis":0} "row"
%3 = reshape %2 {"shape":[1,4]} "logits"
%4 = arg-reduce %3 {"axis":1,"largest":true,"last":false,"keepdims":false} "largest"
%5 = cast %4 {"to":"i32"} "next"
output "logits" %3
output "next" %5
"#;

fn message() -> String {
    // SAFETY: the string is valid until the next failure on this thread.
    unsafe { CStr::from_ptr(drift_last_error()) }.to_str().unwrap().to_owned()
}

fn bundle(folder: &Path) -> CString {
    let name = std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".to_owned());
    let target = TargetProfile::load(&name).unwrap();
    let path = folder.join("next.drift");
    let entry_points = vec![EntryPoint::new("decode", graph_text::parse(DECODE).unwrap())];
    let model = Model { entry_points, ..Model::default() };
    let options = Options { finish: Some(drift_spirv_tools::validate), ..Options::default() };
    compile(&model, &[target], &options, &path).unwrap();
    CString::new(path.to_str().unwrap()).unwrap()
}

fn request(max_tokens: usize) -> Request {
    // SAFETY: all zeros are a valid request.
    Request { max_tokens, ..unsafe { std::mem::zeroed() } }
}

/// Callback that keeps the generated tokens, and ends the generation after three tokens.
unsafe extern "C" fn keep(token: u32, user: *mut c_void) -> c_int {
    // SAFETY: the tests pass a vector as `user`.
    let tokens = unsafe { &mut *user.cast::<Vec<u32>>() };
    tokens.push(token);
    c_int::from(tokens.len() < 3)
}

#[test]
fn tokens_reach_the_callback_and_extend_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path());
    let mut generator = Generator { id: 0 };
    let mut tokens: Vec<u32> = Vec::new();
    let user = (&raw mut tokens).cast();
    // SAFETY: strings, and memory for the stated number of elements.
    unsafe {
        let status = drift_generator_open(path.as_ptr(), null(), &raw mut generator);
        assert_eq!(status, Status::Ok, "{}", message());
        let (mut vocabulary, mut context) = (0, 0);
        assert_eq!(drift_generator_sizes(generator, &raw mut vocabulary, &raw mut context), Status::Ok);
        assert_eq!((vocabulary, context), (4, 16));
        let mut made = std::mem::zeroed::<Generated>();
        let asked = request(8);
        assert_eq!(
            drift_generate(generator, &raw const asked, None, null_mut(), null_mut()),
            Status::Request
        );
        let (ids, mut kept) = ([2u32, 3], 7);
        assert_eq!(drift_set_text(generator, ids.as_ptr(), 2, &raw mut kept), Status::Ok, "{}", message());
        assert_eq!(kept, 0);
        let status = drift_generate(generator, &raw const asked, Some(keep), user, &raw mut made);
        assert_eq!(status, Status::Ok, "{}", message());
        assert_eq!((tokens.as_slice(), made.tokens, made.ended), (&[0u32, 1, 2][..], 3, Ended::Caller));
        let (mut text, mut count) = ([9u32; 4], 0);
        assert_eq!(drift_text(generator, text.as_mut_ptr(), 4, &raw mut count), Status::Ok);
        assert_eq!((text, count), ([2, 3, 0, 1], 5));
        let stops = [1u32];
        let asked = Request { stops: stops.as_ptr(), stop_count: 1, ..request(8) };
        assert_eq!(drift_generate(generator, &raw const asked, None, null_mut(), &raw mut made), Status::Ok);
        assert_eq!((made.ended, made.stop, made.tokens), (Ended::Stop, 1, 3));

        let status = drift_set_text(generator, [4u32].as_ptr(), 1, null_mut());
        assert_eq!(status, Status::Request);
        let asked = Request { top_p: 2.0, temperature: 1.0, ..request(1) };
        assert_eq!(
            drift_generate(generator, &raw const asked, None, null_mut(), null_mut()),
            Status::Request
        );
        assert!(message().contains("top_p"), "{}", message());
        assert_eq!(drift_generate(generator, null(), None, null_mut(), null_mut()), Status::Argument);
        assert_eq!(drift_generator_close(generator), Status::Ok);
        assert_eq!(drift_generator_close(generator), Status::Ok);
        assert_eq!(drift_generator_sizes(generator, null_mut(), null_mut()), Status::Argument);
    }
}

#[test]
fn dispatches_are_timed() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path());
    let mut session = Session { id: 0 };
    let ids = 1i32;
    // SAFETY: strings, and memory for the stated number of elements.
    unsafe {
        assert_eq!(drift_open(path.as_ptr(), null(), &raw mut session), Status::Ok, "{}", message());
        assert_eq!(drift_reset_states(session), Status::Ok, "{}", message());
        let (decode, shape, data) = (c"decode".as_ptr(), [1usize, 1], (&raw const ids).cast());
        let dtype = drift::Dtype::I32 as u32;
        let status = drift::drift_write(session, decode, c"ids".as_ptr(), dtype, shape.as_ptr(), 2, data, 4);
        assert_eq!(status, Status::Ok, "{}", message());
        assert_eq!(drift::drift_set_symbol(session, decode, c"past".as_ptr(), 0), Status::Ok);
        let mut times = [Time { label: null(), start_ns: -1.0, end_ns: -1.0 }; 16];
        let mut count = 0;
        let status = drift_run_timed(session, decode, times.as_mut_ptr(), times.len(), &raw mut count);
        if status == Status::Device {
            // The device has no timestamps.
            assert!(message().contains("timestamps"), "{}", message());
        } else {
            assert_eq!(status, Status::Ok, "{}", message());
            assert!(count > 0 && count <= times.len());
            for time in &times[..count] {
                assert!(time.end_ns >= time.start_ns && time.start_ns >= 0.0);
                assert!(!CStr::from_ptr(time.label).is_empty());
            }
            assert!(times[count..].iter().all(|time| time.label.is_null()));
        }
        drift::drift_close(session);
    }
}
