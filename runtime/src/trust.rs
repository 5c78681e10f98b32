//! Checks who signed a bundle, with public keys in minisign's format.
//!
//! The code is short on purpose, because programs that embed the runtime should be small.

use crate::bundle::Bundle;
use crate::codec::{KeyId, base64, signature, signed_bytes};
use crate::error::{Error, Result};
use ed25519_compact::{PublicKey, Signature};

/// First bytes of minisign's public keys, and of its signatures of hashed messages.
const KEY: &[u8] = b"Ed";
const SIGNATURE_OF_HASH: &[u8] = b"ED";
/// Lengths of the base64 lines of minisign's secret keys and signatures.
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
                signed |= verify(&key, text, self.bytes()).is_some();
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

/// Checks that the key made this signature of the bundle. `text` has four lines: a comment; algorithm, key id and signature
/// of the hash of the message; a trusted comment; and the signature of the first signature and the trusted comment.
fn verify(key: &PublicKey, text: &str, file: &[u8]) -> Option<()> {
    let mut lines = text.lines().skip(1);
    let line: [u8; 74] = base64(lines.next()?)?;
    let signature: &[u8; 64] = line.strip_prefix(SIGNATURE_OF_HASH)?.last_chunk()?;
    let comment = lines.next()?.strip_prefix("trusted comment: ")?;
    let of_comment = Signature::new(base64(lines.next()?)?);
    let hash = blake2b_simd::blake2b(signed_bytes(file).ok()?);
    key.verify(hash.as_bytes(), &Signature::new(*signature)).ok()?;
    key.verify([signature, comment.as_bytes()].concat().as_slice(), &of_comment).ok()
}

/// Reads a public key: a base64 line, or the text of a key file, whose second line it is.
fn read_key(text: &str) -> std::result::Result<(KeyId, PublicKey), &'static str> {
    let line = match text.split_once('\n') {
        Some((comment, line)) if comment.starts_with("untrusted comment:") => line.trim_ascii(),
        _ => text.trim_ascii(),
    };
    let key = || {
        let bytes: [u8; 42] = base64(line)?;
        let key = bytes.strip_prefix(KEY)?.last_chunk()?;
        Some((KeyId::from_base64(line)?, PublicKey::new(*key)))
    };
    match line.len() {
        SECRET_DIGITS => Err("it is a secret key; give the public key, and keep the secret key secret"),
        SIGNATURE_DIGITS => Err("it is a signature; give the public key"),
        _ => key().ok_or("it is no minisign public key, whose base64 line has 56 characters"),
    }
}
