//! Tests of runs in flight, of requested outputs, and of states of several conversations.

mod common;

use common::{edited_bundle, small_bundle};
use drift_runtime::{Array, Bundle, Error, Options, Session};

fn load(options: &Options) -> Session {
    Session::from_bundle(Bundle::from_vec(small_bundle()).unwrap(), options).unwrap()
}

fn options(frames: usize, conversations: usize, always_stage: bool) -> Options {
    Options { frames, conversations, always_stage, ..Options::default() }
}

fn x(value: f32) -> Array {
    let bytes = [value; 4].iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect();
    Array { dtype: drift_runtime::format::HostType::F16, shape: vec![4], bytes }
}

fn empty() -> Array {
    Array::from_f32(&[0], &[])
}

fn sum(session: &mut Session, value: f32) -> f64 {
    session.run("sum", &[("x", x(value).as_ref())]).unwrap()[0].to_f64()[0]
}

#[test]
fn runs_in_flight_keep_their_inputs_and_outputs() {
    for staged in [false, true] {
        let mut session = load(&options(3, 1, staged));
        assert_eq!(session.frames(), 3);
        let before = session.stats();
        let (mut total, mut oldest) = (0.0, None);
        for step in 1u8..=20 {
            session.write_input("sum", "x", x(f32::from(step)).as_ref()).unwrap();
            let tickets: Vec<_> = (0..3).map(|_| session.submit("sum", &["total"]).unwrap()).collect();
            // An input counts for all runs until it is written again, in every frame.
            for ticket in &tickets {
                let mut array = empty();
                session.collect(*ticket, "total", &mut array).unwrap();
                total += f64::from(step);
                assert_eq!(array.to_f64(), [total; 4], "step {step}, staged {staged}");
            }
            if let Some(ticket) = oldest.replace(tickets[0]) {
                assert!(matches!(session.wait(ticket), Err(Error::Overwritten)));
                assert!(matches!(session.collect(ticket, "total", &mut empty()), Err(Error::Overwritten)));
            }
        }
        let after = session.stats();
        assert_eq!((after.pipelines, after.allocations), (before.pipelines, before.allocations));
    }
}

#[test]
fn symbols_belong_to_their_run() {
    let mut session = load(&options(2, 1, false));
    let mut runs = Vec::new();
    for n in [5usize, 9, 3, 100, 1] {
        let ids: Vec<i64> = (0..n).map(|at| i64::try_from(at * n).unwrap()).collect();
        session.write_input("scale", "ids", Array::from_i64(&[1, n], &ids).as_ref()).unwrap();
        runs.push((session.submit("scale", &["tripled"]).unwrap(), ids));
        if let [.., (ticket, ids), _] = &runs[..] {
            let mut array = empty();
            session.collect(*ticket, "tripled", &mut array).unwrap();
            assert_eq!(
                array,
                Array::from_i64(&[ids.len()], &ids.iter().map(|id| id * 3).collect::<Vec<_>>())
            );
        }
    }
}

#[test]
fn only_requested_outputs_can_be_read() {
    for staged in [false, true] {
        let mut session = load(&options(1, 1, staged));
        let ticket = {
            session.write_input("sum", "x", x(2.0).as_ref()).unwrap();
            session.submit("sum", &[]).unwrap()
        };
        session.wait(ticket).unwrap();
        assert!(matches!(session.collect(ticket, "total", &mut empty()), Err(Error::NotRun(_))));
        assert!(matches!(session.read_output("sum", "total"), Err(Error::NotRun(_))));
        assert!(matches!(session.submit("sum", &["sum"]), Err(Error::NoSuchName { .. })));
        let none = session.run_for("sum", &[("x", x(2.0).as_ref())], &[]).unwrap();
        assert!(none.is_empty());
        let total = session.run_for("sum", &[("x", x(2.0).as_ref())], &["total"]).unwrap();
        assert_eq!(total[0].to_f64(), [6.0; 4]);
    }
}

#[test]
fn outputs_are_readable_after_waiting() {
    let mut session = load(&options(2, 1, false));
    session.write_input("sum", "x", x(1.0).as_ref()).unwrap();
    let ticket = session.submit("sum", &["total"]).unwrap();
    assert!(matches!(session.read_output("sum", "total"), Err(Error::NotRun(_))));
    session.wait(ticket).unwrap();
    assert_eq!(session.read_output("sum", "total").unwrap().to_f64(), [1.0; 4]);
}

#[test]
fn each_conversation_has_its_own_states() {
    for staged in [false, true] {
        let mut session = load(&options(2, 3, staged));
        assert_eq!(session.conversations(), 3);
        for round in 0u8..3 {
            for conversation in 0..3u8 {
                session.choose_conversation(conversation.into()).unwrap();
                let value = f32::from(conversation) + 1.0;
                // Repeated runs use one recorded command buffer, which belongs to one conversation.
                for run in 1u8..=3 {
                    let total = f64::from(3 * round + run) * f64::from(value);
                    assert_eq!(sum(&mut session, value), total, "staged {staged}");
                }
            }
        }
        session.choose_conversation(1).unwrap();
        session.reset_states().unwrap();
        assert_eq!(sum(&mut session, 5.0), 5.0);
        session.choose_conversation(2).unwrap();
        assert_eq!(sum(&mut session, 0.0), 27.0);
        let error = session.choose_conversation(3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "conversation 3 does not exist; the session was loaded with 3 conversations"
        );
        // A function without states runs in any conversation.
        let ids = Array::from_i64(&[1, 2], &[1, 2]);
        assert_eq!(session.run("scale", &[("ids", ids.as_ref())]).unwrap()[0].to_f64(), [3.0, 6.0]);
        assert_eq!(session.replay_timed("sum").unwrap().len(), 1);
    }
}

#[test]
fn states_are_read_and_written() {
    let mut session = load(&options(1, 2, false));
    sum(&mut session, 2.5);
    assert_eq!(session.states()[0].name, "sum");
    assert_eq!(session.read_state("sum").unwrap(), [2.5f32; 4].map(f32::to_le_bytes).concat());
    session.choose_conversation(1).unwrap();
    assert_eq!(session.read_state("sum").unwrap(), [0; 16]);
    session.write_state("sum", &[10.0f32; 4].map(f32::to_le_bytes).concat()).unwrap();
    assert_eq!(sum(&mut session, 1.0), 11.0);
    assert!(matches!(session.write_state("sum", &[0; 15]), Err(Error::WrongLength { expected: 16, .. })));
    let error = session.read_state("some").unwrap_err();
    assert_eq!(error.to_string(), "the bundle has no state `some`; there are: `sum`");
}

/// The small test bundle with a state larger than several staging windows. The kernel uses only the first words of the
/// state.
fn with_large_state(size: u64) -> Vec<u8> {
    edited_bundle(&|variants| {
        variants[0].states[0].size = size;
        variants[0].functions[2].slots[1].size = size;
        variants[0].requirements.limits = variants[0].needed_limits();
    })
}

#[test]
fn states_are_saved_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("conversation.states");
    let size = (2 << 20) + 4096 + 16;
    let bundle = || Bundle::from_vec(with_large_state(size)).unwrap();
    let mut session = Session::from_bundle(bundle(), &options(1, 2, false)).unwrap();
    let mut bytes = vec![0u8; size as usize];
    for (at, byte) in bytes.iter_mut().enumerate().skip((1 << 20) - 5000).take(20_000) {
        *byte = (at % 251) as u8;
    }
    *bytes.last_mut().unwrap() = 77;
    session.write_state("sum", &bytes).unwrap();
    session.save_states(&path, b"where it was").unwrap();
    assert!(
        std::fs::metadata(&path).unwrap().len() < 40_000,
        "the file of saved states contains pages of zeros"
    );
    session.reset_states().unwrap();
    session.choose_conversation(1).unwrap();
    session.write_state("sum", &vec![9; size as usize]).unwrap();
    assert_eq!(session.restore_states(&path).unwrap(), b"where it was");
    assert_eq!(session.read_state("sum").unwrap(), bytes);
    // Every damaged byte is detected.
    let saved = std::fs::read(&path).unwrap();
    for at in (0..200).chain((200..saved.len()).step_by(997)).chain(saved.len() - 40..saved.len()) {
        let mut damaged = saved.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&path, &damaged).unwrap();
        assert!(matches!(session.restore_states(&path), Err(Error::States { .. })), "byte {at}");
    }
    for length in [0, 7, 8, 12, 40, saved.len() / 2, saved.len() - 1] {
        std::fs::write(&path, &saved[..length]).unwrap();
        assert!(matches!(session.restore_states(&path), Err(Error::States { .. })), "{length} bytes");
    }
    assert_eq!(session.read_state("sum").unwrap(), bytes);
    std::fs::write(&path, &saved).unwrap();
    let mut other = load(&Options::default());
    let error = other.restore_states(&path).unwrap_err().to_string();
    assert!(error.contains("another bundle"), "{error}");
    assert!(matches!(other.restore_states(&folder.path().join("none")), Err(Error::Io { .. })));
}
