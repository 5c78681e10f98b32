//! Signed bundles.

use std::fs;
use std::path::Path;

use drift_runtime::codec::signed_bytes;
use minisign::{KeyPair, PublicKey};

/// Signs a bundle file with a new key, and returns the public key.
///
/// # Panics
/// If the file is no bundle or cannot be written.
pub fn sign(path: &Path) -> PublicKey {
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    let mut file = fs::read(path).unwrap();
    let signature = minisign::sign(None, &pair.sk, signed_bytes(&file).unwrap(), Some("bundle"), None);
    file.extend(signature.unwrap().into_string().into_bytes());
    fs::write(path, file).unwrap();
    pair.pk
}
