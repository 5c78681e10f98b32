//! Masks for reads outside the edges of a texture. If the device returns zeros for such reads, kernels need no mask, or
//! a mask of one channel only.

use super::access::{Access, Coordinates};
use super::hooks::Shader;
use super::outside_reads::OutsideReads;
use super::value_type::ValueType;
use crate::ir::op::Op;

impl Shader<'_> {
    /// Returns the spatial axes (z, y, x) on which reads of operand `index` need a mask.
    ///
    /// `outside` is true for the axes on which the kernel reads past the tensor's edges. An axis needs no mask if the
    /// texture ends where the tensor ends and the device returns zeros for reads outside the texture. The launch then
    /// requires this behavior of the device.
    pub fn guards(&mut self, index: usize, outside: [bool; 3]) -> [bool; 3] {
        if self.zero_is_not_stored_as_zero() {
            return outside;
        }
        let operand = &self.problem.operands[index];
        let ends = match self.problem.target.features.robust_image_access2 && operand.in_texture() {
            true => operand.storage.axes_clipped_by_texture(&operand.shape),
            false => [false; 3],
        };
        if ends.iter().zip(outside).any(|(end, outside)| *end && outside) {
            self.outside = OutsideReads::Zero;
        }
        [0, 1, 2].map(|axis| outside[axis] && !ends[axis])
    }

    /// True if the input of the problem's convolution has a zero point other than 0. A zero of the device is then not a
    /// zero of the convolution.
    fn zero_is_not_stored_as_zero(&self) -> bool {
        matches!(self.problem.op, Op::Conv(conv) if conv.zero_point != 0)
    }

    /// Like [`Shader::guards`], for an operand that the kernel reads only by [`Shader::read`]. If the device returns zeros only
    /// in the first three channels, the generated read function masks the last channel, and the kernel itself needs no mask.
    pub fn texture_guards_for_reads(&mut self, index: usize, outside: [bool; 3]) -> [bool; 3] {
        let guards = self.guards(index, outside);
        let operand = &self.problem.operands[index];
        let robust = self.problem.target.features.robust_image_access && !self.zero_is_not_stored_as_zero();
        if !robust || !operand.in_texture() {
            return guards;
        }
        let ends = operand.storage.axes_clipped_by_texture(&operand.shape);
        let open = [0, 1, 2].map(|axis| guards[axis] && ends[axis]);
        if open != [false; 3] {
            self.open.insert(index, open);
            self.outside = self.outside.max(OutsideReads::ZeroRgb);
        }
        [0, 1, 2].map(|axis| guards[axis] && !open[axis])
    }

    /// Masks the last channel of a value that is read from operand `index`, if [`Shader::texture_guards_for_reads`]
    /// recorded that it needs a mask. Returns WGSL statements and the masked expression.
    pub(super) fn closed(
        &mut self,
        index: usize,
        at: &Coordinates,
        access: &Access,
        value_type: ValueType,
        value: String,
    ) -> (String, String) {
        let Some(open) = self.open.get(&index).copied() else { return (String::new(), value) };
        let shape = &self.problem.operands[index].shape;
        let first = shape.len().saturating_sub(3);
        let axes = (first..shape.len()).filter(|axis| *axis > 1 && open[axis + 3 - shape.len()]);
        let inside: Vec<String> =
            axes.map(|axis| format!("({}) < {}", at.axes[axis], self.sizes.dim(&shape[axis]))).collect();
        let (inside, zero) = (inside.join(" && "), value_type.zero(1));
        match access {
            Access::Vector { .. } => (
                format!("    let read = {value};\n    let inside = {inside};\n"),
                format!("{}(read.xyz, select({zero}, read.w, inside))", value_type.wgsl(4)),
            ),
            // The device returns zero in the first channel.
            Access::Scalar { lane: Some(lane), .. } if lane == "0u" => (String::new(), value),
            _ if at.lanes.is_none() => (String::new(), format!("select({zero}, {value}, {inside})")),
            _ => (String::new(), format!("select({}, {value}, {inside})", value_type.zero(4))),
        }
    }
}
