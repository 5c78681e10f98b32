//! Load options of a session.

use crate::device::backend::Backend;
use crate::progress::OnProgress;
use std::path::PathBuf;

/// Load options. The default suits most programs.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Device to use: its index in the list of the backend, or a part of its name. `None` selects by the environment
    /// variable `DRIFT_DEVICE`, else the preferred device.
    pub device: Option<String>,
    /// Backend to use. The default is Vulkan if this crate is built with the Vulkan backend.
    pub backend: Backend,
    /// Target of the bundle's variant to use. `None` selects the variant that fits the device best.
    pub target: Option<String>,
    /// File that caches the driver's compiled pipelines between starts.
    pub pipeline_cache: Option<PathBuf>,
    /// Callback for the progress of loading.
    pub on_progress: Option<OnProgress>,
    /// Skip hash verification of weights and shaders, for files whose integrity is known otherwise. Bundles are always
    /// verified if there are trusted keys.
    pub trust_file: bool,
    /// Public keys in minisign's format: the base64 line, or the text of the key file. Only bundles that one of these
    /// keys signed are loaded, none if the list is empty. `None` loads every bundle.
    #[cfg(feature = "signatures")]
    pub trusted_keys: Option<Vec<String>>,
    /// Copy all data through staging buffers, as if the host could not access device memory. For tests, and for
    /// measuring what direct access saves.
    pub always_stage: bool,
    /// Number of frames, which is the maximum number of runs in flight; 0 counts as 1.
    pub frames: usize,
    /// Number of conversations, each with its own states, over one copy of the weights; 0 counts as 1.
    pub conversations: usize,
}

impl Options {
    /// True if loading does not compare weights and shaders with their hashes. A signature covers them only through
    /// their hashes.
    pub(super) fn skips_hashes(&self) -> bool {
        #[cfg(feature = "signatures")]
        if self.trusted_keys.is_some() {
            return false;
        }
        self.trust_file
    }
}
