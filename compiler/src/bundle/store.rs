//! Destinations of a bundle's packed constants and shaders: the file of the bundle, or nothing.

use std::collections::BTreeMap;

use drift_format::codec::BundleWriter;
use drift_format::{Artifact, ArtifactKind, Hash};

use super::constants::{Key, write_constants};
use super::convert::{format_error, index};
use crate::emit::{Code, Language, Shader};
use crate::error::{Error, Result};
use crate::shader::pack::Packed;

/// Destination of packed constants and shaders.
pub(super) trait Store {
    /// Adds constants as chunks. Returns the indices of the chunks.
    fn add_chunks(&mut self, constants: &[(&Packed, &Key)]) -> Result<Vec<u32>>;

    /// Adds the shader that a WGSL source becomes. Returns the index of its artifact and the name of its entry point.
    fn add_shader(&mut self, language: Language, wgsl: &str) -> Result<(u32, String)>;
}

/// Emitted shader modules, by shader language and WGSL source.
pub(super) type Modules<'a> = BTreeMap<(Language, &'a str), Shader>;

/// Store that writes to the bundle's file.
pub(super) struct FileStore<'a> {
    pub(super) writer: BundleWriter,
    pub(super) modules: Modules<'a>,
}

impl Store for FileStore<'_> {
    fn add_chunks(&mut self, constants: &[(&Packed, &Key)]) -> Result<Vec<u32>> {
        write_constants(&mut self.writer, constants)
    }

    fn add_shader(&mut self, language: Language, wgsl: &str) -> Result<(u32, String)> {
        let shader = self.modules.get(&(language, wgsl));
        let shader = shader.ok_or_else(|| Error::internal("bundle", "a module was not emitted"))?;
        let artifact = match &shader.code {
            Code::Spirv(words) => self.writer.spirv(words),
            Code::Wgsl(text) => self.writer.artifact(ArtifactKind::Wgsl, text.as_bytes()),
            Code::Msl(text) => self.writer.artifact(ArtifactKind::Msl, text.as_bytes()),
            Code::Hlsl(text) => self.writer.artifact(ArtifactKind::Hlsl, text.as_bytes()),
        };
        Ok((artifact.map_err(format_error)?, shader.entry.clone()))
    }
}

/// Store that counts chunks and keeps one empty artifact for each shader language.
#[derive(Default)]
pub(super) struct EmptyStore {
    chunks: usize,
    pub(super) artifacts: Vec<Artifact>,
}

impl Store for EmptyStore {
    fn add_chunks(&mut self, constants: &[(&Packed, &Key)]) -> Result<Vec<u32>> {
        let first = self.chunks;
        self.chunks += constants.len();
        (first..self.chunks).map(index).collect()
    }

    fn add_shader(&mut self, language: Language, _: &str) -> Result<(u32, String)> {
        let kind = match language {
            Language::Spirv => ArtifactKind::Spirv,
            Language::Wgsl => ArtifactKind::Wgsl,
            Language::Msl => ArtifactKind::Msl,
            Language::Hlsl => ArtifactKind::Hlsl,
        };
        let known = self.artifacts.iter().position(|artifact| artifact.kind == kind);
        let at = known.unwrap_or(self.artifacts.len());
        if known.is_none() {
            self.artifacts.push(Artifact { hash: Hash::default(), offset: 0, size: 0, kind });
        }
        Ok((index(at)?, String::new()))
    }
}
