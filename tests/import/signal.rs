//! DFT, STFT and MelWeightMatrix, compared with the definition of the discrete Fourier transform.

use std::f64::consts::TAU;

use drift_tests::onnx::{bytes, floats, graph, input, int, integers, model, node, small_integers, with};
use driftc::import::onnx::schema::tensor_proto::DataType;
use driftc::import::onnx::schema::{ModelProto, TensorProto};
use driftc::import::onnx::{DimSpec, Options, load_bytes};
use driftc::ir::array::Array;

use super::{operators, refusal, run};

/// Returns varied numbers between -1 and 1.
fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect()
}

/// Returns the transform of `length` elements of complex numbers; missing elements are zero.
fn transform(x: &[(f64, f64)], length: usize, inverse: bool) -> Vec<(f64, f64)> {
    let turn = |i: usize| (TAU * i as f64 / length as f64).sin_cos();
    let turns: Vec<(f64, f64)> = (0..length).map(turn).collect();
    let term = |k: usize, j: usize, (re, im): (f64, f64)| {
        let (sin, cos) = turns[j * k % length];
        let sin = if inverse { sin } else { -sin };
        (re * cos - im * sin, re * sin + im * cos)
    };
    let scale = if inverse { 1.0 / length as f64 } else { 1.0 };
    (0..length)
        .map(|k| {
            let terms = x.iter().take(length).enumerate().map(|(j, v)| term(k, j, *v));
            terms.fold((0.0, 0.0), |sum, v| (sum.0 + v.0 * scale, sum.1 + v.1 * scale))
        })
        .collect()
}

/// Completes a one-sided spectrum to the whole spectrum of a real signal.
fn completed(half: &[(f64, f64)], length: usize) -> Vec<(f64, f64)> {
    let at = |k: usize| half.get(k).copied().unwrap_or((0.0, 0.0));
    let whole = |k: usize| if 2 * k > length { (at(length - k).0, -at(length - k).1) } else { at(k) };
    let mut all: Vec<(f64, f64)> = (0..length).map(whole).collect();
    // The imaginary parts of a real signal's mean and of its highest frequency are zero.
    all[0].1 = 0.0;
    if length.is_multiple_of(2) {
        all[length / 2].1 = 0.0;
    }
    all
}

/// Transform of a DFT test: its attributes, and the sizes of the signal.
#[derive(Debug, Clone, Copy)]
struct Case {
    rows: usize,
    components: usize,
    length: Option<usize>,
    inverse: bool,
    onesided: bool,
}

fn complex(x: &[f32], components: usize) -> Vec<(f64, f64)> {
    x.chunks(components).map(|v| (f64::from(v[0]), v.get(1).map_or(0.0, |v| f64::from(*v)))).collect()
}

impl Case {
    /// Returns the expected result for one signal.
    fn expected(self, x: &[f32]) -> Vec<f64> {
        let onesided_inverse = self.inverse && self.onesided;
        let default = if onesided_inverse { 2 * (self.rows - 1) } else { self.rows };
        let length = self.length.unwrap_or(default);
        let mut x = complex(x, self.components);
        if onesided_inverse {
            x.truncate(length / 2 + 1);
            x = completed(&x, length);
            return transform(&x, length, true).into_iter().map(|v| v.0).collect();
        }
        let rows = if self.onesided { length / 2 + 1 } else { length };
        transform(&x, length, self.inverse).into_iter().take(rows).flat_map(|v| [v.0, v.1]).collect()
    }

    /// Returns a model with the transform along axis 1 of `[2, rows, components]`.
    fn model(self, opset: i64) -> ModelProto {
        let (rows, components) = (self.rows.to_string(), self.components.to_string());
        let operands = ["x", if self.length.is_some() { "length" } else { "" }, "axis"];
        let mut n = node("DFT", &operands[..if opset < 20 { 2 } else { 3 }], &["y"]);
        n = with(n, int("inverse", i64::from(self.inverse)));
        n = with(n, int("onesided", i64::from(self.onesided)));
        let mut g = graph(vec![input("x", &["2", &rows, &components])], vec![n], &["y"]);
        g.initializer = vec![integers("axis", &[], &[1])];
        if let Some(length) = self.length {
            g.initializer.push(integers("length", &[], &[length as i64]));
        }
        model(opset, g)
    }
}

fn assert_close(got: &Array, expected: &[f64], what: &str) {
    let got = got.floats().unwrap();
    assert_eq!(got.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1.0f64, |m, v| m.max(v.abs()));
    for (i, (a, b)) in got.iter().zip(expected).enumerate() {
        assert!((f64::from(*a) - b).abs() <= 2e-6 * largest, "{what}: element {i} is {a}, not {b}");
    }
}

#[test]
fn transforms_of_any_length() {
    let lengths = [(1, None), (2, None), (7, None), (12, None), (9, Some(5)), (5, Some(9)), (6, Some(8))];
    // The last lengths are computed in two steps.
    let large = [(2048, None), (700, Some(1500)), (1100, Some(2047))];
    for (rows, length) in lengths.into_iter().chain(large) {
        for components in [1, 2] {
            for (inverse, onesided) in [(false, false), (true, false), (false, true), (true, true)] {
                // A one-sided result needs a real signal, a one-sided operand is complex.
                if onesided && (components == 2) != inverse || rows == 1 && length.is_none() && onesided {
                    continue;
                }
                let case = Case { rows, components, length, inverse, onesided };
                let x = numbers(2 * rows * components);
                let expected: Vec<f64> =
                    x.chunks(rows * components).flat_map(|signal| case.expected(signal)).collect();
                for opset in [17, 20] {
                    if rows > 100 && opset == 17 {
                        continue;
                    }
                    let x = Array::f32(&[2, rows, components], x.clone());
                    assert_close(&run(&case.model(opset), &[("x", x)]), &expected, &format!("{case:?}"));
                }
            }
        }
    }
}

/// A transform along an earlier axis transforms every column.
#[test]
fn transforms_along_an_outer_axis() {
    let n = with(node("DFT", &["x"], &["y"]), int("axis", -3));
    let m = model(17, graph(vec![input("x", &["5", "3", "2"])], vec![n], &["y"]));
    let x = numbers(30);
    let mut expected = vec![0.0; 30];
    for column in 0..3 {
        let signal: Vec<(f64, f64)> = (0..5).map(|i| complex(&x, 2)[i * 3 + column]).collect();
        for (k, (re, im)) in transform(&signal, 5, false).into_iter().enumerate() {
            expected[(k * 3 + column) * 2] = re;
            expected[(k * 3 + column) * 2 + 1] = im;
        }
    }
    assert_close(&run(&m, &[("x", Array::f32(&[5, 3, 2], x))]), &expected, "axis -3");
}

/// Settings of an STFT test.
#[derive(Debug, Clone, Copy)]
struct Frames {
    step: usize,
    length: usize,
    /// Length of the window; 0 without a window.
    window: usize,
    onesided: bool,
    components: usize,
}

impl Frames {
    fn model(self, samples: &str) -> ModelProto {
        let components = self.components.to_string();
        let window = if self.window > 0 { "window" } else { "" };
        let n = node("STFT", &["x", "step", window, "length"], &["y"]);
        let n = with(n, int("onesided", i64::from(self.onesided)));
        let mut g = graph(vec![input("x", &["2", samples, &components])], vec![n], &["y"]);
        g.initializer = vec![integers("step", &[], &[self.step as i64])];
        g.initializer.push(integers("length", &[], &[self.length as i64]));
        if self.window > 0 {
            g.initializer.push(floats("window", &[self.window as i64], &self.weights()));
        }
        model(17, g)
    }

    fn weights(self) -> Vec<f32> {
        (0..self.window).map(|i| 0.25 + i as f32 / self.window as f32).collect()
    }

    fn expected(self, x: &[f32], samples: usize) -> Vec<f64> {
        let weights = self.weights();
        let rows = if self.window > 0 { self.window } else { self.length };
        let bins = if self.onesided { self.length / 2 + 1 } else { self.length };
        let mut all = Vec::new();
        for signal in complex(x, self.components).chunks(samples) {
            for frame in 0..(samples - self.length) / self.step + 1 {
                let weight = |i: usize| weights.get(i).map_or(1.0, |w| f64::from(*w));
                let frame: Vec<(f64, f64)> = signal[frame * self.step..][..rows].to_vec();
                let frame: Vec<(f64, f64)> =
                    frame.iter().enumerate().map(|(i, v)| (v.0 * weight(i), v.1 * weight(i))).collect();
                let spectrum = transform(&frame, self.length, false);
                all.extend(spectrum.into_iter().take(bins).flat_map(|v| [v.0, v.1]));
            }
        }
        all
    }
}

/// Frames overlap, touch or leave gaps; the number of samples is known or a symbol.
#[test]
fn frames_of_a_signal() {
    for (step, length, window) in
        [(4, 8, 8), (3, 8, 0), (5, 7, 7), (9, 7, 5), (1, 12, 12), (2, 21, 20), (8, 8, 8), (40, 15, 15)]
    {
        for (onesided, components) in [(true, 1), (false, 1), (false, 2)] {
            let frames = Frames { step, length, window, onesided, components };
            let dims = [("n".to_string(), DimSpec::Range(length as i64, 64))].into();
            let options = Options { dims, ..Options::default() };
            let symbolic = load_bytes(bytes(&frames.model("n")), &options).expect("it imports").graph;
            for samples in [length, length + 1, 37, 64] {
                let x = numbers(2 * samples * components);
                let expected = frames.expected(&x, samples);
                let what = format!("{frames:?}, {samples} samples");
                let x = Array::f32(&[2, samples, components], x);
                let known = run(&frames.model(&samples.to_string()), &[("x", x.clone())]);
                assert_close(&known, &expected, &what);
                let inputs = [("x".to_string(), x)].into();
                let result = driftc::ir::eval::eval(&symbolic, &inputs).expect("it evaluates").remove(0).1;
                assert_eq!(result, known, "{what}");
            }
        }
    }
}

/// Frames whose transform needs two steps are multiplied by the window first.
#[test]
fn long_frames() {
    let frames = Frames { step: 700, length: 2048, window: 2000, onesided: true, components: 1 };
    let x = numbers(2 * 2800);
    let expected = frames.expected(&x, 2800);
    let y = run(&frames.model("2800"), &[("x", Array::f32(&[2, 2800, 1], x))]);
    assert_close(&y, &expected, "long frames");
}

/// A transform is one matmul, without copies if the frames do not overlap.
#[test]
fn transforms_are_matmuls() {
    let case = Case { rows: 16, components: 2, length: None, inverse: false, onesided: false };
    assert_eq!(operators(&case.model(20)), "input reshape constant matmul reshape");
    let frames = Frames { step: 8, length: 8, window: 8, onesided: true, components: 1 };
    let all = operators(&frames.model("64"));
    assert_eq!(all.split(' ').filter(|op| *op == "matmul").count(), 1, "{all}");
    assert!(!all.contains("gather") && !all.contains("concat"), "{all}");
}

#[test]
fn unclear_transforms_are_refused() {
    let case = Case { rows: 8, components: 3, length: None, inverse: false, onesided: false };
    assert!(refusal(&case.model(17)).contains("it must be 1 (real) or 2 (complex)"));
    let case = Case { components: 2, rows: 4099, ..case };
    let refused = refusal(&case.model(17));
    assert!(
        refused.contains("a transform of length 4099") && refused.contains("smaller factors"),
        "{refused}"
    );
    let last = with(node("DFT", &["x"], &["y"]), int("axis", 2));
    let m = model(17, graph(vec![input("x", &["2", "8", "2"])], vec![last], &["y"]));
    assert!(refusal(&m).contains("the last axis"));
    let m = model(17, graph(vec![input("x", &["2", "n", "2"])], vec![node("DFT", &["x"], &["y"])], &["y"]));
    assert!(refusal(&m).contains("the symbolic size n; fix it with --dim"), "{}", refusal(&m));
    let frames = Frames { step: 4, length: 8, window: 0, onesided: true, components: 1 };
    assert!(refusal(&frames.model("7")).contains("the signal has 7 samples; a frame has 8"));
    let frames = Frames { window: 9, ..frames };
    assert!(refusal(&frames.model("20")).contains("the window has 9 elements; a frame has 8"));
}

/// The weights agree with the reference implementation of the ONNX project.
#[test]
fn mel_weights() {
    let mel = |constants: Vec<TensorProto>| {
        let names = ["bins", "length", "rate", "low", "high"];
        let mut g = graph(vec![], vec![node("MelWeightMatrix", &names, &["y"])], &["y"]);
        g.initializer = constants;
        model(17, g)
    };
    let size = |name: &str, value: i64| small_integers(name, DataType::Int32, &[], &[value]);
    let constants = |rate: i64| {
        let edges = [floats("low", &[], &[100.0]), floats("high", &[], &[3600.0])];
        [vec![size("bins", 5), size("length", 25), size("rate", rate)], edges.to_vec()].concat()
    };
    let y = run(&mel(constants(8000)), &[]);
    let mut expected = vec![0.0; 13 * 5];
    for (bin, filter, value) in [
        (1, 0, 1.0),
        (1, 1, 1.0),
        (2, 1, 0.5),
        (2, 2, 0.5),
        (3, 2, 1.0),
        (4, 3, 1.0),
        (5, 3, 0.5),
        (5, 4, 0.5),
        (6, 4, 1.0),
        (7, 4, 0.5),
    ] {
        expected[bin * 5 + filter] = value;
    }
    assert_eq!(y, Array::f32(&[13, 5], expected));
    let refused = refusal(&mel(constants(4000)));
    assert!(refused.contains("lower upper_edge_hertz"), "{refused}");
}
