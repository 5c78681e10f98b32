//! Facts about a compiled pipeline: a driver's statistics under names that all drivers share.

use std::collections::BTreeMap;

use super::shader_uses::ShaderUses;
use super::worker::Compiled;
use crate::drivers::{Driver, Fact};

/// Facts about a compiled pipeline.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) values: BTreeMap<Fact, f64>,
    /// True if the machine code has instructions that multiply matrices; `None` if the shader needs none.
    pub(crate) matrix_instructions: Option<bool>,
    /// True if the machine code has dot products of packed integers; `None` if the shader needs none.
    pub(crate) dot_instructions: Option<bool>,
}

/// Returns the facts about a compiled pipeline whose shader is written for the instructions `uses`.
pub(crate) fn facts(compiled: &Compiled, uses: ShaderUses, driver: &Driver) -> Facts {
    let statistic = |name: &String| {
        let mut known = compiled.statistics.iter();
        known.find(|(known, _)| known == name).map(|(_, value)| *value)
    };
    let mut facts = Facts::default();
    for (fact, names) in &driver.statistics {
        let values: Vec<f64> = names.iter().filter_map(statistic).collect();
        if !values.is_empty() {
            facts.values.insert(*fact, values.iter().sum());
        }
    }
    let emitted = |parts: &[String]| {
        let known = !parts.is_empty() && !compiled.texts.is_empty();
        known.then(|| {
            compiled.texts.iter().any(|(_, text)| parts.iter().any(|part| text.contains(part.as_str())))
        })
    };
    if uses.matrices {
        facts.matrix_instructions = emitted(&driver.matrix_instructions);
    }
    if uses.dot_products {
        facts.dot_instructions = emitted(&driver.dot_instructions);
    }
    facts
}
