//! `--shape`: sizes that replace the declared sizes of a model's inputs. Inputs whose sample arrays contradict the
//! declared names get separate symbols in the same way.

use std::collections::{BTreeMap, BTreeSet};

use driftc::import::onnx::Declaration;
use driftc::ir::array::Array;
use driftc::ir::dim::Dim;

use crate::arrays::list_names;
use crate::failure::{Failure, Result};
use crate::model_args::ShapeArg;

/// Sizes of inputs by name, which replace the declared sizes.
pub(crate) type Shapes = BTreeMap<String, Vec<Dim>>;

/// Replaces the declared sizes by the sizes of `--shape`. Returns the sizes by the name of the input.
///
/// # Errors
/// If an input is unknown or given twice, or has another number of axes.
pub(crate) fn apply_shapes(given: &[ShapeArg], declared: &mut [Declaration]) -> Result<Shapes> {
    let names: Vec<String> = declared.iter().map(|d| d.name.clone()).collect();
    let mut shapes = Shapes::new();
    for shape in given {
        let by_name = names.iter().position(|name| *name == shape.input);
        let position = by_name.or_else(|| shape.input.parse().ok());
        let input = position.and_then(|position| declared.get_mut(position)).ok_or_else(|| {
            let help = list_names(&names, "input");
            let question = driftc::suggest::did_you_mean(&shape.input, names.iter().map(String::as_str));
            Failure::usage(format!("there is no input `{}`", shape.input)).help(format!("{question}{help}"))
        })?;
        if let Some(axes) = input.shape.as_ref().map(Vec::len).filter(|axes| *axes != shape.sizes.len()) {
            let reason = format!("{shape} has {} sizes, but the input has {axes} axes", shape.sizes.len());
            return Err(Failure::usage(reason).help("give one size for each axis"));
        }
        input.shape = Some(shape.sizes.clone());
        if shapes.insert(input.name.clone(), shape.sizes.clone()).is_some() {
            return Err(Failure::usage(format!("--shape {} is given twice", input.name)));
        }
    }
    Ok(shapes)
}

/// Gives separate symbols to axes of an input that share a symbol, if a sample array has different sizes for them. The
/// new symbols have the bounds of the old one. Returns notes for the user.
pub(crate) fn separate_axes<'a>(
    declared: &mut [Declaration],
    samples: impl Iterator<Item = (&'a str, &'a Array)>,
    dims: &mut BTreeMap<String, (i64, i64)>,
    shapes: &mut Shapes,
) -> Vec<String> {
    let mut symbols = BTreeSet::new();
    declared.iter().flat_map(|d| d.shape.iter().flatten()).for_each(|dim| dim.symbols(&mut symbols));
    let mut notes = Vec::new();
    for (name, array) in samples {
        let Some(input) = declared.iter_mut().find(|d| d.name == name) else { continue };
        let Some(sizes) = input.shape.clone().filter(|sizes| sizes.len() == array.shape.len()) else {
            continue;
        };
        let mut separated = sizes.clone();
        // Axes of each symbol, grouped by their size in the array; the first group keeps the symbol.
        let mut groups: BTreeMap<&str, Vec<(usize, Dim)>> = BTreeMap::new();
        for (axis, (dim, size)) in sizes.iter().zip(&array.shape).enumerate() {
            let Some(symbol) = dim.as_symbol() else { continue };
            if dims.get(symbol).is_some_and(|(low, high)| low == high) {
                continue;
            }
            let groups = groups.entry(symbol).or_default();
            if let Some((_, same)) = groups.iter().find(|(known, _)| known == size) {
                separated[axis] = same.clone();
                continue;
            }
            if !groups.is_empty() {
                let unused = (axis..).map(|n| format!("{symbol}_{n}")).find(|name| !symbols.contains(name));
                let new = unused.unwrap_or_default();
                symbols.insert(new.clone());
                if let Some(bounds) = dims.get(symbol).copied() {
                    dims.insert(new.clone(), bounds);
                }
                separated[axis] = Dim::symbol(&new);
            }
            groups.push((*size, separated[axis].clone()));
        }
        if separated == sizes {
            continue;
        }
        let shape = ShapeArg { input: name.to_owned(), sizes: separated.clone() };
        notes.push(format!(
            "axes of input `{name}` that share a symbol have different sizes in {:?}: they get separate symbols, as with {shape}",
            array.shape
        ));
        input.shape = Some(separated.clone());
        shapes.insert(name.to_owned(), separated);
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use driftc::import::onnx::Declaration;
    use driftc::ir::array::Array;
    use driftc::ir::dim::Dim;
    use driftc::ir::tensor::DType;

    use super::{Shapes, separate_axes};

    fn separated(sizes: &[&str], array: &[usize], dims: &[(&str, (i64, i64))]) -> (String, Vec<String>) {
        let shape = sizes.iter().map(|s| s.parse().map_or_else(|_| Dim::symbol(s), Dim::known)).collect();
        let mut declared = [Declaration { name: "x".into(), dtype: Some(DType::F32), shape: Some(shape) }];
        let array = Array::float(DType::F32, array, vec![0.0; array.iter().product()]);
        let mut dims: BTreeMap<String, (i64, i64)> =
            dims.iter().map(|(name, bounds)| ((*name).to_owned(), *bounds)).collect();
        let mut shapes = Shapes::new();
        separate_axes(&mut declared, [("x", &array)].into_iter(), &mut dims, &mut shapes);
        let sizes = declared[0].shape.iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
        (sizes.join(","), dims.into_keys().collect())
    }

    #[test]
    fn axes_of_different_sizes_get_separate_symbols() {
        let equal = |given: (String, Vec<String>), sizes: &str| assert_eq!(given.0, sizes);
        equal(separated(&["1", "s", "s"], &[1, 4, 6], &[]), "1,s,s_2");
        equal(separated(&["1", "s", "s"], &[1, 4, 4], &[]), "1,s,s");
        equal(separated(&["s", "s", "s", "t"], &[2, 5, 5, 2], &[]), "s,s_1,s_1,t");
        equal(separated(&["s", "s", "s_1"], &[2, 5, 5], &[]), "s,s_2,s_1");
        equal(separated(&["s", "s"], &[2, 5], &[("s", (3, 3))]), "s,s");
        let (sizes, dims) = separated(&["s", "s"], &[2, 5], &[("s", (1, 8))]);
        assert_eq!((sizes.as_str(), dims), ("s,s_1", vec!["s".to_owned(), "s_1".to_owned()]));
    }
}
