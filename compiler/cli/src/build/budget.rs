//! Budgets of artifacts: limits that fail a build.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::build::record::Record;
use crate::build::sizes::Bytes;
use crate::output::{bytes, nanoseconds};

/// Limits of an artifact.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Budget {
    /// Maximum size of the file.
    pub(crate) bytes: Option<Bytes>,
    /// Maximum memory of intermediate tensors, for every target.
    pub(crate) memory: Option<Bytes>,
    /// Maximum estimated milliseconds of a run at the largest sizes, by target.
    #[serde(default)]
    pub(crate) time_ms: BTreeMap<String, Time>,
}

/// Limit of estimated times in milliseconds: for every function, or by function.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Time {
    Every(f64),
    ByFunction(BTreeMap<String, f64>),
}

impl Time {
    fn of(&self, function: &str) -> Option<f64> {
        match self {
            Self::Every(ms) => Some(*ms),
            Self::ByFunction(limits) => limits.get(function).copied(),
        }
    }
}

impl Budget {
    /// Returns what exceeds the budget, with the numbers, and limits for targets or functions that do not exist.
    pub(crate) fn exceeded_by(&self, record: &Record) -> Vec<String> {
        let mut exceeded = Vec::new();
        let mut check = |what: String, value: u64, limit: Option<Bytes>| {
            if let Some(Bytes(limit)) = limit.filter(|limit| value > limit.0) {
                exceeded.push(format!(
                    "{what} {}, {} more than the budget of {}",
                    bytes(value),
                    bytes(value - limit),
                    bytes(limit)
                ));
            }
        };
        check("the bundle has".to_owned(), record.bytes, self.bytes);
        for target in &record.targets {
            check(format!("intermediate tensors for {} take", target.target), target.memory, self.memory);
        }
        for (name, limits) in &self.time_ms {
            let Some(target) = record.targets.iter().find(|t| t.target.eq_ignore_ascii_case(name)) else {
                exceeded.push(format!("time-ms has the target `{name}`, for which nothing is compiled"));
                continue;
            };
            for function in &target.functions {
                if let Some(limit) =
                    limits.of(&function.name).filter(|limit| function.estimated_ns as f64 > limit * 1e6)
                {
                    let (estimated, limit) =
                        (nanoseconds(function.estimated_ns as f64), nanoseconds(limit * 1e6));
                    exceeded.push(format!(
                        "{} for {name} takes {estimated} by estimate; the budget is {limit}",
                        function.name
                    ));
                }
            }
            if let Time::ByFunction(limits) = limits {
                let known = |name: &String| target.functions.iter().any(|f| f.name == *name);
                let unknown = limits.keys().filter(|name| !known(name));
                exceeded.extend(unknown.map(|name| format!("time-ms has `{name}`, which is no function")));
            }
        }
        exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;
    use crate::build::record::{FunctionRecord, Record, TargetRecord};

    fn record() -> Record {
        let functions = vec![FunctionRecord { name: "main".into(), estimated_ns: 2_000_000 }];
        let targets = vec![TargetRecord { target: "android-15".into(), memory: 4096, functions }];
        Record { key: String::new(), bundle: "00".into(), bytes: 1000, targets, notes: Vec::new() }
    }

    fn exceeded(budget: &str) -> Vec<String> {
        toml::from_str::<Budget>(budget).unwrap().exceeded_by(&record())
    }

    #[test]
    fn limits_state_their_numbers() {
        assert!(exceeded("bytes = 1000\nmemory = \"4 KiB\"\ntime-ms = { android-15 = 2.0 }").is_empty());
        assert_eq!(exceeded("bytes = 976"), ["the bundle has 1000 B, 24 B more than the budget of 976 B"]);
        assert_eq!(exceeded("memory = \"3 KiB\"").len(), 1);
        assert_eq!(
            exceeded("time-ms = { android-15 = 1.5 }"),
            ["main for android-15 takes 2.00 ms by estimate; the budget is 1.50 ms"]
        );
        assert_eq!(exceeded("time-ms = { android-15 = { main = 1.5 } }").len(), 1);
    }

    #[test]
    fn limits_that_cannot_apply_are_reported() {
        assert_eq!(exceeded("time-ms = { adreno = 1.0 }").len(), 1);
        assert_eq!(exceeded("time-ms = { android-15 = { decode = 9.0 } }").len(), 1);
        assert!(toml::from_str::<Budget>("size = 3").is_err());
    }
}
