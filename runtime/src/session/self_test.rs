//! Runs the self-test vectors of a bundle on the device.

use super::Session;
use crate::array::{Array, ArrayRef};
use crate::error::{Error, Result};
use crate::format::self_test::{
    ATTACHMENT, SelfTest, TestInput, TestOutput, VECTOR_LIMIT, Vector, generate, input_seed, positions,
    statistics,
};

/// Maximum ratio of the size of an element in a caller's array to its size on the device: f64 to f16.
const HOST_RATIO: u64 = 4;

impl Session {
    /// Runs the bundle's self-test vectors and compares the outputs with the outputs of the CPU reference. Returns the
    /// number of vectors: 0 if the bundle has none. All states are zero afterwards.
    ///
    /// # Errors
    /// [`Error::SelfTest`] with the first output that differs, or the error of a run.
    pub fn self_test(&mut self) -> Result<usize> {
        let Some(bytes) = self.bundle.attachment(ATTACHMENT)? else { return Ok(0) };
        let test = SelfTest::decode(bytes)?;
        for (index, vector) in test.vectors.iter().enumerate() {
            let outputs = self.run_vector(index, vector);
            self.reset_states()?;
            for (expected, got) in vector.outputs.iter().zip(outputs?) {
                if let Some(difference) = difference(vector, expected, &got) {
                    let (function, name) = (&vector.function, &expected.name);
                    let reason = format!(
                        "self-test {}: output `{name}` of function `{function}` differs from the CPU reference: \
                         {difference}; fetch the bundle again, or update the device's driver",
                        index + 1
                    );
                    return Err(Error::SelfTest { reason });
                }
            }
        }
        Ok(test.vectors.len())
    }

    /// Runs the function of a vector with its inputs. The values that the caller gave to symbols remain.
    fn run_vector(&mut self, index: usize, vector: &Vector) -> Result<Vec<Array>> {
        self.reset_states()?;
        let inputs = vector.inputs.iter().zip(0u64..);
        let inputs = inputs
            .map(|(input, position)| {
                let seed = input_seed(vector.seed, position);
                Ok((input.name.as_str(), self.test_input(index, &vector.function, input, seed)?))
            })
            .collect::<Result<Vec<(&str, Array)>>>()?;
        let arrays: Vec<(&str, ArrayRef<'_>)> =
            inputs.iter().map(|(name, array)| (*name, array.as_ref())).collect();
        let outputs: Vec<&str> = vector.outputs.iter().map(|output| output.name.as_str()).collect();
        let (position, _) = self.function_index(&vector.function)?;
        let given = self.frames_in_flight.runs.get(position).map(|run| run.given.clone());
        let mut symbols = vector.symbols.iter();
        let result = symbols
            .try_for_each(|(name, value)| self.set_symbol(&vector.function, name, *value))
            .and_then(|()| self.run_for(&vector.function, &arrays, &outputs));
        if let (Some(run), Some(given)) = (self.frames_in_flight.runs.get_mut(position), given) {
            run.given = given;
        }
        result
    }

    /// Generates an input of a vector.
    fn test_input(&self, index: usize, function: &str, input: &TestInput, seed: u64) -> Result<Array> {
        let function = self.function(function)?;
        let port = function.inputs.iter().find(|port| port.name == input.name);
        let invalid = |reason: &str| {
            Error::invalid(format!("self-test {}, input `{}`", index + 1, input.name), reason.to_owned())
        };
        let port = port.ok_or_else(|| invalid("the function has no such input"))?;
        let host = port.host_type;
        let slot = usize::try_from(port.slot).ok().and_then(|slot| function.slots.get(slot));
        let most = slot.map_or(0, |slot| slot.size).saturating_mul(HOST_RATIO);
        let bytes = input.shape.iter().try_fold(host.size(), |bytes, size| bytes.checked_mul(*size));
        let fits = bytes.is_some_and(|bytes| bytes <= most);
        let shape: Option<Vec<usize>> = input.shape.iter().map(|size| usize::try_from(*size).ok()).collect();
        let shape = shape.filter(|_| fits).ok_or_else(|| invalid("the shape is too large"))?;
        let bytes = generate(host, shape.iter().product(), input.integers, seed);
        Ok(Array { dtype: host, shape, bytes })
    }
}

/// Describes how an output differs from the expected one, or returns `None`.
fn difference(vector: &Vector, expected: &TestOutput, got: &Array) -> Option<String> {
    let values = got.to_f64();
    if values.len() as u64 != expected.elements {
        return Some(format!("it has {} elements instead of {}", values.len(), expected.elements));
    }
    let differs = |got: f64, want: f64| {
        let tolerance = vector.relative * want.abs() + vector.absolute * expected.largest;
        let equal = got == want || got.is_nan() && want.is_nan() || (got - want).abs() <= tolerance;
        (!equal).then(|| format!("{got:.6e} instead of {want:.6e}, tolerance {tolerance:.1e}"))
    };
    let samples = expected.samples.len().min(VECTOR_LIMIT);
    for (position, want) in
        positions(expected.elements, samples, vector.seed).into_iter().zip(&expected.samples)
    {
        let got = usize::try_from(position).ok().and_then(|position| values.get(position)).copied();
        if let Some(text) = differs(got.unwrap_or(f64::NAN), *want) {
            return Some(format!("element {position} is {text}"));
        }
    }
    let [mean, rms, largest] = statistics(&values);
    let pairs =
        [("mean", mean, expected.mean), ("rms", rms, expected.rms), ("largest", largest, expected.largest)];
    let finite = pairs.iter().all(|(_, _, want)| want.is_finite());
    pairs.into_iter().filter(|_| finite).find_map(|(name, got, want)| {
        differs(got, want).map(|text| format!("the value `{name}` of its elements is {text}"))
    })
}
