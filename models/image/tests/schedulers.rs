//! Comparison of the schedulers with the schedulers of diffusers. `schedulers.py` wrote the expected values.

use drift_image::{Error, Schedule, SchedulerConfig, Step, scheduler_names};
use serde_json::Value;

/// Maximum difference to diffusers, relative to the largest magnitude of a latent.
const TOLERANCE: f64 = 1e-5;
/// Elements of a latent.
const SIZE: usize = 4;

type Latent = [f32; SIZE];

/// Makes a latent from a formula.
fn latent(formula: impl Fn(f64) -> f64) -> Latent {
    std::array::from_fn(|j| formula(j as f64) as f32)
}

/// Noise of a step, or of the first latent if the step is 0.
fn noise(step: usize) -> Latent {
    latent(|j| 1.2 * libm::sin(1.7 * j + 2.3 * step as f64 + 0.4))
}

/// Output of the fake model.
fn model(input: Latent, timestep: f32) -> Latent {
    let wave = latent(|j| 0.3 * libm::sin(j + f64::from(timestep) / 100.0));
    std::array::from_fn(|j| 0.5 * input[j] + wave[j])
}

/// Evaluates one step as the device does.
fn evaluate(step: &Step, index: usize, x: Latent, history: &mut [Latent; 5]) -> Latent {
    let output = model(x.map(|x| step.input_scale * x), step.timestep);
    let fresh = if step.needs_noise { noise(index + 1) } else { [0.0; SIZE] };
    history.rotate_right(1);
    let [p, q] = step.history;
    history[0] = std::array::from_fn(|j| (p * x[j] + q * output[j]).clamp(-step.limit, step.limit));
    let c = step.update;
    std::array::from_fn(|j| {
        let past: f32 = history.iter().zip(&c[2..7]).map(|(h, c)| c * h[j]).sum();
        c[0] * x[j] + c[1] * output[j] + past + c[7] * fresh[j]
    })
}

/// Runs a schedule with the fake model, and returns the latent after each step.
fn run(schedule: &Schedule, from_picture: bool) -> Vec<Latent> {
    let start = noise(0);
    let [a, b] = schedule.add_noise[0];
    let clean = latent(|j| libm::cos(0.9 * j));
    let mut x: Latent = match from_picture {
        true => std::array::from_fn(|j| a * clean[j] + b * start[j]),
        false => start.map(|noise| schedule.initial_noise * noise),
    };
    let mut history = [[0.0; SIZE]; 5];
    let mut latents = Vec::new();
    for (index, step) in schedule.steps.iter().enumerate() {
        x = evaluate(step, index, x, &mut history);
        latents.push(x);
    }
    latents
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

/// Returns the largest difference, relative to the largest magnitude of the latent. First latents with sigmas in the thousands
/// have rounding errors that remain in all later latents of diffusers, so there the difference is relative to the first latent.
fn difference(found: &[f32], expected: &[f64], initial_noise: f32) -> f64 {
    assert_eq!(found.len(), expected.len());
    let first = if initial_noise > 1000.0 { f64::from(initial_noise) } else { 0.0 };
    let largest = expected.iter().fold(first, |m, v| m.max(v.abs()));
    let error = found.iter().zip(expected).fold(0.0_f64, |m, (f, e)| m.max((f64::from(*f) - e).abs()));
    error / largest
}

#[test]
fn schedules_agree_with_diffusers() {
    let (mut runs, mut worst) = (0, 0.0_f64);
    for line in include_str!("schedulers.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let text = case["config"].as_str().unwrap();
        let config = SchedulerConfig::from_json(text.as_bytes(), case["name"].as_str()).unwrap();
        for expected in case["runs"].as_array().unwrap() {
            let steps = usize::try_from(expected["steps"].as_u64().unwrap()).unwrap();
            let strength = expected["strength"].as_f64();
            let label = format!("{text} {} {steps} {strength:?}", case["name"]);
            let schedule = config.schedule(steps, strength).unwrap_or_else(|e| panic!("{label}: {e}"));
            let timesteps: Vec<f32> = schedule.steps.iter().map(|s| s.timestep).collect();
            let times: Vec<f32> = numbers(&expected["timesteps"]).into_iter().map(|t| t as f32).collect();
            assert_eq!(timesteps, times, "{label}");
            let mut check = |found: &[f32], expected: &[f64], what: &str| {
                let error = difference(found, expected, schedule.initial_noise);
                assert!(
                    error <= TOLERANCE,
                    "{label}: {what}: {found:?}, expected {expected:?}, difference {error:.1e}"
                );
                worst = worst.max(error);
            };
            check(&[schedule.initial_noise], &[expected["initial_noise"].as_f64().unwrap()], "initial noise");
            check(&schedule.add_noise[0], &numbers(&expected["add_noise"]), "added noise");
            assert_eq!(schedule.add_noise.len(), schedule.steps.len() + 1);
            assert_eq!(schedule.add_noise.last(), Some(&[1.0, 0.0]));
            let latents = run(&schedule, strength.is_some());
            let all = expected["latents"].as_array().unwrap();
            assert_eq!(latents.len(), all.len());
            for (index, (found, expected)) in latents.iter().zip(all).enumerate() {
                check(found, &numbers(expected), &format!("latent {index}"));
            }
            runs += 1;
        }
    }
    println!("{runs} runs; largest difference {worst:.1e}");
    assert!(runs > 200, "{runs}");
}

/// Returns the error of a configuration, or of a run with it.
fn error(config: &str, name: Option<&str>, steps: usize, strength: Option<f64>) -> Error {
    let read = SchedulerConfig::from_json(config.as_bytes(), name);
    read.and_then(|config| config.schedule(steps, strength)).unwrap_err()
}

#[test]
fn unsupported_settings_are_errors() {
    let dpm = r#""_class_name":"DPMSolverMultistepScheduler""#;
    let ddim = r#""_class_name":"DDIMScheduler""#;
    let cases = [
        (r#"{"_class_name":"HeunDiscreteScheduler"}"#.into(), "_class_name"),
        (r#"{"beta_start":0.1}"#.into(), "_class_name"),
        (r#"{"_class_name":"PNDMScheduler"}"#.into(), "skip_prk_steps"),
        (format!(r#"{{{ddim},"thresholding":true}}"#), "thresholding"),
        (format!(r#"{{{ddim},"beta_schedule":"sigmoid"}}"#), "beta_schedule"),
        (format!(r#"{{{ddim},"beta_end":NaN}}"#), "beta_end"),
        (format!(r#"{{{ddim},"beta_end":2}}"#), "beta_end"),
        (format!(r#"{{{ddim},"num_train_timesteps":0}}"#), "num_train_timesteps"),
        (format!(r#"{{{ddim},"num_train_timesteps":1e12}}"#), "num_train_timesteps"),
        (format!(r#"{{{ddim},"trained_betas":[0.1,0.2]}}"#), "trained_betas"),
        (format!(r#"{{{ddim},"prediction_type":"flow_prediction"}}"#), "prediction_type"),
        (format!(r#"{{{ddim},"clip_sample":3}}"#), "clip_sample"),
        (format!(r#"{{{ddim},"steps_offset":-1}}"#), "steps_offset"),
        (format!(r#"{{{dpm},"use_beta_sigmas":true}}"#), "use_beta_sigmas"),
        (format!(r#"{{{dpm},"use_flow_sigmas":true}}"#), "use_flow_sigmas"),
        (format!(r#"{{{dpm},"variance_type":"learned"}}"#), "variance_type"),
        (format!(r#"{{{dpm},"algorithm_type":"dpmsolver"}}"#), "final_sigmas_type"),
        (format!(r#"{{{dpm},"solver_order":4}}"#), "solver_order"),
        (
            format!(r#"{{{dpm},"use_karras_sigmas":true,"use_exponential_sigmas":true}}"#),
            "use_exponential_sigmas",
        ),
        (
            r#"{"_class_name":"EulerAncestralDiscreteScheduler","prediction_type":"sample"}"#.into(),
            "prediction_type",
        ),
        (
            r#"{"_class_name":"LCMScheduler","original_inference_steps":1001}"#.into(),
            "original_inference_steps",
        ),
    ];
    for (config, name) in cases {
        let found = error(&config, None, 4, None);
        assert!(matches!(&found, Error::Setting { setting, .. } if setting == name), "{config}: {found}");
        assert!(found.to_string().starts_with("scheduler_config.json: "), "{found}");
    }
    let malformed = error("[1]", None, 4, None);
    assert!(matches!(malformed, Error::File { .. }), "{malformed}");
    let malformed = error("{\"a\": -Inf}", None, 4, None);
    assert!(matches!(malformed, Error::File { .. }), "{malformed}");
}

#[test]
fn impossible_requests_are_errors() {
    let ddim = r#"{"_class_name":"DDIMScheduler","steps_offset":1}"#;
    let zero_snr =
        r#"{"_class_name":"DDIMScheduler","rescale_betas_zero_snr":true,"timestep_spacing":"trailing"}"#;
    let clipped = r#"{"_class_name":"DPMSolverMultistepScheduler","lambda_min_clipped":1000}"#;
    let cases = [
        (ddim, None, 0, None, "0 denoising steps"),
        (ddim, None, 1001, None, "at most 1000 steps"),
        (ddim, None, usize::MAX, Some(0.5), "at most 1000 steps"),
        (ddim, None, 1000, None, "timestep 1000"),
        (ddim, None, 10, Some(0.0), "strength is 0"),
        (ddim, None, 10, Some(1.5), "strength is 1.5"),
        (ddim, None, 10, Some(f64::NAN), "strength is NaN"),
        (ddim, None, 10, Some(0.05), "leaves none of 10"),
        (ddim, Some("heun"), 4, None, "pndm, ddim, euler, euler-a, dpm++2m, dpm++2m-karras, lcm"),
        (ddim, Some("lcm"), 51, None, "at most 50 steps"),
        (ddim, Some("dpm++2m"), 1000, None, "not finite"),
        (zero_snr, None, 4, None, "not finite"),
        (clipped, None, 4, None, "lambda_min_clipped"),
    ];
    for (config, name, steps, strength, part) in cases {
        let found = error(config, name, steps, strength).to_string();
        assert!(found.contains(part), "{found}");
    }
}

#[test]
fn every_number_of_steps_is_a_schedule_or_an_error() {
    let extreme = [
        r#"{"num_train_timesteps":1}"#,
        r#"{"num_train_timesteps":3,"trained_betas":[1,0,1]}"#,
        r#"{"beta_start":0,"beta_end":0}"#,
        r#"{"beta_start":1,"beta_end":1,"rescale_betas_zero_snr":true}"#,
        r#"{"timestep_spacing":"trailing","use_karras_sigmas":true,"steps_offset":10000}"#,
        r#"{"sigma_min":1e300,"sigma_max":1e-300,"use_karras_sigmas":true}"#,
    ];
    for config in extreme {
        let config = config.replace('}', ",\"skip_prk_steps\":true}");
        for (name, _) in scheduler_names() {
            let read = SchedulerConfig::from_json(config.as_bytes(), Some(name));
            for steps in [1, 2, 3, 61, 103, 999, 1000] {
                let schedule = read.as_ref().map(|config| config.schedule(steps, None));
                if let Ok(Ok(schedule)) = schedule {
                    assert!(!schedule.steps.is_empty(), "{config} {name} {steps}");
                    assert!(schedule.steps.iter().all(|s| s.timestep >= 0.0), "{config} {name} {steps}");
                }
            }
        }
    }
}

#[test]
fn advice_lists_all_names() {
    let help = error("{}", None, 1, None).help().unwrap_or_default();
    let names: Vec<&str> = scheduler_names().map(|(name, _)| name).collect();
    assert!(help.contains(&names.join(", ")), "{help}");
}
