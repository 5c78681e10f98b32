//! Tests of kernels that use cooperative matrices, without a device that has them. All candidates of the test cases,
//! for all profiles with cooperative matrices, must give valid shaders within the limits of the profile and the launch.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::cases::{CASES, Cases};
use super::tests::needs_of;
use super::{KERNELS, Kernel};
use crate::compile::{Options, lower};
use crate::emit::spirv;
use crate::ir::graph_text;
use crate::passes::Precision;
use crate::plan::build_visiting;
use crate::plan::choice::Choice;
use crate::shader::problem::Problem;
use crate::shader::{Launch, Need};
use crate::target::{MatrixScope, MatrixType, TargetProfile, names};

fn targets_with_matrices() -> Vec<TargetProfile> {
    let targets = names().map(|name| TargetProfile::load(name).unwrap());
    targets.filter(|target| target.features.cooperative_matrix).collect()
}

#[test]
fn every_candidate_is_valid_for_every_profile_with_matrices() {
    let targets = targets_with_matrices();
    assert!(targets.len() >= 2, "these tests need at least two target profiles with cooperative matrices");
    for kernel in KERNELS {
        let enabled = kernel.wgsl.contains("enable wgpu_cooperative_matrix;");
        assert_eq!(enabled, kernel.matrices.is_some(), "{}", kernel.name);
    }
    let kernels: Vec<(&Kernel, MatrixScope)> =
        KERNELS.iter().filter_map(|kernel| Some((kernel, kernel.matrices?))).collect();
    assert!(kernels.len() >= 4, "these tests need at least four kernels that use cooperative matrices");
    for scope in [MatrixScope::Subgroup, MatrixScope::Workgroup] {
        assert!(
            targets.iter().any(|target| target.has_matrices(scope)),
            "no target profile has cooperative matrices of scope {scope:?}"
        );
    }
    let cases: Vec<&str> = CASES.iter().flat_map(Cases::graphs).collect();
    // Many profiles have the same shaders. Each shader is emitted once.
    let mut emitted: BTreeMap<(String, String), Emitted> = BTreeMap::new();
    for target in &targets {
        let able: Vec<&Kernel> = kernels
            .iter()
            .filter(|(kernel, scope)| {
                let known = target.known_fragments().is_some();
                target.has_matrices(*scope) && (known || !kernel.wgsl.contains("fn multiply_fragments"))
            })
            .map(|(kernel, _)| *kernel)
            .collect();
        let offered: Vec<Offered> =
            cases.par_iter().map(|case| offered(&able, case, target)).flatten().collect();
        let new: BTreeMap<(String, String), &Offered> =
            offered.iter().map(|o| (o.key(), o)).filter(|(key, _)| !emitted.contains_key(key)).collect();
        emitted.par_extend(new.into_par_iter().map(|(key, offered)| (key, offered.emit(target))));
        for offered in &offered {
            offered.check(target, &emitted[&offered.key()]);
        }
        let checked: BTreeSet<&str> = offered.iter().map(|o| o.choice.kernel.name).collect();
        assert_eq!(checked, able.iter().map(|kernel| kernel.name).collect(), "no case for {}", target.name);
    }
}

/// Launch of one candidate for a test case.
struct Offered {
    choice: Choice,
    launch: Launch,
}

/// Device requirements (features and workgroup memory) of an emitted shader module.
struct Emitted {
    needs: BTreeSet<Need>,
    workgroup_memory: u32,
}

impl Offered {
    /// Key that two launches share if the same module is emitted for them: the WGSL and the matrices.
    fn key(&self) -> (String, String) {
        (
            self.launch.wgsl.clone(),
            format!("{:?} {} {}", self.launch.matrix, self.launch.stores_halves, self.launch.keeps_loops),
        )
    }

    fn place(&self, target: &TargetProfile) -> String {
        format!("{} {:?} for {}", self.choice.kernel.name, self.choice.candidate, target.name)
    }

    fn emit(&self, target: &TargetProfile) -> Emitted {
        let place = self.place(target);
        let matrix = spirv::Matrix::from_launch(&self.launch);
        assert!(matrix.is_some(), "{place} declares no matrices");
        let words = spirv::emit(
            &self.launch.wgsl,
            spirv::Options { finish: Some(drift_spirv_tools::validate), matrix },
        );
        let words = words.unwrap_or_else(|e| panic!("{place}: {e}\n{}", self.launch.wgsl));
        Emitted { needs: needs_of(&words), workgroup_memory: spirv::workgroup_memory(&words).unwrap() }
    }

    fn check(&self, target: &TargetProfile, emitted: &Emitted) {
        let (place, launch, limits) = (self.place(target), &self.launch, &target.limits);
        let safe = launch.workgroup[1..] == [1, 1] && launch.subgroup_size.is_some();
        assert!(
            safe,
            "the workgroup of {place} is not one-dimensional, or its launch requires no subgroup size"
        );
        // f16 in matrices follows from the matrix shape and is not listed.
        let is_listed = |need: &&Need| **need != Need::F16 || launch.needs.contains(*need);
        assert_eq!(launch.needs, emitted.needs.iter().filter(is_listed).copied().collect(), "{place}");
        let memory = emitted.workgroup_memory;
        assert!(
            memory <= launch.workgroup_memory,
            "{place} uses {memory} bytes of workgroup memory, more than its launch declares"
        );
        assert!(launch.workgroup_memory <= limits.max_workgroup_memory, "{place}");
        assert!(launch.workgroup.iter().product::<u32>() <= limits.max_workgroup_invocations, "{place}");
    }
}

/// Returns the launches of all candidates of the given kernels for a test case.
fn offered(kernels: &[&Kernel], case: &str, target: &TargetProfile) -> Vec<Offered> {
    let mut options = Options { precision: Precision::F16, ..Options::default() };
    // An empty name prefers no kernel and keeps the layouts of the passes.
    options.plan.prefer_kernel = Some(String::new());
    let graph = lower(&graph_text::parse(case).unwrap(), target, &options).unwrap().graph;
    let mut offered = Vec::new();
    let mut visit = |_: &str, problem: &Problem<'_>, choices: &[Choice]| {
        for choice in choices.iter().filter(|choice| kernels.iter().any(|k| k.name == choice.kernel.name)) {
            let launches = choice.kernel.specialized(problem, &choice.candidate).unwrap();
            // Launches of other kernels only merge partial results.
            let matrix_launches = launches.into_iter().filter(|launch| launch.kernel == choice.kernel.name);
            offered.extend(matrix_launches.map(|launch| Offered { choice: choice.clone(), launch }));
        }
    };
    build_visiting(&graph, target, &options.plan, &mut visit).unwrap();
    offered
}

/// Returns the selected kernel and candidate of every node of a graph.
fn choices(text: &str, target: &TargetProfile) -> Vec<Choice> {
    let plan = lower(&graph_text::parse(text).unwrap(), target, &Options::default()).unwrap().plan;
    plan.decisions.into_iter().flat_map(|d| d.choices).collect()
}

/// Returns the names of the kernels that the compiler selects for a matmul of u8 values by an i8 constant.
fn kernels_of_signed_constants(constant: &str, target: &TargetProfile) -> Vec<&'static str> {
    let text = format!(
        "%0 = input {{\"name\":\"a\",\"dtype\":\"u8\",\"shape\":[2,3,37,24]}}\n\
         %1 = constant {{\"dtype\":\"i8\",\"shape\":[{constant}],\"random\":1}}\n\
         %2 = matmul %0 %1 {{\"trans_a\":false,\"trans_b\":false}}\noutput \"c\" %2\n"
    );
    choices(&text, target).iter().map(|choice| choice.kernel.name).collect()
}

fn targets_with_bytes() -> Vec<TargetProfile> {
    let mut targets = targets_with_matrices();
    targets.retain(|target| target.matrix.iter().any(|shape| shape.a == MatrixType::I8));
    assert!(
        !targets.is_empty(),
        "this test needs a target profile with cooperative matrices of 8-bit integers"
    );
    targets
}

#[test]
fn sign_correction_needs_constant_sums() {
    for target in &targets_with_bytes() {
        for constant in ["24,16", "2,3,24,16"] {
            let kernels = kernels_of_signed_constants(constant, target);
            assert!(kernels.contains(&"matmul_coop"), "{constant} for {}: {kernels:?}", target.name);
        }
        // One matrix is the constant of three matmuls.
        let kernels = kernels_of_signed_constants("2,1,24,16", target);
        assert!(!kernels.is_empty() && !kernels.contains(&"matmul_coop"), "{}: {kernels:?}", target.name);
    }
}

#[test]
fn int8_convolutions_use_matrix_units_if_their_signs_allow() {
    for target in &targets_with_bytes() {
        for (image, filters, able) in
            [("u8", "i8", true), ("i8", "i8", true), ("u8", "u8", true), ("i8", "u8", false)]
        {
            let text = format!(
                "%0 = input {{\"name\":\"x\",\"dtype\":\"{image}\",\"shape\":[1,64,9,8]}}\n\
                 %1 = constant {{\"dtype\":\"{filters}\",\"shape\":[64,64,1,1],\"random\":1}}\n\
                 %2 = conv %0 %1 {{\"strides\":[1,1],\"dilations\":[1,1],\"pads_begin\":[1,1],\"pads_end\":[1,1],\"group\":1}}\n\
                 output \"y\" %2\n"
            );
            let mut choices = choices(&text, target);
            choices.retain(|choice| choice.kernel.name == "conv_coop");
            assert_eq!(!choices.is_empty(), able, "{image} by {filters} for {}", target.name);
        }
    }
}
