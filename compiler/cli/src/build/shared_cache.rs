//! Cache that machines share: an object store of Amazon, Google or Azure, a web server that takes PUT, or a folder.
//!
//! Credentials come from the environment only, by the names that the stores' own tools use (`AWS_ACCESS_KEY_ID`,
//! `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_KEY`). A store that fails several times in a row is not asked again.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use driftc::content::Content;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Name;
use object_store::{
    ClientOptions, Error, ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutPayload, RetryConfig,
    WriteMultipart,
};
use tokio::runtime::Runtime;
use url::Url;

use crate::failure::{Failure, Result};

/// Folder of this format's objects within the cache.
const FORMAT: &str = "driftc-build-1";
/// Failures in a row after which the store is not asked again.
const MAX_FAILURES: usize = 5;
/// Time in which a request is tried again after errors of the server or the connection.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);
/// Number of times that a request is tried again.
const RETRIES: usize = 4;
/// Time limit of a request that does not transfer a bundle.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which a connection that transfers nothing is given up.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes of an upload in one part.
const MAX_SINGLE_BYTES: usize = 32 << 20;
/// Bytes of a part of a larger upload.
const PART_BYTES: usize = 16 << 20;
/// Number of parts that are sent at once.
const PARTS_AT_ONCE: usize = 4;

/// Shared cache.
#[derive(Debug)]
pub(crate) struct SharedCache {
    store: Box<dyn ObjectStore>,
    /// True if the store is a plain web server, which takes no uploads in parts.
    is_web_server: bool,
    folder: Name,
    runtime: Runtime,
    failures: AtomicUsize,
}

impl SharedCache {
    /// Opens a cache. No request is made.
    ///
    /// # Errors
    /// If the URL is malformed or of an unknown kind, or credentials are malformed.
    pub(crate) fn open(url: &str) -> Result<Self> {
        let wrong = |reason: String| {
            Failure::usage(format!("the shared cache `{url}` cannot be used: {reason}"))
                .help("write s3://BUCKET/FOLDER, gs://.., az://.., https://.., or file:///FOLDER")
        };
        let parsed = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
        let (store, folder) = store(&parsed).map_err(|error| wrong(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| wrong(error.to_string()))?;
        let is_web_server = matches!(ObjectStoreScheme::parse(&parsed), Ok((ObjectStoreScheme::Http, _)));
        Ok(Self { store, is_web_server, folder: folder.join(FORMAT), runtime, failures: AtomicUsize::new(0) })
    }

    /// Returns the record of a key, of at most `max_bytes`. Returns `None` if there is none.
    ///
    /// # Errors
    /// If the store fails or the record is larger.
    pub(crate) fn record(&self, key: &str, max_bytes: usize) -> Result<Option<Vec<u8>>> {
        if self.has_failed() {
            return Ok(None);
        }
        let name = self.record_name(key);
        let read = self.runtime.block_on(async {
            let found = self.store.get(&name).await?;
            if found.meta.size > max_bytes as u64 {
                return Ok(None);
            }
            found.bytes().await.map(Some)
        });
        match read {
            Err(Error::NotFound { .. }) => {
                self.failures.store(0, Ordering::Relaxed);
                Ok(None)
            }
            other => {
                let bytes = self.counted(other, &name)?;
                let bytes = bytes.ok_or_else(|| Failure::input(format!("{name} is too large")))?;
                Ok(Some(bytes.to_vec()))
            }
        }
    }

    /// Writes the bundle with a hash to a file. At most `bytes` bytes are read. The contents are not checked.
    ///
    /// # Errors
    /// If the store fails, or the file cannot be written.
    pub(crate) fn fetch(&self, hash: &str, bytes: u64, file: &Path) -> Result<()> {
        let name = self.bundle_name(hash);
        let failed = |error: std::io::Error| Failure::file(file, &error);
        let mut output = std::fs::File::create(file).map_err(failed)?;
        let mut left = bytes;
        let mut written = Ok(());
        let read = self.runtime.block_on(async {
            let mut found = self.store.get(&name).await?.into_stream();
            while let Some(part) = std::future::poll_fn(|context| found.as_mut().poll_next(context)).await {
                let part = part?;
                left = left.saturating_sub(part.len() as u64);
                written = output.write_all(&part);
                if written.is_err() || left == 0 {
                    break;
                }
            }
            Ok(())
        });
        self.counted(read, &name)?;
        written.map_err(failed)
    }

    /// Adds a record and the bundle with its hash, the bundle first.
    ///
    /// # Errors
    /// If the store fails, or the file cannot be read.
    pub(crate) fn keep(&self, key: &str, record: &[u8], hash: &str, file: &Path) -> Result<()> {
        if self.has_failed() {
            return Ok(());
        }
        let name = self.bundle_name(hash);
        let content = Content::map(file).map_err(|error| Failure::file(file, &error))?;
        let sent = self.runtime.block_on(async {
            let bytes = content.bytes();
            if bytes.len() <= MAX_SINGLE_BYTES || self.is_web_server {
                return self.store.put(&name, PutPayload::from(bytes.clone())).await.map(drop);
            }
            let mut parts =
                WriteMultipart::new_with_chunk_size(self.store.put_multipart(&name).await?, PART_BYTES);
            for start in (0..bytes.len()).step_by(PART_BYTES) {
                parts.wait_for_capacity(PARTS_AT_ONCE).await?;
                parts.put(bytes.slice(start..bytes.len().min(start + PART_BYTES)));
            }
            parts.finish().await.map(drop)
        });
        self.counted(sent, &name)?;
        let name = self.record_name(key);
        let record = PutPayload::from(record.to_vec());
        let sent = self.runtime.block_on(self.store.put(&name, record));
        self.counted(sent, &name).map(drop)
    }

    fn record_name(&self, key: &str) -> Name {
        self.folder.clone().join("actions").join(format!("{key}.json"))
    }

    fn bundle_name(&self, hash: &str) -> Name {
        self.folder.clone().join("bundles").join(format!("{hash}.drift"))
    }

    fn has_failed(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= MAX_FAILURES
    }

    /// Counts failures in a row.
    fn counted<T>(&self, result: object_store::Result<T>, name: &Name) -> Result<T> {
        match result {
            Ok(value) => {
                self.failures.store(0, Ordering::Relaxed);
                Ok(value)
            }
            Err(error) => {
                let n = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
                let failure = Failure::input(format!("{name}: {error}"));
                Err(match n == MAX_FAILURES {
                    true => {
                        failure.because(format!("{n} requests in a row failed: the cache is not asked again"))
                    }
                    false => failure,
                })
            }
        }
    }
}

/// Returns the store of a URL, and the folder within it.
fn store(url: &Url) -> object_store::Result<(Box<dyn ObjectStore>, Name)> {
    let (scheme, folder) = ObjectStoreScheme::parse(url)
        .map_err(|error| Error::Generic { store: "URL", source: Box::new(error) })?;
    // The provider may be installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
    let client = ClientOptions::new()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_timeout_disabled()
        .with_read_timeout(READ_TIMEOUT)
        .with_allow_http(true);
    let store: Box<dyn ObjectStore> = match scheme {
        ObjectStoreScheme::Local => Box::new(LocalFileSystem::new()),
        ObjectStoreScheme::AmazonS3 => Box::new(
            AmazonS3Builder::from_env()
                .with_url(url.as_str())
                .with_client_options(client)
                .with_retry(retry)
                .build()?,
        ),
        ObjectStoreScheme::GoogleCloudStorage => Box::new(
            GoogleCloudStorageBuilder::from_env()
                .with_url(url.as_str())
                .with_client_options(client)
                .with_retry(retry)
                .build()?,
        ),
        ObjectStoreScheme::MicrosoftAzure => Box::new(
            MicrosoftAzureBuilder::from_env()
                .with_url(url.as_str())
                .with_client_options(client)
                .with_retry(retry)
                .build()?,
        ),
        ObjectStoreScheme::Http => {
            let root = &url[..url::Position::BeforePath];
            Box::new(HttpBuilder::new().with_url(root).with_client_options(client).with_retry(retry).build()?)
        }
        other => {
            let reason = format!("stores of the kind {other:?} are not supported");
            return Err(Error::Generic { store: "URL", source: reason.into() });
        }
    };
    Ok((store, folder))
}
