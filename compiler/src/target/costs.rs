//! Cost parameters of kernels: numbers that were fitted to measurements of a device, in groups.
//!
//! A group is a struct that one kernel, or several kernels with a common shader, declares. `targets/costs/generic.toml`
//! has all groups. The file of a profile has the parameters that differ on its device. Profiles inherit from each
//! other. This module does not know the kernels: a parameter is valid if the generic file has it with an equal number
//! of values.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::{Deserialize, Serialize, forward_to_deserialize_any};

use drift_targets::GENERIC_COSTS;

use super::TargetError;

/// Value of a cost parameter: one number or a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Number {
    One(f64),
    Many(Vec<f64>),
}

impl Number {
    /// Returns the value of a cost parameter as a slice.
    pub fn values(&self) -> &[f64] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }

    /// Returns the value of a cost parameter as a mutable slice.
    pub fn values_mut(&mut self) -> &mut [f64] {
        match self {
            Self::One(value) => std::slice::from_mut(value),
            Self::Many(values) => values,
        }
    }
}

/// Cost parameters of a group, by name.
pub type Group = BTreeMap<String, Number>;

/// Groups of cost parameters, by name.
pub type Costs = BTreeMap<String, Group>;

/// Accuracy of the estimates and of the selection, over the measurements that the parameters were fitted to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// Number of problems with more than one measured candidate.
    pub problems: u32,
    /// Maximum regret: time of the selected candidate divided by the time of the fastest candidate.
    pub worst: f64,
    /// 95th percentile of the regret.
    pub regret: f64,
    /// 90th percentile of the factor between measured and estimated time of the selected candidates: the longer time divided by
    /// the shorter one.
    pub margin: f64,
}

/// True if a value is in the range of its cost parameter: positive, and at most 1 if the parameter's name ends in
/// `_fraction`.
pub fn is_in_range(parameter: &str, value: f64) -> bool {
    let max = if parameter.ends_with("_fraction") { 1.0 } else { f64::MAX };
    value > 0.0 && value <= max
}

/// Converts a group of cost parameters to its typed struct.
///
/// # Errors
/// If a parameter is missing, unknown or of another type.
pub fn typed<P: DeserializeOwned>(group: &Group) -> Result<P, String> {
    let numbers = group.iter().map(|(name, number)| (name.as_str(), number));
    P::deserialize(MapDeserializer::<_, Error>::new(numbers)).map_err(|e| e.to_string())
}

/// Returns the typed parameters of the group `name`. Returns `None` if the group or a parameter is missing or a parameter
/// is unknown, which loading a profile rules out.
pub fn read_group<P: DeserializeOwned>(costs: &Costs, name: &str) -> Option<P> {
    typed(costs.get(name)?).ok()
}

/// Returns the names of the cost parameters of a typed group, in the order of the struct's fields.
pub fn parameter_names<P: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // Always an error: the deserializer only records the fields that the struct asks for.
    let _ = P::deserialize(FieldNames(&mut names));
    names
}

struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("not a struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(serde::de::Error::custom("this deserializer only collects the names of a struct's fields"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
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

/// Generic cost parameters, which every profile starts from.
static GENERIC: LazyLock<Costs> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        costs: Costs,
    }
    toml::from_str::<File>(GENERIC_COSTS).map(|file| file.costs).unwrap_or_default()
});

/// Returns the generic cost parameters, for devices without measurements.
pub fn generic() -> &'static Costs {
    &GENERIC
}

/// Checks that all cost parameters of a file exist in `targets/costs/generic.toml` and are positive.
pub(super) fn check(costs: &Costs, fit: Option<&Fit>, file: &str) -> Result<(), TargetError> {
    const HELP: &str = "`driftc calibrate` writes files of cost parameters; targets/costs/generic.toml has all parameter names";
    let wrong =
        |field: String, reason: &str| Err(TargetError::field(file, &format!("costs.{field}"), reason, HELP));
    for (name, group) in costs {
        let Some(known) = GENERIC.get(name) else {
            return wrong(name.clone(), "no kernel has this group of cost parameters");
        };
        for (parameter, number) in group {
            let field = format!("{name}.{parameter}");
            let Some(like) = known.get(parameter) else {
                return wrong(field, "no kernel has this cost parameter");
            };
            if like.values().len() != number.values().len() {
                return wrong(
                    field,
                    "the number of values differs from the parameter in targets/costs/generic.toml",
                );
            }
            if !number.values().iter().all(|v| v.is_finite() && *v > 0.0) {
                return wrong(field, "the value of this cost parameter is not a positive number");
            }
        }
    }
    let ratios = fit.map_or([1.0; 3], |fit| [fit.worst, fit.regret, fit.margin]);
    if !ratios.iter().all(|v| v.is_finite() && *v >= 1.0) {
        return Err(TargetError::field(
            file,
            "fit",
            "`worst`, `regret` and `margin` must be numbers of at least 1",
            HELP,
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Costs, generic, is_in_range};
    use crate::target::{COSTS, TargetProfile};

    fn check(name: &str, costs: &Costs) {
        for (group, numbers) in costs {
            for (parameter, number) in numbers {
                for value in number.values() {
                    assert!(is_in_range(parameter, *value), "{name}: costs.{group}.{parameter} = {value}");
                }
            }
        }
    }

    #[test]
    fn parameters_are_in_their_range() {
        check("generic", generic());
        for (name, _) in COSTS {
            check(name, &TargetProfile::load(name).unwrap().costs);
        }
    }

    #[test]
    fn a_fraction_is_at_most_one() {
        assert!(is_in_range("peak_fraction", 1.0) && is_in_range("peak_ratio", 3.5));
        assert!(!is_in_range("peak_fraction", 1.01) && !is_in_range("peak_ratio", 0.0));
    }
}
