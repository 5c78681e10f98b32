//! The table: for each option of a command and each kind of input, what happens.

use super::Outcome::{self, Acts, Creates, Elsewhere, Fails, Like, Shows, Warns};

/// An option of some commands.
pub(crate) struct Row {
    pub(crate) commands: &'static [&'static str],
    pub(crate) option: &'static str,
    /// Arguments with the option for each kind of input: ONNX model, GGUF file, folder, bundle. `{..}` stands for a
    /// file of the test's folder.
    pub(crate) args: [&'static str; 4],
    /// Outcome for each kind of input.
    pub(crate) outcomes: [Outcome; 4],
}

const COMPILE: &[&str] = &["compile"];
const RUN: &[&str] = &["run"];
const TEXT: &[&str] = &["generate", "chat"];
const BENCH: &[&str] = &["bench"];
const RUN_AND_TEXT: &[&str] = &["run", "generate", "chat"];
/// Commands that compile a model as `compile` does.
const LIKE_COMPILE: &[&str] = &["estimate", "verify"];
const NO_BUNDLE: Outcome = Fails("is a bundle, but");
const NEEDS_MODEL: Outcome = Fails("needs a model, but");

const fn row(
    commands: &'static [&'static str],
    option: &'static str,
    args: [&'static str; 4],
    outcomes: [Outcome; 4],
) -> Row {
    Row { commands, option, args, outcomes }
}

/// A row of an option that does the same for every model. It is checked for an ONNX model.
const fn model_row(
    commands: &'static [&'static str],
    option: &'static str,
    args: &'static str,
    outcome: Outcome,
) -> Row {
    row(commands, option, [args; 4], [outcome, Like("ONNX"), Like("ONNX"), NO_BUNDLE])
}

/// A row of an option that does the same for every input of a command, and that another test checks.
const fn tested_row(commands: &'static [&'static str], option: &'static str, test: &'static str) -> Row {
    row(commands, option, [option; 4], [Elsewhere(test); 4])
}

/// A row of an option of `bench`, which compiles models into bundles.
const fn bench_row(option: &'static str, args: &'static str, outcome: Outcome) -> Row {
    row(BENCH, option, [args; 4], [outcome, Like("ONNX"), Like("ONNX"), outcome])
}

/// A row of a model option of `bench`.
const fn bench_model_row(option: &'static str, args: &'static str) -> Row {
    row(BENCH, option, [args; 4], [Like("compile"), Like("compile"), Like("compile"), NEEDS_MODEL])
}

/// Outcome of an option that acts. Where the code of `compile` reads the option, only refusals are checked again.
const fn acts(checked: bool) -> Outcome {
    if checked { Acts } else { Like("compile") }
}

/// Outcome of an option that warns; see [`acts`].
const fn warns(checked: bool, text: &'static str) -> Outcome {
    if checked { Warns(text) } else { Like("compile") }
}

/// Rows of the model options about inputs and their sizes. Commands that read a model as `compile` does have equal outcomes.
const fn size_options(commands: &'static [&'static str], bundle: Outcome, checked: bool) -> [Row; 5] {
    let lm = acts(checked);
    [
        row(
            commands,
            "--dim",
            ["--dim N=2..3", "--dim context=24", "--dim context=24", "--dim N=2..3"],
            [lm, lm, lm, bundle],
        ),
        row(
            commands,
            "--dim",
            ["--dim M=3", "--dim ctx=24", "--dim foo=3", "--dim foo=3"],
            [
                Fails("no symbolic size `M`"),
                Fails("did you mean `context`?"),
                Fails("the model has no size `foo`"),
                bundle,
            ],
        ),
        row(
            commands,
            "--const",
            ["--const scale=2", "--const input_ids=1", "--const input_ids=1", "--const scale=2"],
            [lm, Fails("--const input_ids has no effect"), Fails("--const input_ids has no effect"), bundle],
        ),
        row(
            commands,
            "--like",
            ["--like {x}", "--like input_ids={batch}", "--like input_ids={batch}", "--like {x}"],
            [
                lm,
                warns(checked, "no functions that generate text"),
                warns(checked, "no functions that generate text"),
                bundle,
            ],
        ),
        row(
            commands,
            "--shape",
            ["--shape x=N,3,6,4", "--shape input_ids=1,N", "--shape input_ids=1,N", "--shape x=N,3,6,4"],
            [lm, Fails("needs an ONNX model"), Fails("needs an ONNX model"), bundle],
        ),
    ]
}

/// Rows of the model options about the storage of numbers. `two` is the outcome of two options for a bundle.
const fn storage_options(
    commands: &'static [&'static str],
    bundle: Outcome,
    two: Outcome,
    checked: bool,
) -> [Row; 7] {
    let lm = acts(checked);
    [
        row(commands, "--precision", ["--precision f16"; 4], [lm, lm, lm, bundle]),
        row(
            commands,
            "--weights",
            ["--weights q8"; 4],
            [warns(checked, "filters of few channels (432 B) are not quantized"), lm, lm, bundle],
        ),
        row(
            commands,
            "--calibrate",
            ["--weights q8 --calibrate {ids}"; 4],
            [Fails("--calibrate needs"), lm, lm, two],
        ),
        row(
            commands,
            "--activations",
            ["--weights q8 --activations q8"; 4],
            [Fails("--activations has no effect"), lm, lm, two],
        ),
        row(
            commands,
            "--kv-cache",
            ["--kv-cache q8"; 4],
            [Fails("--kv-cache has no effect"), lm, lm, bundle],
        ),
        row(
            commands,
            "--kv-cache",
            ["--kv-cache f16"; 4],
            [Fails("--kv-cache has no effect"), Like("default"), Like("default"), bundle],
        ),
        row(
            commands,
            "--batch-invariant",
            ["--batch-invariant"; 4],
            [Fails("no functions `verify` and `decode`"), lm, lm, bundle],
        ),
    ]
}

/// Rows of the options that are not model options.
const OTHER: &[Row] = &[
    row(COMPILE, "--target", ["-t adreno-740"; 4], [Acts, Acts, Acts, NO_BUNDLE]),
    model_row(COMPILE, "--output", "-t lavapipe", Creates),
    model_row(COMPILE, "--tuning", "--tuning {tuning}", Warns("has no measurements for lavapipe")),
    row(
        &["compile", "estimate"],
        "--specialize",
        ["--specialize N=2", "--specialize past=3", "--specialize past=3", "--specialize N=2"],
        [Acts, Fails("has no effect"), Fails("has no effect"), NO_BUNDLE],
    ),
    model_row(COMPILE, "--specialize", "--specialize Z=1", Fails("no symbolic size `Z` to specialize")),
    tested_row(COMPILE, "--sign", "cli/signatures.rs"),
    tested_row(COMPILE, "--self-test", "cli/self_tests.rs"),
    tested_row(COMPILE, "--optimize", "cli/reports.rs"),
    row(
        COMPILE,
        "--link",
        ["--link m.y=m.scale"; 4],
        [Fails("cannot be linked"), Fails("is no ONNX file"), Fails("is no ONNX file"), NO_BUNDLE],
    ),
    model_row(COMPILE, "--emit-dir", "--emit-dir {new}", Creates),
    tested_row(COMPILE, "--threads", "cli.rs"),
    model_row(COMPILE, "--json", "--json", Shows("\"undeduplicated_weight_bytes\"")),
    model_row(&["estimate"], "--target", "-t nvidia-ada", Shows("nvidia-ada: ")),
    model_row(&["estimate"], "--nodes", "--nodes 0", Acts),
    model_row(LIKE_COMPILE, "--tuning", "--tuning {tuning}", Warns("has no measurements for")),
    model_row(&["estimate"], "--json", "--json", Shows("\"most_expensive\"")),
    model_row(&["verify"], "--target", "-t vulkan-baseline", Shows("for vulkan-baseline")),
    model_row(&["verify"], "--input", "--input {x}", Shows("verified")),
    model_row(&["verify"], "--expect", "--input {x} --expect y={y}", Fails("compared with the file")),
    row(&["verify"], "--rtol", ["--rtol x"; 4], [Fails("write a number"); 4]),
    row(&["verify"], "--atol", ["--atol x"; 4], [Fails("write a number"); 4]),
    tested_row(&["verify"], "--optimize", "cli/reports.rs"),
    model_row(&["verify"], "--device", "--device no-such-device", Fails("no-such-device")),
    model_row(&["verify"], "--json", "--json", Shows("\"first_bad_tensor\"")),
    tested_row(RUN, "--input", "cli.rs"),
    tested_row(RUN, "--output-dir", "cli.rs"),
    row(
        RUN,
        "--positional",
        ["--positional"; 4],
        [Fails("--output-dir"), Fails("--output-dir"), Fails("--output-dir"), Fails("--output-dir")],
    ),
    tested_row(RUN, "--function", "cli.rs"),
    tested_row(RUN, "--repeat", "cli.rs"),
    tested_row(RUN, "--trace", "cli.rs"),
    row(
        RUN,
        "--target",
        ["-t nothing"; 4],
        [
            Fails("no target is called `nothing`"),
            Fails("no target is called `nothing`"),
            Fails("no target is called `nothing`"),
            Fails("`nothing`"),
        ],
    ),
    row(
        RUN,
        "--cache-dir",
        ["--cache-dir {new}"; 4],
        [Creates, Like("ONNX"), Like("ONNX"), Fails("--cache-dir needs a model")],
    ),
    row(RUN, "--device", ["--device no-such-device"; 4], [Fails("no-such-device"); 4]),
    row(
        RUN,
        "--pipeline-cache",
        ["--pipeline-cache {new}"; 4],
        [Creates, Like("ONNX"), Like("ONNX"), Creates],
    ),
    tested_row(RUN, "--json", "cli.rs"),
    row(
        TEXT,
        "--target",
        ["-t nothing"; 4],
        [
            Fails("no target is called `nothing`"),
            Fails("no target is called `nothing`"),
            Fails("no target is called `nothing`"),
            Fails("`nothing`"),
        ],
    ),
    row(TEXT, "--device", ["--device no-such-device"; 4], [Fails("no-such-device"); 4]),
    tested_row(TEXT, "--cache-dir", "first_run.rs"),
    tested_row(TEXT, "--pipeline-cache", "cli.rs"),
    tested_row(TEXT, "--system", "talk.rs"),
    tested_row(TEXT, "--max-tokens", "talk.rs"),
    tested_row(TEXT, "--temperature", "talk.rs"),
    tested_row(TEXT, "--top-k", "talk.rs"),
    tested_row(TEXT, "--top-p", "talk.rs"),
    row(TEXT, "--min-p", ["--min-p 2"; 4], [Fails("min_p"); 4]),
    tested_row(TEXT, "--stop", "talk.rs"),
    tested_row(TEXT, "--system-file", "talk.rs"),
    row(
        TEXT,
        "--repetition-penalty",
        ["--repetition-penalty -1"; 4],
        [Fails("repetition"), Fails("repetition"), Fails("repetition"), Fails("repetition")],
    ),
    row(TEXT, "--seed", ["--seed x"; 4], [Fails("invalid value 'x'"); 4]),
    tested_row(TEXT, "--draft", "talk.rs"),
    tested_row(&["chat"], "--no-history", "talk/terminal.rs"),
    tested_row(&["generate"], "--prompt", "talk.rs"),
    tested_row(&["generate"], "--prompt-file", "talk.rs"),
    tested_row(&["generate"], "--json", "talk.rs"),
    tested_row(&["generate"], "--ids", "talk.rs"),
    tested_row(&["generate"], "--ids-out", "talk.rs"),
    tested_row(&["generate"], "--chat", "talk.rs"),
    bench_row("--function", "--function nope", Fails("no function `nope`")),
    bench_row("--dim", "--dim N=1", Shows("N=1")),
    row(BENCH, "--dim", ["--dim N=1..2"; 4], [Shows("N=2"), Like("ONNX"), Like("ONNX"), Fails("N")]),
    bench_row("--dim", "--dim Z=1", Fails("no symbolic size `Z`")),
    bench_row("--repeat", "--repeat 1 --json", Shows("\"runs\": 1")),
    bench_row("--top", "--top 1 --repeat 1", Acts),
    bench_row("--target", "-t nothing", Fails("`nothing`")),
    bench_row("--device", "--device no-such-device", Fails("no-such-device")),
    bench_row("--pipeline-cache", "--repeat 1 --pipeline-cache {new}", Creates),
    bench_row("--profile", "--repeat 1 --profile nvidia-ada --json", Shows("\"profile\": \"nvidia-ada\"")),
    bench_row("--trace", "--repeat 1 --trace {new}", Creates),
    bench_model_row("--const", "--const scale=2"),
    bench_model_row("--like", "--like {x}"),
    bench_model_row("--shape", "--shape x=N,3,6,4"),
    bench_model_row("--precision", "--precision f16"),
    bench_model_row("--weights", "--weights q8"),
    row(
        BENCH,
        "--calibrate",
        ["--weights q8 --calibrate {ids}"; 4],
        [Like("compile"), Like("compile"), Like("compile"), Fails("need a model, but")],
    ),
    row(
        BENCH,
        "--activations",
        ["--weights q8 --activations q8"; 4],
        [Like("compile"), Like("compile"), Like("compile"), Fails("need a model, but")],
    ),
    bench_model_row("--kv-cache", "--kv-cache q8"),
    bench_model_row("--batch-invariant", "--batch-invariant"),
    row(
        BENCH,
        "--cache-dir",
        ["--repeat 1 --cache-dir {new}"; 4],
        [Creates, Like("ONNX"), Like("ONNX"), Fails("--cache-dir needs a model")],
    ),
    tested_row(BENCH, "--prompt-tokens", "cli/models.rs"),
    tested_row(BENCH, "--decode-tokens", "cli/models.rs"),
    bench_row("--json", "--repeat 1 --json", Shows("\"floor_ms\"")),
];

/// Returns all rows.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(size_options(COMPILE, NO_BUNDLE, true));
    rows.extend(storage_options(COMPILE, NO_BUNDLE, NO_BUNDLE, true));
    rows.extend(size_options(LIKE_COMPILE, NO_BUNDLE, false));
    rows.extend(storage_options(LIKE_COMPILE, NO_BUNDLE, NO_BUNDLE, false));
    rows.extend(size_options(RUN_AND_TEXT, NEEDS_MODEL, false));
    rows.extend(storage_options(RUN_AND_TEXT, NEEDS_MODEL, Fails("need a model, but"), false));
    rows.extend(OTHER.iter().map(|r| row(r.commands, r.option, r.args, r.outcomes)));
    rows
}
