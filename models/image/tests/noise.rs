//! Comparison of noise with PyTorch's CPU generator. `noise.py` wrote the expected values.

use drift_image::TorchGenerator;
use serde_json::Value;

/// Maximum difference to PyTorch.
const TOLERANCE: f64 = 2e-6;

#[test]
fn noise_agrees_with_pytorch() {
    let mut worst = 0.0_f64;
    for line in include_str!("noise.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let mut generator = TorchGenerator::new(case["seed"].as_u64().unwrap());
        for call in case["calls"].as_array().unwrap() {
            let count = usize::try_from(call["count"].as_u64().unwrap()).unwrap();
            let values = generator.randn(count);
            assert_eq!(values.len(), count);
            let first = call["first"].as_array().unwrap();
            let last = call["last"].as_array().unwrap();
            let start = values.iter().zip(first);
            let end = values.iter().rev().zip(last.iter().rev());
            for (found, expected) in start.chain(end) {
                let error = (f64::from(*found) - expected.as_f64().unwrap()).abs();
                assert!(
                    error <= TOLERANCE,
                    "seed {}, {count} elements: {found}, expected {expected}",
                    case["seed"]
                );
                worst = worst.max(error);
            }
            let sum: f64 = values.iter().map(|v| f64::from(*v)).sum();
            let error = (sum - call["sum"].as_f64().unwrap()).abs();
            assert!(error <= TOLERANCE * count as f64, "seed {}, {count} elements: sum {sum}", case["seed"]);
        }
    }
    println!("largest difference {worst:.1e}");
    assert_eq!(TorchGenerator::new(0).randn(0), Vec::<f32>::new());
}
