//! Static facts: what the compiler of a device's driver made of the kernels' configurations. `driftc calibrate --static` writes
//! them to `targets/static/`; they need a driver, but no device.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// Facts about kernels that a driver compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticFacts {
    /// Name and version of the driver.
    pub driver: String,
    /// Name of the device that the driver compiled for.
    pub device: String,
    /// Facts by the name of the kernel. A kernel that is not listed was not compiled.
    #[serde(default)]
    pub kernels: BTreeMap<String, KernelFacts>,
}

/// Facts about one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelFacts {
    /// First digits of the hash of the kernel's source. The facts hold for this source only.
    pub source: String,
    /// Number of distinct shaders that were compiled, over all configurations.
    pub shaders: u32,
    /// Facts by configuration (`THREADS=64 QUERIES=16`). Configurations that never spill and keep the device occupied are not
    /// listed.
    #[serde(default)]
    pub configurations: BTreeMap<String, ConfigurationFacts>,
}

/// Facts about one configuration of a kernel, over all problems for which it was compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigurationFacts {
    /// Number of distinct shaders.
    pub shaders: u32,
    /// Number of shaders with spills.
    pub spilling: u32,
    /// Number of shaders that the driver refused, that crashed it, or that took a minute to compile.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u32,
    /// Maximum number of spills in one shader.
    pub spills: u32,
    /// Minimum number of subgroups that an execution unit runs at once. Absent if the driver does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl StaticFacts {
    /// Returns the facts as TOML, as in a file of `targets/static/`: one line for each configuration.
    pub fn to_toml(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mut text = String::new();
        let mut line = |line: std::fmt::Arguments<'_>| text.write_fmt(line).unwrap_or_default();
        line(format_args!(
            "# What the driver's compiler made of the kernels' configurations (`driftc calibrate --static`).\n\n"
        ));
        line(format_args!("driver = {}\n", quoted(&self.driver)));
        line(format_args!("device = {}\n", quoted(&self.device)));
        for (name, kernel) in &self.kernels {
            line(format_args!("\n[kernels.{name}]\n"));
            line(format_args!("source = {}\n", quoted(&kernel.source)));
            line(format_args!("shaders = {}\n", kernel.shaders));
            if !kernel.configurations.is_empty() {
                line(format_args!("[kernels.{name}.configurations]\n"));
            }
            for (knobs, facts) in &kernel.configurations {
                let ConfigurationFacts { shaders, spilling, failed, spills, occupancy } = facts;
                let failed = if *failed > 0 { format!(", failed = {failed}") } else { String::new() };
                let occupancy = occupancy.map_or_else(String::new, |n| format!(", occupancy = {n}"));
                line(format_args!(
                    "{} = {{ shaders = {shaders}, spilling = {spilling}, spills = {spills}{failed}{occupancy} }}\n",
                    quoted(knobs)
                ));
            }
        }
        text
    }

    /// Returns the facts about a configuration, given by the name of its kernel, the hash of the kernel's source, and its knobs.
    /// Returns `None` if the configuration is not listed, or the facts hold for another source.
    pub fn configuration(
        &self,
        kernel: &str,
        source: impl FnOnce() -> String,
        knobs: impl FnOnce() -> String,
    ) -> Option<ConfigurationFacts> {
        let kernel = self.kernels.get(kernel).filter(|kernel| !kernel.configurations.is_empty())?;
        let facts = *kernel.configurations.get(&knobs())?;
        (kernel.source == source()).then_some(facts)
    }
}

impl ConfigurationFacts {
    /// Adds the facts about one more shader: its number of spills, `None` if it failed, and its occupancy.
    pub fn add(&mut self, spills: Option<u32>, occupancy: Option<u32>) {
        self.shaders += 1;
        self.failed += u32::from(spills.is_none());
        let spills = spills.unwrap_or_default();
        self.spilling += u32::from(spills > 0);
        self.spills = self.spills.max(spills);
        self.occupancy = self.occupancy.into_iter().chain(occupancy).min();
    }
}

#[cfg(test)]
mod tests {
    use super::{ConfigurationFacts, KernelFacts, StaticFacts};

    fn facts() -> StaticFacts {
        let mut one = ConfigurationFacts::default();
        for (spills, occupancy) in [(Some(0), Some(8)), (Some(28), Some(4)), (Some(5), None), (None, None)] {
            one.add(spills, occupancy);
        }
        let configurations = [("THREADS=64 KEYS=1".to_owned(), one)].into();
        let kernel = KernelFacts { source: "fa5f3239".into(), shaders: 7, configurations };
        let kernels = [("attention".to_owned(), kernel), ("map".to_owned(), KernelFacts::default())].into();
        StaticFacts { driver: "a \"driver\" 1.2".into(), device: "a device".into(), kernels }
    }

    #[test]
    fn facts_of_shaders_are_counted() {
        let configuration = facts().kernels["attention"].configurations["THREADS=64 KEYS=1"];
        let expected =
            ConfigurationFacts { shaders: 4, spilling: 2, failed: 1, spills: 28, occupancy: Some(4) };
        assert_eq!(configuration, expected);
    }

    #[test]
    fn the_text_form_parses_to_equal_facts() {
        assert_eq!(toml::from_str::<StaticFacts>(&facts().to_toml()), Ok(facts()));
    }

    #[test]
    fn facts_hold_for_one_source() {
        let facts = facts();
        let found = |kernel: &str, source: &str, knobs: &str| {
            facts.configuration(kernel, || source.to_owned(), || knobs.to_owned()).is_some()
        };
        assert!(found("attention", "fa5f3239", "THREADS=64 KEYS=1"));
        assert!(!found("attention", "00000000", "THREADS=64 KEYS=1"));
        assert!(!found("attention", "fa5f3239", "THREADS=64 KEYS=2"));
        assert!(!found("matmul", "fa5f3239", "THREADS=64 KEYS=1"));
    }
}
