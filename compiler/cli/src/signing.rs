//! Keys and signatures in minisign's format: passwords, key files, and signing of a bundle file.

use std::io::{IsTerminal, Read};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drift_runtime::Bundle;
use drift_runtime::codec::{KeyId, read_header, signed_bytes};
use minisign::{PublicKey, SecretKey, SecretKeyBox};

use crate::environment::KEY_PASSWORD;
use crate::failure::{Failure, Result};
use crate::output::write_file;

/// Maximum size of a key file in bytes.
const MAX_KEY_BYTES: u64 = 4096;
/// Start of the base64 line of a secret key: the algorithms of signature, password and checksum.
const PLAIN: &str = "RWQAAEIy";
const ENCRYPTED: &str = "RWRTY0Iy";
/// End of the base64 line of a secret key without password that `minisign -G -W` wrote: a checksum of zeros.
const NO_CHECKSUM: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
const SECRET_DIGITS: usize = 212;
const PUBLIC_DIGITS: usize = 56;

/// A secret key that can sign, with its id.
pub(crate) struct Signer {
    key: SecretKey,
    pub(crate) id: KeyId,
}

/// Reads a secret key file in minisign's format. Asks for the password if the key has one.
///
/// # Errors
/// If the file is no secret key, or the password is wrong.
pub(crate) fn read_signer(path: &Path) -> Result<Signer> {
    let text = read_key_file(path)?;
    let fail = |reason: &str| Failure::input(format!("{}: {reason}", path.display()));
    let line = text.lines().nth(1).unwrap_or_default().trim();
    if line.len() == PUBLIC_DIGITS || text.trim().len() == PUBLIC_DIGITS {
        return Err(fail("the file is a public key, but signing needs the secret key")
            .help("give the file that `driftc keygen -o` named, without the ending .pub"));
    }
    let no_key = || {
        fail("the file is no secret key in minisign's format")
            .help("create a key with `driftc keygen`, or with `minisign -G`")
    };
    if line.len() != SECRET_DIGITS {
        return Err(no_key());
    }
    let boxed = SecretKeyBox::from(text.clone());
    let key = match line {
        line if line.starts_with(PLAIN) && line.ends_with(NO_CHECKSUM) => {
            let bytes = STANDARD.decode(line).map_err(|_| no_key())?;
            SecretKey::from_bytes(&bytes).map_err(|_| no_key())?
        }
        line if line.starts_with(PLAIN) => SecretKey::from_unencrypted_box(boxed)
            .map_err(|_| fail("the secret key is damaged").help("restore the file from a copy"))?,
        line if line.starts_with(ENCRYPTED) => {
            let password = password(&format!("Password of {}: ", path.display()))?;
            SecretKey::from_box(boxed, Some(password)).map_err(|_| {
                fail("the password is wrong, or the secret key is damaged")
                    .help(format!("check the password, also in the variable {}", KEY_PASSWORD.name))
            })?
        }
        _ => return Err(no_key()),
    };
    let id = key_id(&PublicKey::from_secret_key(&key).map_err(|_| no_key())?)?;
    Ok(Signer { key, id })
}

/// Returns the id of a public key.
pub(crate) fn key_id(key: &PublicKey) -> Result<KeyId> {
    KeyId::from_base64(&key.to_base64()).ok_or_else(|| Failure::input("the key has no id"))
}

/// Reads a public key of the command line: the path of a key file, or the base64 line of a key.
///
/// # Errors
/// If a file cannot be read. The runtime checks the key itself.
pub(crate) fn read_public_key(given: &str) -> Result<String> {
    let path = Path::new(given);
    match (path.is_file(), given.len()) {
        (true, _) => read_key_file(path),
        (false, PUBLIC_DIGITS | SECRET_DIGITS) => Ok(given.to_owned()),
        // The message does not repeat what may be a part of a key.
        (false, _) => Err(Failure::usage("--key names no file and is no public key")
            .help("give the file KEY.pub of `driftc keygen`, or its base64 line of 56 characters")),
    }
}

fn read_key_file(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| Failure::file(path, &e))?;
    file.take(MAX_KEY_BYTES).read_to_end(&mut bytes).map_err(|e| Failure::file(path, &e))?;
    String::from_utf8(bytes).map_err(|_| {
        Failure::input(format!("{}: the file is no key in minisign's format", path.display()))
            .help("create a key with `driftc keygen`, or with `minisign -G`")
    })
}

/// Returns the password of a secret key: from the environment, or else from the terminal.
///
/// # Errors
/// If there is no terminal, or the password is empty.
pub(crate) fn password(prompt: &str) -> Result<String> {
    let given = match KEY_PASSWORD.value() {
        Some(value) => value.into_string().map_err(|_| {
            Failure::input(format!("{} is not UTF-8", KEY_PASSWORD.name)).help("set it to a text")
        })?,
        None if std::io::stdin().is_terminal() => rpassword::prompt_password(prompt)
            .map_err(|e| Failure::input(format!("cannot read the password: {e}")))?,
        None => {
            return Err(Failure::input(
                "the secret key needs a password, and there is no terminal to ask for it",
            )
            .help(format!("set {}, or use a key of `driftc keygen --no-password`", KEY_PASSWORD.name)));
        }
    };
    match given.is_empty() {
        true => Err(Failure::input("the password is empty")
            .help("give a password, or create the key with `driftc keygen --no-password`")),
        false => Ok(given),
    }
}

/// Signs a bundle file: writes it anew, with this signature in place of any other. Returns the size of the signature in
/// bytes.
pub(crate) fn sign_bundle(bundle: &Bundle, signer: &Signer, path: &Path) -> Result<u64> {
    let comment = format!("bundle {}", bundle.hash());
    let about = format!("signature of a driftc bundle by key {}", signer.id);
    let signature =
        minisign::sign(None, &signer.key, signed_bytes(bundle.bytes())?, Some(&comment), Some(&about))
            .map_err(|e| Failure::input(format!("cannot sign {}: {e}", path.display())))?
            .into_string();
    let size = read_header(bundle.bytes())?.file_size;
    let unsigned = drift_runtime::codec::section(bundle.bytes(), 0, size)?;
    write_file(path, |file| {
        file.write_all(unsigned)?;
        file.write_all(signature.as_bytes())
    })?;
    Ok(signature.len() as u64)
}

#[cfg(test)]
mod tests {
    use minisign::KeyPair;

    use super::{ENCRYPTED, NO_CHECKSUM, PLAIN, PUBLIC_DIGITS, SECRET_DIGITS, read_signer};

    /// minisign writes no checksum into keys without a password.
    #[test]
    fn keys_without_checksum_are_read() {
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        let text = pair.sk.to_box(None).unwrap().into_string();
        let line = text.lines().nth(1).unwrap();
        let text = text.replace(&line[SECRET_DIGITS - NO_CHECKSUM.len()..], NO_CHECKSUM);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let signer = read_signer(file.path()).unwrap_or_else(|e| panic!("{}", e.text()));
        assert_eq!(signer.key.to_bytes()[..126], pair.sk.to_bytes()[..126]);
    }

    #[test]
    fn kinds_of_keys_are_told_apart_by_their_first_digits() {
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        let line = |text: String| text.lines().nth(1).unwrap().to_owned();
        let plain = line(pair.sk.to_box(None).unwrap().into_string());
        assert!(plain.starts_with(PLAIN) && plain.len() == SECRET_DIGITS);
        assert_eq!(pair.pk.to_base64().len(), PUBLIC_DIGITS);
        let pair = KeyPair::generate_encrypted_keypair(Some("x".to_owned())).unwrap();
        assert!(line(pair.sk.to_box(None).unwrap().into_string()).starts_with(ENCRYPTED));
    }
}
