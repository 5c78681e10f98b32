//! Parameters of kernels' estimates: numbers that were fitted to measurements of a device, in groups.
//!
//! A group is what one kernel, or several that share a shader, declare as a struct. `targets/costs/generic.toml` has all
//! of them; the file of a profile there has those that differ on its device, and profiles inherit from each other. Which
//! kernel reads a group is not known here: a name is right that the generic file has, with as many numbers.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::{Deserialize, Serialize, forward_to_deserialize_any};

use super::{TargetError, builtin};

/// One parameter, or one for each of several things.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Number {
    One(f64),
    Many(Vec<f64>),
}

impl Number {
    /// The numbers.
    pub fn values(&self) -> &[f64] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }

    /// The numbers, to be changed.
    pub fn values_mut(&mut self) -> &mut [f64] {
        match self {
            Self::One(value) => std::slice::from_mut(value),
            Self::Many(values) => values,
        }
    }
}

/// The parameters of a group by name.
pub type Group = BTreeMap<String, Number>;

/// All groups by name.
pub type Costs = BTreeMap<String, Group>;

/// How well estimates tell times and pick candidates, over the measurements that the parameters were fitted to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// Problems with more than one candidate measured.
    pub problems: u32,
    /// How many times as long as the fastest candidate the picked one takes: the worst, and at the 95th percentile.
    pub worst: f64,
    pub regret: f64,
    /// How many times as long, or as short, as estimated a picked candidate takes, at the 90th percentile.
    pub margin: f64,
}

/// A group as its typed struct.
///
/// # Errors
/// When a parameter is missing, unknown or of another kind.
pub fn typed<P: DeserializeOwned>(group: &Group) -> Result<P, String> {
    let numbers = group.iter().map(|(name, number)| (name.as_str(), number));
    P::deserialize(MapDeserializer::<_, Error>::new(numbers)).map_err(|e| e.to_string())
}

impl<'de> IntoDeserializer<'de, Error> for &'de Number {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for &'de Number {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Number::One(value) => visitor.visit_f64(*value),
            Number::Many(values) => visitor.visit_seq(SeqDeserializer::new(values.iter().copied())),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// What every profile starts from.
static GENERIC: LazyLock<Costs> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        costs: Costs,
    }
    toml::from_str::<File>(builtin::GENERIC_COSTS).map(|file| file.costs).unwrap_or_default()
});

/// The parameters for devices that nobody measured.
pub fn generic() -> &'static Costs {
    &GENERIC
}

/// Whether these are parameters that kernels have.
pub(super) fn check(costs: &Costs, fit: Option<&Fit>, file: &str) -> Result<(), TargetError> {
    const HELP: &str =
        "`driftc calibrate` and a fit write such a file; targets/costs/generic.toml has all names";
    let wrong =
        |field: String, reason: &str| Err(TargetError::field(file, &format!("costs.{field}"), reason, HELP));
    for (name, group) in costs {
        let Some(known) = GENERIC.get(name) else {
            return wrong(name.clone(), "no kernel has such parameters");
        };
        for (parameter, number) in group {
            let field = format!("{name}.{parameter}");
            let Some(like) = known.get(parameter) else {
                return wrong(field, "the kernel has no such parameter");
            };
            if like.values().len() != number.values().len() {
                return wrong(field, "there are not as many numbers as the kernel has");
            }
            if !number.values().iter().all(|v| v.is_finite() && *v > 0.0) {
                return wrong(field, "it is not a positive number");
            }
        }
    }
    let ratios = fit.map_or([1.0; 3], |fit| [fit.worst, fit.regret, fit.margin]);
    if !ratios.iter().all(|v| v.is_finite() && *v >= 1.0) {
        return Err(TargetError::field(file, "fit", "a ratio is less than one", HELP));
    }
    Ok(())
}
