//! Checks who signed a bundle, with public keys in minisign's format.
//!
//! The code is short on purpose, because programs that embed the runtime should be small.

use crate::bundle::Bundle;
use crate::codec::{KeyId, signature, signed_bytes};
use crate::error::{Error, Result};
use minisign_verify::{PublicKey, Signature};

/// Lengths of the base64 lines of minisign's public keys, secret keys and signatures.
const PUBLIC_DIGITS: usize = 56;
const SECRET_DIGITS: usize = 212;
const SIGNATURE_DIGITS: usize = 100;

impl Bundle {
    /// Returns the id of the key that the bundle names as its signer, or `None` if it is not signed. The signature is not
    /// checked.
    pub fn signer(&self) -> Result<Option<KeyId>> {
        Ok(signature(self.bytes())?.map(|(_, id)| id))
    }

    /// Checks that one of the public keys signed the bundle, and returns the id of that key. A key is a base64 line, or
    /// the text of a key file. The signature covers the hashes of weights and shaders; [`Bundle::verify`] compares the
    /// hashes with the bytes.
    ///
    /// # Errors
    /// [`Error::Untrusted`] if the bundle is not signed, or by none of the keys; [`Error::InvalidKey`].
    pub fn check_signature(&self, keys: &[String]) -> Result<KeyId> {
        let signature = signature(self.bytes())?;
        let (mut named, mut signed) = (false, false);
        let mut trusted = String::new();
        for (index, text) in keys.iter().enumerate() {
            let (id, key) = read_key(text).map_err(|fault| Error::InvalidKey {
                reason: format!("trusted key {}: {fault}", index + 1),
            })?;
            if let Some((text, signer)) = signature
                && signer == id
            {
                named = true;
                signed |= verify(&key, text, self.bytes());
            }
            trusted.push_str(&format!(" {id}"));
        }
        let reason = match signature {
            Some((_, signer)) if signed => return Ok(signer),
            Some((_, signer)) if named => format!(
                "the bundle is not trusted: the signature of key {signer} does not match it; fetch the bundle again"
            ),
            Some((_, signer)) => foreign(&format!("key {signer} signed it"), &trusted),
            None => foreign("it is not signed", &trusted),
        };
        Err(Error::Untrusted { reason })
    }
}

/// Reason why a bundle without a trusted signer is refused. `trusted` lists the ids of the trusted keys.
fn foreign(found: &str, trusted: &str) -> String {
    let trusted = if trusted.is_empty() { " none" } else { trusted };
    format!(
        "the bundle is not trusted: {found}, but trusted keys are:{trusted}; get a bundle that a trusted key signed"
    )
}

/// True if the key made this signature of the bundle.
fn verify(key: &PublicKey, text: &str, file: &[u8]) -> bool {
    match (Signature::decode(text), signed_bytes(file)) {
        (Ok(signature), Ok(signed)) => key.verify(signed, &signature, false).is_ok(),
        _ => false,
    }
}

/// Reads a public key: a base64 line, or the text of a key file, whose second line it is.
fn read_key(text: &str) -> std::result::Result<(KeyId, PublicKey), &'static str> {
    let line = match text.split_once('\n') {
        Some((comment, line)) if comment.starts_with("untrusted comment:") => line.trim_ascii(),
        _ => text.trim_ascii(),
    };
    match (line.len(), KeyId::from_base64(line), PublicKey::from_base64(line)) {
        (PUBLIC_DIGITS, Some(id), Ok(key)) => Ok((id, key)),
        (SECRET_DIGITS, ..) => Err("it is a secret key; give the public key, and keep the secret key secret"),
        (SIGNATURE_DIGITS, ..) => Err("it is a signature; give the public key"),
        _ => Err("it is no minisign public key, whose base64 line has 56 characters"),
    }
}
