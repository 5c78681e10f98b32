//! Demo program: `demo MINILM_FOLDER OUTPUT_FOLDER` compiles a sentence-embedding model for this device and prints
//! the similarities of sentences. Then it compiles and times a ResNet-50. `make demo` runs it.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use drift_demo::resnet50;
use drift_models::Dims;
use drift_runtime::{Array, ArrayRef, Session, device};
use driftc::compile::{self, Model, Report};
use driftc::import::onnx;
use driftc::target::TargetProfile;
use tokenizers::Tokenizer;

/// Maximum number of tokens of a sentence.
const MAX_SEQ: i64 = 256;

const SENTENCES: [&str; 12] = [
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping in the sun.",
    "Our rocket reached orbit on the third attempt, after two launches had been called off because of wind.",
    "The satellite was carried into space this morning.",
    "Bake the bread for forty minutes.",
    "Leave the dough in the oven until its crust is golden brown.",
    "Stock markets fell sharply today.",
    "Shares lost a good part of their value in this afternoon's trading, and nobody seemed to know exactly why.",
    "She plays the violin in a small orchestra.",
    "He has been learning the cello since he was six.",
    "Graphics processors multiply matrices.",
    "A shader is a program that runs on a GPU.",
];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [minilm, folder] = args.as_slice() else {
        return Err("usage: demo MINILM_FOLDER OUTPUT_FOLDER".into());
    };
    std::fs::create_dir_all(folder)?;
    let target = device_target()?;
    sentences(minilm, folder, &target)?;
    image_model(folder, &target)?;
    println!("\nBoth bundles are in {}. Inspect or run them yourself:", folder.display());
    println!("  target/debug/driftc inspect {}", folder.join("minilm.drift").display());
    println!("  target/debug/driftc bench {}", folder.join("resnet50.drift").display());
    Ok(())
}

/// Returns the target profile of this device: a built-in one, or else one generated from the driver's properties.
fn device_target() -> Result<TargetProfile> {
    let info = device::probe(None)?;
    let target = match TargetProfile::for_device(&info)? {
        Some(profile) => profile,
        None => TargetProfile::from_toml(&driftc::target::from_device(&info, None)?, "this device")?,
    };
    println!("device    {} ({} {})", info.name, info.driver_name, info.driver_info);
    println!("target    {}: {}", target.name, target.summary);
    Ok(target)
}

fn sentences(minilm: &Path, folder: &Path, target: &TargetProfile) -> Result<()> {
    println!("\n== A language model: all-MiniLM-L6-v2, sentences of any length up to {MAX_SEQ} tokens ==\n");
    let start = Instant::now();
    let (model, _) = drift_models::load(minilm, &Dims::from([("seq".into(), (1, MAX_SEQ))]))?;
    let bundle = folder.join("minilm.drift");
    compile(&model, target, &bundle, start)?;

    let mut session = load(&bundle)?;
    let loaded = session.stats();
    let tokenizer = tokenizer(&session)?;
    let start = Instant::now();
    let mut embeddings = Vec::with_capacity(SENTENCES.len());
    let mut times = Vec::with_capacity(SENTENCES.len());
    for sentence in SENTENCES {
        let start = Instant::now();
        embeddings.push(embed(&mut session, &tokenizer, sentence)?);
        times.push(start.elapsed());
    }
    println!("run       {} sentences in {}", SENTENCES.len(), ms(start.elapsed()));
    let (shortest, longest) = (times.iter().min(), times.iter().max());
    println!(
        "          {} to {} each",
        ms(*shortest.unwrap_or(&start.elapsed())),
        ms(*longest.unwrap_or(&start.elapsed()))
    );
    let now = session.stats();
    if (now.pipelines, now.allocations) != (loaded.pipelines, loaded.allocations) {
        return Err("the session created pipelines or allocated memory after loading".into());
    }
    println!("          one bundle for all sentence lengths; no compilation and no allocation after loading");
    show_similarities(&embeddings);
    Ok(())
}

/// Reads the tokenizer that the bundle carries.
fn tokenizer(session: &Session) -> Result<Tokenizer> {
    let bytes = session.bundle().attachment("tokenizer.json")?.ok_or("the bundle has no tokenizer.json")?;
    let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|e| e.to_string())?;
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|e| e.to_string())?;
    Ok(tokenizer)
}

fn embed(session: &mut Session, tokenizer: &Tokenizer, sentence: &str) -> Result<Vec<f64>> {
    let tokens = tokenizer.encode(sentence, true).map_err(|e| e.to_string())?;
    let inputs: BTreeMap<&str, Array> = [
        ("input_ids", tokens.get_ids()),
        ("attention_mask", tokens.get_attention_mask()),
        ("token_type_ids", tokens.get_type_ids()),
    ]
    .into_iter()
    .map(|(name, values)| {
        let values: Vec<i64> = values.iter().map(|v| i64::from(*v)).collect();
        (name, Array::from_i64(&[1, values.len()], &values))
    })
    .collect();
    let inputs: Vec<(&str, ArrayRef<'_>)> = inputs.iter().map(|(n, a)| (*n, a.as_ref())).collect();
    session.run("main", &inputs)?;
    Ok(session.read_output("main", "sentence_embedding")?.to_f64())
}

/// Prints the similarity of each pair of sentences: the dot product of their normalized embeddings.
fn show_similarities(embeddings: &[Vec<f64>]) {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    println!("\ncosine similarity x 100");
    let head: String = (1..=embeddings.len()).map(|i| format!("{i:>4}")).collect();
    println!("    {head}");
    for (i, (a, sentence)) in embeddings.iter().zip(SENTENCES).enumerate() {
        let row: String = embeddings.iter().map(|b| format!("{:>4.0}", dot(a, b) * 100.0)).collect();
        println!("{:>4}{row}   {}", i + 1, shortened(sentence));
    }
    let mut pairs = Vec::new();
    for (i, a) in embeddings.iter().enumerate() {
        let others = embeddings.iter().enumerate().skip(i + 1);
        pairs.extend(others.map(|(j, b)| (dot(a, b), i, j)));
    }
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("\nmost similar pairs");
    for (similarity, i, j) in pairs.into_iter().take(6) {
        println!(
            "{:>5.0}  {}\n       {}",
            similarity * 100.0,
            shortened(SENTENCES[i]),
            shortened(SENTENCES[j])
        );
    }
}

fn image_model(folder: &Path, target: &TargetProfile) -> Result<()> {
    println!("\n== An image model: ResNet-50 at its published size, with random weights ==\n");
    let file = folder.join("resnet50.onnx");
    std::fs::write(&file, resnet50::onnx())?;
    println!("model     {}, {}", file.display(), mib(std::fs::metadata(&file)?.len()));
    let start = Instant::now();
    let imported = onnx::load(&file, &onnx::Options::default())?;
    let (graph, hash) = (imported.graph, imported.hash);
    let model = Model { graph, name: "resnet50.onnx".into(), hash, ..Model::default() };
    let bundle = folder.join("resnet50.drift");
    let report = compile(&model, target, &bundle, start)?;

    let mut session = load(&bundle)?;
    let pixels: Vec<f32> = (0..3 * 224 * 224).map(|i| (i as f32 * 0.37).sin()).collect();
    let image = Array::from_f32(&[1, 3, 224, 224], &pixels);
    let start = Instant::now();
    let outputs = session.run("main", &[("image", image.as_ref())])?;
    let first = start.elapsed();
    let start = Instant::now();
    session.run("main", &[("image", image.as_ref())])?;
    let second = start.elapsed();
    let logits = outputs.first().map(Array::to_f64).unwrap_or_default();
    if logits.len() != 1000 || logits.iter().any(|v| !v.is_finite()) {
        return Err("the output of ResNet-50 is not 1000 finite numbers".into());
    }
    let flops: i64 = report
        .lowered
        .iter()
        .flatten()
        .flat_map(|l| &l.plan.dispatches)
        .filter_map(|s| s.launch.flops.as_known())
        .sum();
    println!("run       first {}, second {}", ms(first), ms(second));
    println!(
        "          {:.1} GFLOP, {:.1} GFLOP/s",
        flops as f64 / 1e9,
        flops as f64 / 1e9 / second.as_secs_f64()
    );
    Ok(())
}

fn compile(model: &Model, target: &TargetProfile, bundle: &Path, start: Instant) -> Result<Report> {
    let imported = start.elapsed();
    let targets = std::slice::from_ref(target);
    let report = compile::compile(model, targets, &compile::Options::default(), bundle)?;
    println!("compile   {} in total, of which {} to read the model", ms(start.elapsed()), ms(imported));
    for lowered in report.lowered.iter().flatten() {
        let plan = &lowered.plan;
        println!("          {} nodes became {} dispatches", model.graph.len(), plan.dispatches.len());
        let (peak, bound) = (mib(plan.memory.peak), mib(plan.memory.lower_bound));
        println!(
            "          intermediate tensors take {peak} (lower bound {bound}); without reuse {}",
            mib(plan.memory.naive)
        );
    }
    println!("bundle    {}, {}", bundle.display(), mib(report.summary.file_size));
    Ok(report)
}

fn load(bundle: &Path) -> Result<Session> {
    let start = Instant::now();
    let session = Session::load(bundle, &drift_runtime::Options::default())?;
    let stats = session.stats();
    println!(
        "load      {} in total, of which {} to open the device",
        ms(start.elapsed()),
        ms(stats.device_time)
    );
    println!("          {} pipelines, {} on the device", stats.pipelines, mib(stats.allocated_bytes));
    Ok(session)
}

fn shortened(sentence: &str) -> String {
    match sentence.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", sentence.get(..end).unwrap_or(sentence)),
        None => sentence.to_owned(),
    }
}

fn ms(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}
