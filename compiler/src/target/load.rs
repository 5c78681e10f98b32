//! Loading of target profiles: finds the TOML, follows `inherits` to the profile without a parent, and merges the profiles from
//! there down to the requested one.
//!
//! The merged table is checked after each step, so an error names the file that causes it. Sources are expanded to
//! single fields before merging, so that a parent's source never applies to a child's number. The accuracy of a fit
//! (`fit`) is not inherited.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

use super::{TargetError, TargetProfile, builtin, check, products};

/// Maximum bytes of a profile's file.
const MAX_BYTES: u64 = 1 << 20;

/// Field of a profile that holds the file of the folder `static`.
const STATIC_FACTS: &str = "static_facts";

/// Profile fields that may be set although the compiler does not use them.
const UNREAD: &[&str] = &[
    "api.version",
    "limits.max_push_constants",
    "limits.max_bound_sets",
    "features.storage_8",
    "features.int16",
    "features.int64",
    "features.int_dot_product_fast",
    "features.memory_model",
    "features.buffer_device_address",
    "machine.unified_memory",
    "prefer.storage.packed_weights",
    "prefer.storage.states",
    "prefer.layout.linear",
];

/// Location of a profile's TOML.
#[derive(Clone, PartialEq, Eq)]
enum Place {
    Builtin(String),
    /// Path of an existing profile file, as the user may write it.
    File(String),
    /// Name, for errors, of profile TOML that the caller passed as text.
    Text(String),
}

struct Layer {
    place: Place,
    table: Table,
}

pub(super) fn load(name_or_path: &str) -> Result<TargetProfile, TargetError> {
    let place = match locate(name_or_path, None) {
        Err(unknown @ TargetError::Unknown { .. }) => match products::find(name_or_path)? {
            Some(profile) => Place::Builtin(profile.to_owned()),
            None => return Err(suggest(unknown)),
        },
        other => other?,
    };
    let text = read(&place)?;
    resolve(place, &text)
}

/// Returns the files of a profile and its ancestors, with the files beside them. Built-in profiles have no files.
pub(super) fn files(path: &str) -> Result<Vec<PathBuf>, TargetError> {
    let place = locate(path, None)?;
    let text = read(&place)?;
    let mut files = Vec::new();
    for layer in chain(place, &text)? {
        if let Place::File(path) = layer.place {
            let path = PathBuf::from(path);
            let beside = ["costs", "static"].map(|folder| path_beside(&path, folder));
            files.push(path);
            files.extend(beside.into_iter().filter(|file| file.is_file()));
        }
    }
    Ok(files)
}

/// Adds the name of a similar profile or device to the help of an error about an unknown target.
fn suggest(unknown: TargetError) -> TargetError {
    match unknown {
        TargetError::Unknown { name, known, help } => {
            let similar = products::similar(&name);
            let question = similar.map_or_else(String::new, |found| format!("did you mean `{found}`? "));
            TargetError::Unknown { help: format!("{question}{help}"), name, known }
        }
        other => other,
    }
}

pub(super) fn from_toml(text: &str, origin: &str) -> Result<TargetProfile, TargetError> {
    resolve(Place::Text(origin.to_owned()), text)
}

fn resolve(place: Place, text: &str) -> Result<TargetProfile, TargetError> {
    let mut layers = chain(place, text)?;
    layers.reverse();
    let mut merged = costs_table(drift_targets::GENERIC_COSTS, "targets/costs/generic.toml")?;
    spread_sources(&mut merged, "targets/costs/generic.toml")?;
    let mut profile = None;
    for layer in layers {
        let file = layer.place.shown();
        forget_fit(&mut merged);
        forget_static_facts(&mut merged, &layer.table);
        merge(&mut merged, layer.table);
        profile = Some(parse(&merged, &file)?);
    }
    // There is at least one layer, the profile itself.
    profile.ok_or_else(|| TargetError::Syntax { file: String::new(), reason: "it is empty".to_owned() })
}

/// Removes the accuracy of a parent's fit: it is a statement about the parent's device only. The child inherits the
/// cost parameters.
fn forget_fit(merged: &mut Table) {
    merged.remove("fit");
    if let Some(Value::Table(sources)) = merged.get_mut("source") {
        sources.retain(|path, _| !covers("fit", path));
    }
}

/// Removes a parent's static facts if the child has its own, or is for another API, whose shaders another compiler reads.
fn forget_static_facts(merged: &mut Table, child: &Table) {
    let differs = child.get("api").is_some_and(|api| merged.get("api") != Some(api));
    if differs || child.contains_key(STATIC_FACTS) {
        merged.remove(STATIC_FACTS);
    }
}

/// Returns the parsed files of a profile and its ancestors, child first.
fn chain(place: Place, text: &str) -> Result<Vec<Layer>, TargetError> {
    let mut layers = vec![layer(place, text)?];
    loop {
        let Some(last) = layers.last() else { return Ok(layers) };
        let file = last.place.shown();
        let parent = match last.table.get("inherits") {
            None => return Ok(layers),
            Some(Value::String(parent)) => parent,
            Some(_) => {
                return Err(TargetError::field(
                    &file,
                    "inherits",
                    "it is not a string",
                    "give the name of a profile or the path of a .toml file",
                ));
            }
        };
        let place = locate(parent, Some(&last.place)).map_err(|error| match error {
            TargetError::Unknown { name, known, .. } => TargetError::field(
                &file,
                "inherits",
                format!("no target is called `{name}`"),
                format!("the known targets are {known}; the path of a profile's file ends in .toml"),
            ),
            other => other,
        })?;
        if layers.iter().any(|seen| seen.place == place) {
            let names: Vec<String> =
                layers.iter().map(|layer| &layer.place).chain([&place]).map(Place::shown).collect();
            return Err(TargetError::Cycle { file, chain: names.join(" -> ") });
        }
        let text = read(&place)?;
        layers.push(layer(place, &text)?);
    }
}

fn layer(place: Place, text: &str) -> Result<Layer, TargetError> {
    let file = place.shown();
    let mut table: Table = toml::from_str(text)
        .map_err(|error| TargetError::Syntax { file: file.clone(), reason: error.to_string() })?;
    if let Some((text, file)) = beside(&place, "costs", builtin::costs)? {
        let mut fitted = costs_table(&text, &file)?;
        merge_tables(&mut fitted, table);
        table = fitted;
    }
    if let Some((text, file)) = beside(&place, "static", builtin::static_facts)? {
        let facts = toml::from_str(&text)
            .map_err(|error| TargetError::Syntax { file: file.clone(), reason: error.to_string() })?;
        table.entry(STATIC_FACTS).or_insert(Value::Table(facts));
    }
    spread_sources(&mut table, &file)?;
    for path in UNREAD {
        remove(&mut table, path);
        if let Some(Value::Table(sources)) = table.get_mut("source") {
            sources.remove(*path);
        }
    }
    Ok(Layer { place, table })
}

/// Removes the value at a dotted path of keys from a table.
fn remove(table: &mut Table, path: &str) {
    match path.split_once('.') {
        None => {
            table.remove(path);
        }
        Some((key, rest)) => {
            if let Some(Value::Table(inner)) = table.get_mut(key) {
                remove(inner, rest);
            }
        }
    }
}

/// Returns the text and the path of a file about a profile that is in the folder `folder` next to the profile: fitted cost
/// parameters or static facts. `builtin` returns the text for a built-in profile.
fn beside(
    place: &Place,
    folder: &str,
    builtin: impl Fn(&str) -> Option<&'static str>,
) -> Result<Option<(String, String)>, TargetError> {
    let path = match place {
        Place::Text(_) => return Ok(None),
        Place::Builtin(name) => {
            let file = format!("targets/{folder}/{name}.toml");
            return Ok(builtin(name).map(|text| (text.to_owned(), file)));
        }
        Place::File(path) => Path::new(path),
    };
    let beside = path_beside(path, folder);
    if !beside.is_file() {
        return Ok(None);
    }
    let file = beside.display().to_string();
    Ok(Some((read(&Place::File(file.clone()))?, file)))
}

fn path_beside(profile: &Path, folder: &str) -> PathBuf {
    profile.parent().unwrap_or(Path::new("")).join(folder).join(profile.file_name().unwrap_or_default())
}

/// Parses a file of fitted cost parameters, and rejects other fields.
fn costs_table(text: &str, file: &str) -> Result<Table, TargetError> {
    let table: Table = toml::from_str(text)
        .map_err(|error| TargetError::Syntax { file: file.to_owned(), reason: error.to_string() })?;
    match table.keys().find(|key| !["costs", "fit", "source"].contains(&key.as_str())) {
        None => Ok(table),
        Some(key) => {
            let reason = "a file of cost parameters may set only `costs`, `fit` and `source`";
            Err(TargetError::field(file, key, reason, "move this field to the profile's own file"))
        }
    }
}

fn locate(name_or_path: &str, child: Option<&Place>) -> Result<Place, TargetError> {
    let is_file = name_or_path.ends_with(".toml") || name_or_path.contains(['/', '\\']);
    if !is_file {
        let name = builtin::names().find(|known| known.eq_ignore_ascii_case(name_or_path));
        return match name {
            Some(name) => Ok(Place::Builtin(name.to_owned())),
            None => Err(TargetError::Unknown {
                name: name_or_path.to_owned(),
                known: builtin::names().collect::<Vec<_>>().join(", "),
                help: "`driftc targets list` describes the known targets; `-t` also takes the name of a device, such as a graphics card or a phone, and the path of a profile's file, which ends in .toml"
                    .to_owned(),
            }),
        };
    }
    let folder = match child {
        Some(Place::File(path) | Place::Text(path)) => Path::new(path).parent().unwrap_or(Path::new("")),
        Some(Place::Builtin(_)) | None => Path::new(""),
    };
    let path = folder.join(name_or_path);
    let canonical = path
        .canonicalize()
        .map_err(|error| TargetError::Read { file: path.display().to_string(), reason: error.to_string() })?;
    Ok(Place::File(canonical.display().to_string()))
}

fn read(place: &Place) -> Result<String, TargetError> {
    let path = match place {
        Place::Builtin(name) => return Ok(builtin::text(name).unwrap_or_default().to_owned()),
        Place::Text(text) => return Ok(text.clone()),
        Place::File(path) => path,
    };
    let wrong = |reason: String| TargetError::Read { file: path.clone(), reason };
    let size = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
    if size > MAX_BYTES {
        return Err(wrong(format!("the profile's file has {size} bytes; the limit is {MAX_BYTES} bytes")));
    }
    std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))
}

fn parse(merged: &Table, file: &str) -> Result<TargetProfile, TargetError> {
    let profile = TargetProfile::deserialize(Value::Table(merged.clone())).map_err(|error| {
        let help = "targets/README.md lists every field with its type and unit";
        TargetError::field(file, &field_of(&error), error.message(), help)
    })?;
    check::check(&profile, file)?;
    Ok(profile)
}

/// Returns the path of the profile field that a TOML error is about.
///
/// The error's text ends with the path of the nearest existing value. The name of a missing or unknown field is only in
/// its message.
fn field_of(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let near = text.lines().find_map(|line| line.trim().strip_prefix("in `")?.strip_suffix('`'));
    let absent = ["unknown field `", "missing field `"]
        .iter()
        .find_map(|start| error.message().strip_prefix(start)?.split('`').next());
    [near, absent].into_iter().flatten().collect::<Vec<_>>().join(".")
}

/// Merges a child profile's table into its parent's table: nested tables key by key, other values as a whole.
fn merge(under: &mut Table, over: Table) {
    // A child may be for another API or for other devices.
    remove(under, "device.products");
    if let Some(Value::Table(kept)) = under.get_mut("source") {
        kept.remove("device.products");
    }
    let sources = Value::Table(over.get("source").and_then(Value::as_table).cloned().unwrap_or_default());
    let mut facts = over;
    facts.remove("source");
    let mut replaced = Vec::new();
    leaves(&facts, "", &mut replaced);
    if let Some(Value::Table(kept)) = under.get_mut("source") {
        for path in &replaced {
            kept.remove(path);
        }
    }
    merge_tables(under, facts);
    let mut wrapped = Table::new();
    wrapped.insert("source".to_owned(), sources);
    merge_tables(under, wrapped);
}

fn merge_tables(under: &mut Table, over: Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge_tables(below, above),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

/// Replaces the stated source of a whole table, such as `limits`, by one source for each field that the file sets in this table.
fn spread_sources(table: &mut Table, file: &str) -> Result<(), TargetError> {
    let given = match table.remove("source") {
        None => return Ok(()),
        Some(Value::Table(given)) => given,
        Some(_) => {
            return Err(TargetError::field(
                file,
                "source",
                "it is not a table",
                "write [source] and below it one line per field, with the origin of its value",
            ));
        }
    };
    let mut paths = Vec::new();
    leaves(table, "", &mut paths);
    for key in given.keys() {
        if !paths.iter().any(|path| covers(key, path)) {
            let reason = format!("the file gives a source for `{key}`, but does not set this field");
            return Err(TargetError::field(
                file,
                "source",
                reason,
                "correct the field's path or remove the line",
            ));
        }
    }
    let mut spread = Table::new();
    for path in paths {
        let closest = given.iter().filter(|(key, _)| covers(key, &path)).max_by_key(|(key, _)| key.len());
        if let Some((_, source)) = closest {
            spread.insert(path, source.clone());
        }
    }
    table.insert("source".to_owned(), Value::Table(spread));
    Ok(())
}

fn covers(key: &str, path: &str) -> bool {
    path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Lists the paths of all values in a profile that are not tables. A list is one value, and so is a group of cost
/// parameters.
fn leaves(table: &Table, prefix: &str, out: &mut Vec<String>) {
    for (key, value) in table {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            // All parameters of a group come from one fit.
            Value::Table(inner) if prefix != "costs" => leaves(inner, &path, out),
            _ => out.push(path),
        }
    }
}

impl Place {
    fn shown(&self) -> String {
        match self {
            Place::Builtin(name) => format!("`{name}` (built in)"),
            Place::File(path) | Place::Text(path) => format!("`{path}`"),
        }
    }
}
