//! Drivers that compile shaders without their GPUs: the table `targets/drivers/drivers.toml`, and the folder that
//! `tests/drivers.sh` (`make drivers`) fills.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::environment::DRIVERS;
use crate::failure::{Failure, Result};
use crate::session::DeviceArgs;

/// The table of drivers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriverTable {
    #[serde(rename = "driver")]
    pub(crate) drivers: Vec<Driver>,
}

/// A driver: what its reports call things, and the devices that it compiles for without a GPU.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Driver {
    /// Name of the library, as in `libvulkan_NAME.so`.
    #[expect(dead_code, reason = "tests/drivers.sh reads it")]
    pub(crate) name: String,
    /// Name that the driver reports.
    pub(crate) vulkan_name: String,
    /// Name of the shim: the library that answers in place of the kernel. Absent for a driver that needs a device.
    #[serde(default)]
    #[expect(dead_code, reason = "tests/drivers.sh reads it")]
    pub(crate) shim: Option<String>,
    /// Names of the driver's statistics whose values are added, by fact.
    pub(crate) statistics: BTreeMap<Fact, Vec<String>>,
    /// Parts of the text of instructions that multiply matrices.
    #[serde(default)]
    pub(crate) matrix_instructions: Vec<String>,
    /// Parts of the text of instructions that compute dot products of packed integers.
    #[serde(default)]
    pub(crate) dot_instructions: Vec<String>,
    #[serde(default, rename = "device")]
    pub(crate) devices: Vec<DriverDevice>,
}

/// A device that a driver compiles for without the device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriverDevice {
    /// Name for the option `--driver`.
    pub(crate) name: String,
    /// Profiles whose bundles this device should run. The first device with a profile is the profile's default.
    pub(crate) profiles: Vec<String>,
    /// Processor (`aarch64`) for which alone Debian has the driver. On another processor, the driver runs in an emulator and
    /// compiles pipelines, but does not start `driftc`.
    #[serde(default)]
    pub(crate) processor: Option<String>,
    /// Environment variables that select the device.
    #[serde(default)]
    #[expect(dead_code, reason = "tests/drivers.sh reads it")]
    pub(crate) environment: BTreeMap<String, String>,
    /// Facts that the device's profiles state although the driver reports less, with the reason.
    #[serde(default)]
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares profiles with probes"))]
    pub(crate) exceptions: BTreeMap<String, String>,
}

/// Fact that a driver reports about a compiled pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fact {
    /// Registers, or accesses, that the compiler moved to memory because registers ran out.
    Spills,
    /// Bytes of memory per invocation or subgroup for spills and private arrays.
    ScratchBytes,
    /// Registers per invocation or subgroup, in the driver's unit.
    Registers,
    /// Subgroups (waves, threads) that one execution unit runs at once.
    Occupancy,
    /// Bytes of workgroup memory.
    WorkgroupMemory,
    /// Bytes of machine code.
    CodeBytes,
    /// Number of instructions.
    Instructions,
    /// The driver's static estimate of cycles. It is no time.
    Cycles,
}

/// Returns the table of drivers.
pub(crate) fn table() -> Result<DriverTable> {
    toml::from_str(drift_targets::DRIVERS)
        .map_err(|e| Failure::input(format!("targets/drivers/drivers.toml: {e}")))
}

impl DriverTable {
    /// Finds a device by its name, without regard to case.
    ///
    /// # Errors
    /// If there is no such device. The error lists the devices.
    pub(crate) fn device(&self, name: &str) -> Result<&DriverDevice> {
        let mut devices = self.devices();
        devices.find(|device| device.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
            let names: Vec<&str> = self.devices().map(|device| device.name.as_str()).collect();
            Failure::usage(format!("there is no driver for a device `{name}`"))
                .help(format!("devices with a driver: {}", names.join(", ")))
        })
    }

    /// Returns the first device that should run bundles of a profile.
    pub(crate) fn device_of_profile(&self, profile: &str) -> Option<&DriverDevice> {
        self.devices().find(|device| device.profiles.iter().any(|name| name == profile))
    }

    /// Returns the device whose driver compiles for a target: the device that `--driver` names, or the target's first device.
    /// Returns `None` if `--device` selects a device of this machine.
    ///
    /// # Errors
    /// If there is no such device.
    pub(crate) fn selected(
        &self,
        driver: Option<&str>,
        device: &DeviceArgs,
        target: &str,
    ) -> Result<Option<&DriverDevice>> {
        if device.device.is_some() {
            return Ok(None);
        }
        if let Some(name) = driver {
            return self.device(name).map(Some);
        }
        match self.device_of_profile(target) {
            Some(device) => Ok(Some(device)),
            None => Err(Failure::usage(format!("no driver is listed for the target {target}"))
                .help("give --driver NAME, or --device DEVICE for a device of this machine")),
        }
    }

    /// Returns the driver that reports this name.
    pub(crate) fn driver(&self, vulkan_name: &str) -> Option<&Driver> {
        self.drivers.iter().find(|driver| driver.vulkan_name == vulkan_name)
    }

    fn devices(&self) -> impl Iterator<Item = &DriverDevice> {
        self.drivers.iter().flat_map(|driver| &driver.devices)
    }
}

impl DriverDevice {
    /// True if the device's driver runs in an emulator.
    pub(crate) fn is_emulated(&self) -> bool {
        self.processor.as_ref().is_some_and(|processor| processor != std::env::consts::ARCH)
    }
}

/// Returns a command that starts this program with the driver of a device: `run DEVICE driftc`, where `run` is a file of the
/// folder that `make drivers` fills.
///
/// # Errors
/// If the folder does not exist.
pub(crate) fn program_with_driver(device: &DriverDevice) -> Result<Command> {
    let mut command = run_with_driver(device)?;
    command.arg(this_program()?);
    Ok(command)
}

/// Returns the command `run DEVICE`, without the program to start.
///
/// # Errors
/// If the folder that `make drivers` fills does not exist.
pub(crate) fn run_with_driver(device: &DriverDevice) -> Result<Command> {
    let folder = DRIVERS.value().map_or_else(|| PathBuf::from("target/drivers"), PathBuf::from);
    let run = folder.join("run");
    if !run.is_file() {
        return Err(Failure::input(format!("there are no drivers in {}", folder.display())).help(
            "run `make drivers` in driftc's repository, and set DRIFT_DRIVERS to the folder target/drivers there",
        ));
    }
    let mut command = Command::new(run);
    command.arg(&device.name);
    Ok(command)
}

/// Returns the path of this program.
pub(crate) fn this_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|e| Failure::input(format!("the path of driftc is unknown: {e}")))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    use driftc::target::TargetProfile;
    use serde_json::Value;

    use super::table;

    #[test]
    fn the_table_of_drivers_is_valid() {
        let table = table().unwrap();
        let profiles: Vec<&str> = driftc::target::names().collect();
        let mut names = Vec::new();
        for device in table.devices() {
            assert!(!names.contains(&&device.name), "device {} is listed twice", device.name);
            names.push(&device.name);
            for profile in &device.profiles {
                assert!(profiles.contains(&profile.as_str()), "{}: no profile {profile}", device.name);
            }
            assert_eq!(table.device(&device.name.to_uppercase()).unwrap().name, device.name);
        }
        assert!(table.device("none").unwrap_err().advice().unwrap().contains(names[0].as_str()));
    }

    /// Profiles state no fact beyond what the driver of their device reports (`targets/drivers/probes/`), except facts that the table
    /// lists with a reason.
    #[test]
    fn profiles_state_no_more_than_drivers_report() {
        let table = table().unwrap();
        let mut wrong = Vec::new();
        // In an emulator, drivers compile pipelines only.
        for device in table.devices().filter(|device| device.processor.is_none()) {
            let probe = probe_of(&device.name);
            let mut excesses = BTreeSet::new();
            for profile in &device.profiles {
                excesses.extend(excesses_of(&TargetProfile::load(profile).unwrap(), &probe));
            }
            let listed: BTreeSet<String> = device.exceptions.keys().cloned().collect();
            for fact in excesses.symmetric_difference(&listed) {
                let how = if listed.contains(fact) {
                    "is listed, but no profile exceeds it"
                } else {
                    "is exceeded"
                };
                wrong.push(format!("{}: {fact} {how}", device.name));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// A source `probe: DRIVER, VERSION, DEVICE` holds: the probe of the device has the same value, or a list with at least
    /// the profile's entries.
    #[test]
    fn sources_that_name_a_probe_agree_with_it() {
        let (mut wrong, mut compared) = (Vec::new(), 0);
        for name in driftc::target::names() {
            let profile = TargetProfile::load(name).unwrap();
            let stated = facts(&profile);
            for (path, source) in &profile.source {
                let Some(source) = source.strip_prefix("probe: ") else { continue };
                let probe = source.split(';').next().unwrap().rsplit(", ").next().unwrap();
                let reported = facts(&probe_of(probe));
                // A longer path has its own source.
                let is_covered = |fact: &str| {
                    let longest =
                        profile.source.keys().filter(|key| covers(key, fact)).max_by_key(|key| key.len());
                    longest == Some(path)
                };
                for (fact, stated) in stated.iter().filter(|(fact, _)| is_covered(fact)) {
                    compared += 1;
                    let reported = &reported[fact];
                    if stated != reported && !(stated.is_array() && is_subset(stated, reported)) {
                        wrong.push(format!(
                            "{name}: {fact} is {stated}, but the probe of {probe} has {reported}"
                        ));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(compared > 0, "no source names a probe");
    }

    fn covers(path: &str, fact: &str) -> bool {
        fact.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// Returns what a profile states about a device, by dotted path.
    fn facts(profile: &TargetProfile) -> BTreeMap<String, Value> {
        let value = serde_json::to_value(profile).unwrap();
        let mut facts = BTreeMap::from([("matrix".to_owned(), shapes(&value))]);
        for table in ["limits", "features", "subgroup"] {
            let fields = value[table].as_object().unwrap();
            facts.extend(fields.iter().map(|(name, value)| (format!("{table}.{name}"), value.clone())));
        }
        facts
    }

    fn probe_of(device: &str) -> TargetProfile {
        let path = format!("../../targets/drivers/probes/{device}.toml");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        TargetProfile::load(path.to_str().unwrap()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Returns a profile's matrix shapes. How the invocations of a subgroup hold a matrix is not reported.
    fn shapes(profile: &Value) -> Value {
        let shapes = profile["matrix"].as_array().into_iter().flatten();
        let keys = ["m", "n", "k", "a", "b", "c", "scope"];
        shapes.map(|shape| keys.map(|key| shape[key].clone()).to_vec().into()).collect::<Vec<Value>>().into()
    }

    /// Returns the facts that a profile states beyond a probe: larger limits, smaller alignments, further features, subgroup
    /// sizes and matrix shapes.
    fn excesses_of(profile: &TargetProfile, probe: &TargetProfile) -> Vec<String> {
        let value = |profile: &TargetProfile| serde_json::to_value(profile).unwrap();
        let (stated, reported) = (value(profile), value(probe));
        let mut excesses = Vec::new();
        for (name, stated) in stated["limits"].as_object().unwrap() {
            let reported = &reported["limits"][name];
            let exceeds = |a: &Value, b: &Value| match (a.as_u64(), b.as_u64()) {
                (Some(a), Some(b)) => {
                    if name.ends_with("alignment") {
                        a < b
                    } else {
                        a > b
                    }
                }
                _ => false,
            };
            let several = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
            if several(stated).iter().zip(several(reported)).any(|(a, b)| exceeds(a, &b)) {
                excesses.push(format!("limits.{name}"));
            }
        }
        for (name, stated) in stated["features"].as_object().unwrap() {
            let reported = &reported["features"][name];
            let missing = match stated {
                Value::Bool(stated) => *stated && reported != &Value::Bool(true),
                stated => !is_subset(stated, reported),
            };
            if missing {
                excesses.push(format!("features.{name}"));
            }
        }
        if !is_subset(&stated["subgroup"]["sizes"], &reported["subgroup"]["sizes"]) {
            excesses.push("subgroup.sizes".to_owned());
        }
        if !is_subset(&shapes(&stated), &shapes(&reported)) {
            excesses.push("matrix".to_owned());
        }
        excesses
    }

    fn is_subset(a: &Value, b: &Value) -> bool {
        let empty = Vec::new();
        let b = b.as_array().unwrap_or(&empty);
        a.as_array().unwrap_or(&empty).iter().all(|item| b.contains(item))
    }
}
