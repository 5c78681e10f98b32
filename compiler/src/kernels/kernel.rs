//! Descriptions of kernels, their typed configurations, and candidates: a configuration with an estimated time.

use serde::de::DeserializeOwned;

use super::cost::{Estimate, Parameters};
use crate::error::OpError;
use crate::shader::launch::specialize_all;
use crate::shader::problem::Problem;
use crate::shader::{Launch, LaunchDraft, Shader};
use crate::target::MatrixScope;
use crate::target::costs::{self, parameter_names, typed};

/// Registers of an invocation for addresses and loop counters.
const ADDRESS_REGISTERS: u32 = 20;

/// One configuration of a kernel for a problem, with its estimated cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Names and values of the knobs of the kernel's configuration.
    pub knobs: Knobs,
    /// Time in nanoseconds, with every symbolic dimension at its upper bound: the estimate, or a measured time that
    /// replaced the estimate.
    pub cost: f64,
    /// Terms of the candidate's estimated time.
    pub estimate: Estimate,
    /// Text for the user that explains how the kernel runs and what the estimate counts.
    pub reason: String,
    /// Knob by whose value static facts count. Absent if each configuration has its own facts.
    pub(crate) facts_knob: Option<&'static str>,
    /// Estimate of the live 32-bit registers per invocation. Absent if the kernel has no estimate.
    pub(crate) registers: Option<u32>,
}

impl Candidate {
    /// Creates a candidate whose cost is its estimated time.
    pub(crate) fn new(config: &impl Configuration, estimate: Estimate, reason: impl Into<String>) -> Self {
        Self {
            knobs: config.knobs(),
            cost: estimate.combine(),
            estimate,
            reason: reason.into(),
            facts_knob: None,
            registers: None,
        }
    }

    /// Returns the candidate with static facts that count for all configurations with the same value of a knob. Then these facts
    /// do not change which of these configurations is cheapest.
    pub(crate) fn with_facts_by(self, knob: &'static str) -> Self {
        Self { facts_knob: Some(knob), ..self }
    }

    /// Returns the candidate with an estimate of the live 32-bit registers per invocation.
    pub(crate) fn with_registers(self, registers: u32) -> Self {
        Self { registers: Some(registers), ..self }
    }

    /// Returns the candidate with an estimate of the live registers per invocation: f32 vec4s, scalars, and an allowance for
    /// addresses and loop counters.
    pub(crate) fn with_live_values(self, vec4s: u32, scalars: u32) -> Self {
        self.with_registers(4 * vec4s + scalars + ADDRESS_REGISTERS)
    }

    /// Returns the candidate with another estimate and the cost that follows from it.
    pub(crate) fn with_estimate(self, estimate: Estimate) -> Self {
        Self { cost: estimate.combine(), estimate, ..self }
    }

    /// Returns the candidate's knobs as the kernel's typed configuration.
    ///
    /// # Errors
    /// If a knob is missing, unknown, or has an invalid value.
    pub(crate) fn config<C: Configuration>(&self) -> Result<C, OpError> {
        C::from_knobs(&self.knobs)
    }
}

/// Names and values of the knobs of a configuration, in the order of its fields. Displayed as `THREADS=64 ROWS=2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knobs(Vec<(&'static str, u32)>);

impl Knobs {
    /// Creates a list of knobs from their names and values.
    pub(crate) fn new(knobs: impl IntoIterator<Item = (&'static str, u32)>) -> Self {
        Self(knobs.into_iter().collect())
    }

    /// Iterates over the names and values of the knobs.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.0.iter().copied()
    }

    /// Returns the value of a knob, or `None` if there is no knob of that name.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns the value of the knob `name`, converted to the type of the configuration's field.
    ///
    /// # Errors
    /// If the knob is missing or has an invalid value.
    pub(crate) fn read<V: KnobValue>(&self, name: &str) -> Result<V, OpError> {
        let value = self.get(name);
        V::from_knob(value).ok_or_else(|| match value {
            None => OpError::new(format!("the configuration lacks the knob `{name}`")),
            Some(value) => OpError::new(format!("the knob `{name}` cannot be {value}")),
        })
    }

    /// Checks that the name of every knob is in `names`.
    ///
    /// # Errors
    /// If the name of a knob is not in `names`.
    pub(crate) fn check_names(&self, names: &[&str]) -> Result<(), OpError> {
        match self.iter().find(|(name, _)| !names.contains(name)) {
            None => Ok(()),
            Some((name, _)) => Err(OpError::new(format!("the kernel has no knob `{name}`"))),
        }
    }
}

impl std::fmt::Display for Knobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, (name, value)) in self.iter().enumerate() {
            let space = if i == 0 { "" } else { " " };
            write!(f, "{space}{name}={value}")?;
        }
        Ok(())
    }
}

/// Configuration of a kernel: a struct with one typed field per knob, declared with [`config!`].
pub(crate) trait Configuration: Sized {
    /// Returns the names and values of the knobs in the order of the fields. Optional knobs without a value are left out.
    fn knobs(&self) -> Knobs;

    /// Creates the configuration from the knobs of a candidate.
    ///
    /// # Errors
    /// If a knob is missing, unknown, or has an invalid value.
    fn from_knobs(knobs: &Knobs) -> Result<Self, OpError>;

    /// Sets the WGSL constant of every knob in a shader to the knob's value.
    fn declare(&self, shader: &mut Shader<'_>) {
        for (name, value) in self.knobs().iter() {
            shader.knob(name, value);
        }
    }
}

/// Type of a field of a [`Configuration`]: the value of one knob.
pub(crate) trait KnobValue: Copy {
    /// Converts the field's value to the number that the knob shows. Returns `None` if the configuration leaves the knob out.
    fn to_knob(self) -> Option<u32>;

    /// Converts the number of a knob to the value of its field. The argument is `None` if the knob is absent. Returns
    /// `None` if the number is invalid.
    fn from_knob(value: Option<u32>) -> Option<Self>;
}

impl KnobValue for u32 {
    fn to_knob(self) -> Option<u32> {
        Some(self)
    }

    fn from_knob(value: Option<u32>) -> Option<Self> {
        value
    }
}

impl KnobValue for bool {
    fn to_knob(self) -> Option<u32> {
        Some(self.into())
    }

    fn from_knob(value: Option<u32>) -> Option<Self> {
        value.filter(|value| *value <= 1).map(|value| value == 1)
    }
}

impl KnobValue for Option<u32> {
    fn to_knob(self) -> Option<u32> {
        self
    }

    fn from_knob(value: Option<u32>) -> Option<Self> {
        Some(value)
    }
}

/// Declares a struct with the knobs of a kernel and implements [`Configuration`] for it.
///
/// A line `THREADS => threads: u32` declares the knob `THREADS` in the field `threads`. Fields are `u32`, `bool`
/// (displayed as 0 or 1) or `Option<u32>` (displayed if present).
macro_rules! config {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $config:ident {
            $($(#[$field_meta:meta])* $knob:ident => $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $visibility struct $config {
            $($(#[$field_meta])* $visibility $field: $type,)*
        }

        impl $crate::kernels::kernel::Configuration for $config {
            fn knobs(&self) -> $crate::kernels::kernel::Knobs {
                use $crate::kernels::kernel::{KnobValue, Knobs};
                let knobs = [$((stringify!($knob), self.$field.to_knob())),*];
                Knobs::new(knobs.into_iter().filter_map(|(name, value)| Some((name, value?))))
            }

            fn from_knobs(knobs: &$crate::kernels::kernel::Knobs) -> Result<Self, $crate::error::OpError> {
                knobs.check_names(&[$(stringify!($knob)),*])?;
                Ok(Self { $($field: knobs.read(stringify!($knob))?,)* })
            }
        }
    };
}
pub(crate) use config;

config! {
    /// Configuration of kernels whose only knob is the workgroup size.
    pub(crate) struct ThreadsConfig {
        /// Invocations per workgroup.
        THREADS => threads: u32,
    }
}

/// Static description of a kernel.
#[derive(Debug)]
pub struct Kernel {
    /// Name of the kernel and of its two source files, without extension.
    pub name: &'static str,
    /// WGSL module of the kernel with default constants and hooks. It is a valid module before specialization.
    pub wgsl: &'static str,
    /// Returns the configurations in which the kernel can compute a problem, with their estimated times. The list is
    /// empty if the kernel cannot compute it.
    pub candidates: fn(&Problem<'_>) -> Vec<Candidate>,
    /// Returns the dispatches of a candidate, in order. A dispatch may read results of earlier dispatches. The WGSL is
    /// not specialized yet, so limits of the device can be checked at little cost.
    pub launches: fn(&Problem<'_>, &Candidate) -> Result<Vec<LaunchDraft>, OpError>,
    /// Scope of the cooperative matrices that the kernel uses: subgroup or workgroup. `None` if the kernel uses no
    /// cooperative matrices.
    pub matrices: Option<MatrixScope>,
    /// Groups of cost parameters that the kernel's estimate reads.
    pub params: &'static [Group],
    /// Operands that the kernel's result may overwrite (in place).
    pub in_place: InPlace,
}

impl Kernel {
    /// Returns the dispatches of a candidate, in order, with specialized WGSL.
    ///
    /// # Errors
    /// If the kernel cannot compute the problem with this configuration, or if its module cannot be specialized.
    pub fn specialized(&self, problem: &Problem<'_>, candidate: &Candidate) -> Result<Vec<Launch>, OpError> {
        specialize_all((self.launches)(problem, candidate)?)
    }
}

/// Group of cost parameters that a kernel's estimate reads: a table in the files of `targets/costs/`.
#[derive(Debug)]
pub struct Group {
    /// Name of the group in `targets/costs/`.
    pub name: &'static str,
    /// Checks that a group that was read from a cost file has exactly the parameters of this group.
    pub check: fn(&costs::Group) -> Result<(), String>,
    /// Returns the names of the group's parameters, in the order of the parameter struct's fields. The fit of cost
    /// parameters changes them in this order.
    pub parameters: fn() -> &'static [&'static str],
}

impl Group {
    /// Creates the group of a parameter struct that names its group (`Parameters::GROUP`).
    pub(crate) const fn from_parameters<P: Parameters>() -> Self {
        Self::named::<P>(P::GROUP)
    }

    /// Creates the group `name` of a parameter struct that several kernels use, each with its own group.
    pub(crate) const fn named<P: DeserializeOwned>(name: &'static str) -> Self {
        Self { name, check: |group| typed::<P>(group).map(|_| ()), parameters: parameter_names::<P> }
    }
}

/// Set of operands that a kernel's result may overwrite (in place).
///
/// An operand qualifies if every invocation reads it only at the elements that this invocation stores itself. The
/// kernel must also store each element of the result once, after its reads at that element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InPlace {
    /// The result may overwrite no operand.
    Nothing,
    /// The result may overwrite operands of the epilogue. An invocation reads them at the elements that it stores.
    Epilogue,
    /// The result may overwrite the first operand and the operands of the epilogue.
    FirstAndEpilogue,
    /// The result may overwrite any operand.
    All,
}

impl InPlace {
    /// True if the result may overwrite operand `index`. The first `arity` operands belong to the operator, the others
    /// to its epilogue.
    pub fn overwrites(self, index: usize, arity: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::Epilogue => index >= arity,
            Self::FirstAndEpilogue => index == 0 || index >= arity,
            Self::All => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Configuration, Knobs};
    use crate::kernels::KERNELS;
    use crate::kernels::cost::{Parameters, Thresholds};
    use crate::target::{TargetProfile, costs, names};

    super::config! {
        struct Config {
            THREADS => threads: u32,
            WHOLE => whole: bool,
            SPLIT => split: Option<u32>,
        }
    }

    #[test]
    fn configurations_keep_the_order_of_their_knobs() {
        let mut config = Config { threads: 64, whole: true, split: Some(4) };
        assert_eq!(config.knobs().to_string(), "THREADS=64 WHOLE=1 SPLIT=4");
        assert_eq!(Config::from_knobs(&config.knobs()).unwrap(), config);
        config.split = None;
        assert_eq!(config.knobs().to_string(), "THREADS=64 WHOLE=1");
        assert_eq!(Config::from_knobs(&config.knobs()).unwrap(), config);
    }

    #[test]
    fn missing_unknown_and_invalid_knobs_are_errors() {
        let refused = |knobs: &[(&'static str, u32)]| {
            Config::from_knobs(&Knobs::new(knobs.iter().copied())).unwrap_err().0
        };
        assert_eq!(refused(&[("WHOLE", 1)]), "the configuration lacks the knob `THREADS`");
        assert_eq!(refused(&[("THREADS", 64), ("WHOLE", 2)]), "the knob `WHOLE` cannot be 2");
        let unknown = refused(&[("THREADS", 64), ("WHOLE", 0), ("ROWS", 2)]);
        assert_eq!(unknown, "the kernel has no knob `ROWS`");
    }

    #[test]
    fn the_generic_file_has_the_parameters_of_every_kernel_and_no_others() {
        let groups = || KERNELS.iter().flat_map(|kernel| kernel.params.iter().map(move |g| (kernel, g)));
        for (kernel, group) in groups() {
            let numbers = costs::generic().get(group.name);
            let numbers = numbers.unwrap_or_else(|| panic!("{}: no group `{}`", kernel.name, group.name));
            (group.check)(numbers).unwrap_or_else(|e| panic!("{}, group `{}`: {e}", kernel.name, group.name));
        }
        let others = [crate::decompose::params::GROUP, crate::plan::params::GROUP, Thresholds::GROUP];
        let read: BTreeSet<&str> = groups().map(|(_, group)| group.name).chain(others).collect();
        let unread: Vec<&String> = costs::generic().keys().filter(|g| !read.contains(g.as_str())).collect();
        assert!(unread.is_empty(), "no kernel reads {unread:?}");
    }

    #[test]
    fn the_document_has_every_group_and_parameter() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/COST_MODEL.md");
        let document = std::fs::read_to_string(path).unwrap();
        for (group, numbers) in costs::generic() {
            for name in numbers.keys().chain([group]) {
                let found = document.contains(&format!("`{name}`"));
                assert!(found, "docs/COST_MODEL.md lacks `{name}` of group `{group}`");
            }
        }
    }

    #[test]
    fn every_profile_has_every_group_and_says_where_it_is_from() {
        for name in names() {
            let target = TargetProfile::load(name).unwrap();
            assert_eq!(target.costs.len(), costs::generic().len(), "{name}");
            for group in target.costs.keys() {
                let source = target.source_of(&format!("costs.{group}"));
                assert!(
                    source.is_some(),
                    "profile {name}: the cost parameters of group `{group}` state no source"
                );
            }
        }
    }
}
