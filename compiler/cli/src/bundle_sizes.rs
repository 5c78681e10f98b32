//! Sizes of a bundle's sections, and of the weights that one variant or several variants use.

use std::collections::BTreeSet;

use drift_runtime::Bundle;
use drift_runtime::codec::Header;
use drift_runtime::format::{Manifest, Variant};
use serde::Serialize;

/// Sizes of a bundle's sections in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct SectionSizes {
    pub(crate) file: u64,
    pub(crate) header: u64,
    pub(crate) chunks: u64,
    pub(crate) artifacts: u64,
    pub(crate) manifest: u64,
    pub(crate) padding: u64,
    pub(crate) signature: u64,
}

impl SectionSizes {
    /// Computes the section sizes of a bundle.
    pub(crate) fn from_bundle(header: &Header, bundle: &Bundle) -> Self {
        const HEADER: u64 = 128;
        let manifest = bundle.manifest();
        let file = bundle.bytes().len() as u64;
        let chunks: u64 = manifest.chunks.iter().map(|c| c.size).sum();
        let artifacts: u64 = manifest.artifacts.iter().map(|a| a.size).sum();
        let used = HEADER + chunks + artifacts + header.manifest_size;
        Self {
            file,
            header: HEADER,
            chunks,
            artifacts,
            manifest: header.manifest_size,
            padding: header.file_size.saturating_sub(used),
            signature: file.saturating_sub(header.file_size),
        }
    }
}

/// Bytes of stored weights that only `variant` uses, and bytes of stored weights that other variants use too.
pub(crate) fn own_and_shared_weights(variant: &Variant, manifest: &Manifest) -> (u64, u64) {
    let chunks = |v: &Variant| v.placements.iter().map(|p| p.chunk).collect::<BTreeSet<u32>>();
    let others: BTreeSet<u32> =
        manifest.variants.iter().filter(|v| v.target != variant.target).flat_map(chunks).collect();
    chunks(variant).into_iter().fold((0, 0), |(own, shared), chunk| {
        let size = manifest.chunks.get(chunk as usize).map_or(0, |c| c.size);
        if others.contains(&chunk) { (own, shared + size) } else { (own + size, shared) }
    })
}

/// Bytes of weights that all variants together would store without deduplication.
pub(crate) fn undeduplicated_weights(manifest: &Manifest) -> u64 {
    let sizes = manifest.variants.iter().map(|v| own_and_shared_weights(v, manifest));
    sizes.map(|(own, shared)| own + shared).sum()
}

/// Bytes of weights that the bundle stores.
pub(crate) fn stored_weights(manifest: &Manifest) -> u64 {
    manifest.chunks.iter().map(|c| c.size).sum()
}
