//! Reads outside of a texture: where the device gives zeros the kernels need no mask, or one for the last channel alone.

use super::access::{Access, Coordinates};
use super::class::Class;
use super::hooks::Shader;
use super::outside::Outside;

impl Shader<'_> {
    /// Which of the spatial axes (z, y, x) along which operand `index` is read outside need a mask. The others do not,
    /// because the device gives zero there; that it does is required of it from then on.
    pub fn guards(&mut self, index: usize, outside: [bool; 3]) -> [bool; 3] {
        let operand = &self.problem.operands[index];
        let ends = match self.problem.target.features.robust_image_access2 && operand.in_texture() {
            true => operand.storage.ends_with(&operand.shape),
            false => [false; 3],
        };
        if ends.iter().zip(outside).any(|(end, outside)| *end && outside) {
            self.outside = Outside::Zeros;
        }
        [0, 1, 2].map(|axis| outside[axis] && !ends[axis])
    }

    /// The same for an operand that is read through [`Shader::read`] alone from here on: where the device gives zero in
    /// the first three channels only, that masks the last.
    pub fn guards_of_reads(&mut self, index: usize, outside: [bool; 3]) -> [bool; 3] {
        let guards = self.guards(index, outside);
        let operand = &self.problem.operands[index];
        if !self.problem.target.features.robust_image_access || !operand.in_texture() {
            return guards;
        }
        let ends = operand.storage.ends_with(&operand.shape);
        let open = [0, 1, 2].map(|axis| guards[axis] && ends[axis]);
        if open != [false; 3] {
            self.open.insert(index, open);
            self.outside = self.outside.max(Outside::ThreeZeros);
        }
        [0, 1, 2].map(|axis| guards[axis] && !open[axis])
    }

    /// Statements and the expression of what was read of operand `index`, zero in the last channel where it is open.
    pub(super) fn closed(
        &mut self,
        index: usize,
        at: &Coordinates,
        how: &Access,
        class: Class,
        value: String,
    ) -> (String, String) {
        let Some(open) = self.open.get(&index).copied() else { return (String::new(), value) };
        let shape = &self.problem.operands[index].shape;
        let first = shape.len().saturating_sub(3);
        let axes = (first..shape.len()).filter(|axis| *axis > 1 && open[axis + 3 - shape.len()]);
        let inside: Vec<String> =
            axes.map(|axis| format!("({}) < {}", at.axes[axis], self.words.dim(&shape[axis]))).collect();
        let (inside, zero) = (inside.join(" && "), class.zero(1));
        match how {
            Access::Vector { .. } => (
                format!("    let read = {value};\n    let inside = {inside};\n"),
                format!("{}(read.xyz, select({zero}, read.w, inside))", class.wgsl(4)),
            ),
            // The first channel is zero already.
            Access::Scalar { lane: Some(lane), .. } if lane == "0u" => (String::new(), value),
            _ if at.lanes.is_none() => (String::new(), format!("select({zero}, {value}, {inside})")),
            _ => (String::new(), format!("select({}, {value}, {inside})", class.zero(4))),
        }
    }
}
