//! Test bundle of a language model with a single kernel, and a reference implementation of the model.

use super::{at, dispatch, pipeline, port, words};
use drift_runtime::Bundle;
use drift_runtime::codec::BundleWriter;
use drift_runtime::format::{
    BindingKind, DeviceType, Expr, Feature, Features, Function, HostType, Provenance, Slot, SlotKind,
    StateSlot, Symbol, Variant,
};

pub(crate) const VOCABULARY: usize = 32;

/// Parameters of the language model for tests.
#[derive(Clone, Copy)]
pub(crate) struct Toy {
    pub(crate) context: u32,
    /// Numbers of token ids in one run of `prefill_long`, `prefill` and `verify`; 0 omits the function.
    pub(crate) long: u32,
    pub(crate) prefill: u32,
    pub(crate) verify: u32,
    /// True if function `verify` has the symbol `count`.
    pub(crate) counted: bool,
    /// True if logits depend on all tokens, not only on the last two.
    pub(crate) memory: bool,
    pub(crate) salt: u32,
    pub(crate) ids: HostType,
}

impl Default for Toy {
    fn default() -> Toy {
        Toy {
            context: 200,
            long: 0,
            prefill: 32,
            verify: 8,
            counted: false,
            memory: true,
            salt: 0,
            ids: HostType::I32,
        }
    }
}

impl Toy {
    pub(crate) fn bundle(&self) -> Bundle {
        self.edited(&|_| ())
    }

    /// Returns the bundle of the model, with its variant modified by `edit`.
    pub(crate) fn edited(&self, edit: &dyn Fn(&mut Variant)) -> Bundle {
        self.with_files(&[], edit)
    }

    /// Like [`Toy::edited`], with attached files, given by name and content.
    pub(crate) fn with_files(&self, files: &[(&str, String)], edit: &dyn Fn(&mut Variant)) -> Bundle {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("toy.drift");
        let mut writer = BundleWriter::create(&path).unwrap();
        let kernel = writer.spirv(&words(include_bytes!("../kernels/language.spv"))).unwrap();
        for (name, content) in files {
            writer.attach(name, content.as_bytes()).unwrap();
        }
        use BindingKind::{StorageRead as Read, StorageReadWrite as Write, Uniform};
        let sizes = [
            ("prefill_long", self.long, false),
            ("prefill", self.prefill, false),
            ("verify", self.verify, true),
            ("decode", 1, false),
        ];
        let mut variant = Variant {
            target: "any".to_owned(),
            pipelines: vec![pipeline("language", kernel, &[Read, Write, Write, Write, Write, Uniform], 1)],
            states: vec![
                StateSlot { name: "kv".to_owned(), size: u64::from(self.context) * 4 },
                StateSlot { name: "token".to_owned(), size: 4 },
            ],
            functions: sizes
                .iter()
                .filter(|(_, chunk, _)| *chunk > 0)
                .map(|(name, chunk, rows)| self.function(name, *chunk, *rows))
                .collect(),
            ..Variant::default()
        };
        variant.requirements.features = Features::NONE.with(Feature::SubgroupBasic);
        variant.requirements.limits.storage_alignment = 256;
        variant.requirements.limits.uniform_alignment = 256;
        variant.requirements.limits = variant.needed_limits();
        edit(&mut variant);
        writer.finish(Provenance::default(), vec![variant]).unwrap();
        Bundle::from_vec(std::fs::read(&path).unwrap()).unwrap()
    }

    fn function(&self, name: &str, chunk: u32, rows: bool) -> Function {
        let constant = |value: u32| Expr::constant(i64::from(value));
        let n_rows = if rows { chunk } else { 1 };
        let vocabulary = u32::try_from(VOCABULARY).unwrap();
        let mut symbols =
            vec![Symbol { name: "past".to_owned(), min: 0, max: i64::from(self.context - chunk) }];
        // A function with a row for each id does not need symbol `count`.
        let counts = chunk > 1 && (!rows || self.counted);
        if counts {
            symbols.push(Symbol { name: "count".to_owned(), min: 1, max: i64::from(chunk) });
        }
        // The kernel ignores symbol `length`, but the generator must set it.
        if self.counted {
            symbols.push(Symbol { name: "length".to_owned(), min: 20, max: i64::from(self.context) });
        }
        let (past, count) = (Expr::symbol(0), if counts { Expr::symbol(1) } else { constant(1) });
        let mut next = port("next", HostType::I32, DeviceType::I32, vec![constant(n_rows)], 1);
        if !rows {
            next.shape = vec![constant(1)];
        }
        let logits =
            port("logits", HostType::F32, DeviceType::F32, vec![constant(n_rows), constant(vocabulary)], 2);
        let sizes = [chunk * 4, n_rows * 4, n_rows * vocabulary * 4, self.context * 4, 4, 24].map(u64::from);
        let kinds = [
            SlotKind::Input(0),
            SlotKind::Output(0),
            SlotKind::Output(1),
            SlotKind::State(0),
            SlotKind::State(1),
            SlotKind::Params,
        ];
        let order: [u32; 6] = [0, 3, 4, 1, 2, 5];
        let bindings = order.map(|slot| at(slot, 0, sizes[slot as usize]));
        let mut step = dispatch(0, &bindings, [1, 1, 1]);
        step.params = vec![
            past,
            count,
            constant(chunk),
            constant(rows.into()),
            constant(self.memory.into()),
            constant(self.salt),
        ];
        Function {
            name: name.to_owned(),
            symbols,
            inputs: vec![port("ids", self.ids, DeviceType::I32, vec![constant(1), constant(chunk)], 0)],
            outputs: vec![next, logits],
            slots: kinds.into_iter().zip(sizes).map(|(kind, size)| Slot { kind, size }).collect(),
            dispatches: vec![step],
            ..Function::default()
        }
    }

    /// Returns the logits after these tokens, as the kernel computes them.
    pub(crate) fn logits(&self, tokens: &[u32]) -> Vec<f32> {
        let mut state = 0u32;
        if self.memory {
            for (at, id) in (0u32..).zip(tokens) {
                let sum = state.wrapping_mul(31).wrapping_add(id + 1);
                state = mix(sum.wrapping_add(at.wrapping_mul(1000)));
            }
        } else {
            let last: Vec<u32> = tokens.iter().rev().take(2).map(|id| id + 1).collect();
            state = mix(last[0].wrapping_add(last.get(1).map_or(0, |id| id * 100)));
        }
        if self.salt != 0 && state.is_multiple_of(4) {
            state = state.wrapping_add(self.salt);
        }
        let logit = |id: u32| (mix(state.wrapping_add(id.wrapping_mul(7919))) % 1000) as f32 / 100.0;
        (0..32).map(logit).collect()
    }

    /// Returns the prompt followed by `n` tokens of greedy decoding.
    pub(crate) fn greedy(&self, prompt: &[u32], n: usize) -> Vec<u32> {
        let mut tokens = prompt.to_vec();
        for _ in 0..n {
            let logits = self.logits(&tokens);
            let best = (0..logits.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
            tokens.push(u32::try_from(best.unwrap()).unwrap());
        }
        tokens
    }
}

fn mix(value: u32) -> u32 {
    let x = (value ^ (value >> 16)).wrapping_mul(0x7feb_352d);
    let x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}
