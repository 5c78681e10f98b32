//! Preludes: WGSL files with declarations that several kernels share. The WGSL of a kernel is its preludes followed by
//! the kernel's own file; `concat!` joins these files at compile time. A prelude may declare more than a kernel uses,
//! because the specializer drops unused declarations. Each prelude is a valid module.

/// Name and WGSL of each prelude.
pub(crate) const PRELUDES: &[(&str, &str)] = &[
    ("image_hooks_2d", include_str!("preludes/image_hooks_2d.wgsl")),
    ("image_hooks_3d", include_str!("preludes/image_hooks_3d.wgsl")),
    ("image_sizes", include_str!("preludes/image_sizes.wgsl")),
    ("rows", include_str!("preludes/rows.wgsl")),
    ("separable_filters", include_str!("preludes/separable_filters.wgsl")),
    ("slice_filters", include_str!("preludes/slice_filters.wgsl")),
    ("window", include_str!("preludes/window.wgsl")),
];
