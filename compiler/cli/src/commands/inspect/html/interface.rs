//! Parts of the HTML page of a bundle that name its interface: requirements, inputs and outputs, and the legend.

use super::super::report::{FunctionReport, PortReport, RequirementsReport};
use super::{Page, escape};
use crate::output::bytes;

/// Explanations of the drawings and tables, each as (term, meaning).
const LEGEND: &[(&str, &str)] = &[
    (
        "rectangle",
        "An intermediate tensor. It is as wide as the dispatches from the first to the last that use it, and as high as \
         its bytes. Point at a rectangle for its node, size, offset and dispatches. The color only separates neighbors.",
    ),
    ("black line", "Peak: bytes of device memory that the intermediate tensors take."),
    (
        "dashed red line",
        "Lower bound: bytes of the tensors that are in use at the same time. No plan takes less.",
    ),
    ("without reuse", "Every tensor has its own bytes. Both drawings have the same scale."),
    ("as planned", "Tensors that are never in use at the same time share bytes. Arenas are stacked."),
    ("grid", "Workgroups along x, y and z. Letters are symbolic dimensions."),
    (
        "bytes, flops",
        "Bytes that a dispatch moves and floating point operations that it executes, by the compiler's count.",
    ),
    ("flops per byte", "Arithmetic intensity. Memory bandwidth limits dispatches with a small value."),
    ("barrier before", "The dispatch waits for the results of earlier dispatches."),
];

impl Page {
    /// Table of explanations.
    pub(super) fn legend(&mut self) {
        self.put(format_args!("<h2>Legend</h2>\n<table>\n<tbody>\n"));
        for (term, meaning) in LEGEND {
            self.put(format_args!("<tr><td>{}</td><td>{}</td></tr>\n", escape(term), escape(meaning)));
        }
        self.put(format_args!("</tbody>\n</table>\n"));
    }

    /// Table of the device properties that a variant needs.
    pub(super) fn requirements(&mut self, required: &RequirementsReport<'_>) {
        let limits = required.limits;
        let [x, y, z] = limits.max_grid;
        let list = |items: &[String]| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
        let features: Vec<String> = required.features.iter().map(ToString::to_string).collect();
        let sizes: Vec<String> = required.subgroup_sizes.iter().map(ToString::to_string).collect();
        let rows = [
            ("API", format!("{} {}", required.api, required.api_version)),
            ("features", list(&features)),
            ("device memory", bytes(limits.device_memory)),
            ("largest binding", bytes(limits.max_storage_buffer_range)),
            ("workgroup", format!("{} invocations", limits.max_workgroup_invocations)),
            ("workgroup memory", bytes(limits.max_workgroup_memory.into())),
            ("grid", format!("{x} x {y} x {z} workgroups")),
            ("subgroup sizes", if sizes.is_empty() { "any".to_owned() } else { sizes.join(", ") }),
            ("matrix shapes", list(&required.matrix_shapes)),
            (
                "made for",
                if required.hints.device_names.is_empty() {
                    "any device".to_owned()
                } else {
                    required.hints.device_names.join(", ")
                },
            ),
        ];
        self.put(format_args!("<h3>Requirements</h3>\n<table>\n<tbody>\n"));
        for (name, value) in rows {
            self.put(format_args!("<tr><td>{name}</td><td>{}</td></tr>\n", escape(&value)));
        }
        self.put(format_args!("</tbody>\n</table>\n"));
    }

    /// Table of a function's inputs and outputs.
    pub(super) fn ports(&mut self, function: &FunctionReport<'_>) {
        self.put(format_args!(
            "<table>\n<thead><tr><th></th><th>name</th><th>type</th><th>on the device</th><th>shape</th></tr>\
             </thead>\n<tbody>\n"
        ));
        for (kind, ports) in [("input", &function.inputs), ("output", &function.outputs)] {
            for (i, PortReport { name, host_type, device_type, shape }) in ports.iter().enumerate() {
                self.put(format_args!(
                    "<tr><td>{kind} {i}</td><td><code>{}</code></td><td>{host_type}</td><td>{device_type}</td>\
                     <td>[{}]</td></tr>\n",
                    escape(name),
                    escape(&shape.join(", "))
                ));
            }
        }
        self.put(format_args!("</tbody>\n</table>\n"));
    }
}
