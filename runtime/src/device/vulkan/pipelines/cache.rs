//! The driver's pipeline cache and its optional file.
//!
//! The file's key covers everything that its contents depend on: vendor, device, driver version and identifiers, and
//! the bundle. Equal devices have equal keys, so a file can be shipped to other machines. A file that is damaged or has
//! another key is ignored and replaced. A failed write only slows down the next start, so it is not an error.

use crate::device::vulkan::context::Context;
use crate::device::vulkan::failed;
use crate::error::Result;
use ash::vk;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"DRIFTPC1";
const KEY: usize = 32;
const HEADER: usize = MAGIC.len() + KEY + 32;

pub(super) struct Cache {
    context: Arc<Context>,
    pub(super) raw: vk::PipelineCache,
    path: Option<PathBuf>,
    key: [u8; KEY],
    /// Hash of the data that was read from the file. The file is written only if the data has changed.
    read_hash: Option<[u8; 32]>,
}

impl Cache {
    pub(super) fn open(context: &Arc<Context>, path: Option<&Path>, bundle: &[u8]) -> Result<Cache> {
        let key = key(context, bundle);
        let data = path.and_then(|path| std::fs::read(path).ok());
        let data = data.as_deref().and_then(|file| contents(file, &key));
        let create = |data: &[u8]| {
            let create = vk::PipelineCacheCreateInfo::default().initial_data(data);
            // SAFETY: the device is live; the key has excluded data of another driver.
            unsafe { context.device.create_pipeline_cache(&create) }
        };
        let (raw, read_hash) = match data.map(|data| (create(data), data)) {
            Some((Ok(raw), data)) => (raw, Some(*blake3::hash(data).as_bytes())),
            _ => (create(&[]).map_err(failed("vkCreatePipelineCache"))?, None),
        };
        Ok(Cache { context: context.clone(), raw, path: path.map(Path::to_owned), key, read_hash })
    }

    /// Writes the cache to its file, if there is a file and the data has changed.
    pub(super) fn save(&self) {
        let Some(path) = &self.path else { return };
        // SAFETY: the cache is live and no thread creates pipelines through it any more.
        let Ok(data) = (unsafe { self.context.device.get_pipeline_cache_data(self.raw) }) else { return };
        let hash = *blake3::hash(&data).as_bytes();
        if self.read_hash == Some(hash) {
            return;
        }
        let file = [MAGIC.as_slice(), &self.key, &hash, &data].concat();
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let temporary = path.with_file_name(name);
        let written = std::fs::write(&temporary, file).and_then(|()| std::fs::rename(&temporary, path));
        if written.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // SAFETY: pipelines do not need the cache once they are created.
        unsafe { self.context.device.destroy_pipeline_cache(self.raw) };
    }
}

fn key(context: &Context, bundle: &[u8]) -> [u8; KEY] {
    let info = &context.info;
    let mut hasher = blake3::Hasher::new();
    for number in [info.vendor_id, info.device_id, info.driver_version] {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(&info.pipeline_cache_uuid);
    hasher.update(&info.driver_uuid);
    hasher.update(bundle);
    *hasher.finalize().as_bytes()
}

/// Returns the driver's data in a file with this key, or `None` if the file is damaged or has another key.
fn contents<'a>(file: &'a [u8], key: &[u8; KEY]) -> Option<&'a [u8]> {
    let (header, data) = file.split_at_checked(HEADER)?;
    let (magic, rest) = header.split_at_checked(MAGIC.len())?;
    let (file_key, hash) = rest.split_at_checked(KEY)?;
    (magic == MAGIC && file_key == key && hash == blake3::hash(data).as_bytes()).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::{KEY, MAGIC, contents};

    #[test]
    fn damaged_files_and_other_keys_are_ignored() {
        let data = b"driver data".as_slice();
        let file = [MAGIC.as_slice(), &[7; KEY], blake3::hash(data).as_bytes(), data].concat();
        assert_eq!(contents(&file, &[7; KEY]), Some(data));
        assert_eq!(contents(&file, &[8; KEY]), None);
        for index in 0..file.len() {
            let mut damaged = file.clone();
            damaged[index] ^= 1;
            assert_eq!(contents(&damaged, &[7; KEY]), None, "byte {index}");
            assert_eq!(contents(&file[..index], &[7; KEY]), None, "length {index}");
        }
    }
}
