//! Tests of signed bundles: which keys load them, and that no other bytes pass for a signature.

mod common;

use common::{encode, small_bundle, with_manifest, with_minor};
use drift_runtime::codec::{read_header, read_manifest, signed_bytes};
use drift_runtime::{Bundle, Error, Options, Session};
use minisign::KeyPair;

fn key_pair() -> (KeyPair, String) {
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    let public = pair.pk.to_base64();
    (pair, public)
}

/// Returns a signature of the header of a bundle.
fn signature(pair: &KeyPair, file: &[u8]) -> String {
    let header = signed_bytes(file).unwrap();
    minisign::sign(None, &pair.sk, header, Some("bundle"), None).unwrap().into_string()
}

fn signed(file: &[u8], signature: &str) -> Vec<u8> {
    [file, signature.as_bytes()].concat()
}

/// Returns the message for a bundle that is loaded with trusted keys, which must fail.
#[track_caller]
fn refused(file: &[u8], keys: &[String]) -> String {
    let bundle = Bundle::from_vec(file.to_vec()).and_then(|bundle| bundle.check_signature(keys).map(|_| ()));
    bundle.expect_err("it is refused").to_string()
}

#[test]
fn a_signed_bundle_is_the_same_bundle() {
    let (pair, public) = key_pair();
    let file = small_bundle();
    let signed = signed(&file, &signature(&pair, &file));
    let (plain, bundle) = (Bundle::from_vec(file).unwrap(), Bundle::from_vec(signed).unwrap());
    bundle.verify().unwrap();
    assert_eq!(plain.hash(), bundle.hash());
    assert_eq!(plain.manifest(), bundle.manifest());
    assert_eq!(plain.signer().unwrap(), None);
    let id = bundle.check_signature(std::slice::from_ref(&public)).unwrap();
    assert_eq!(bundle.signer().unwrap(), Some(id));
    let text = pair.pk.to_box().unwrap().into_string();
    assert!(text.contains(&id.to_string()), "{id} in {text}");
    assert_eq!(bundle.check_signature(&[text.replace('\n', "\r\n")]).unwrap(), id);
    let (_, other) = key_pair();
    assert_eq!(bundle.check_signature(&[other, public]).unwrap(), id);
}

#[test]
fn sessions_load_only_bundles_of_trusted_keys() {
    let (pair, public) = key_pair();
    let (_, other) = key_pair();
    let file = small_bundle();
    let signed = signed(&file, &signature(&pair, &file));
    let load = |file: &[u8], keys: Option<&[&String]>| {
        let trusted_keys = keys.map(|keys| keys.iter().map(|key| (*key).clone()).collect());
        let options = Options { trusted_keys, ..Options::default() };
        Session::from_bundle(Bundle::from_vec(file.to_vec()).unwrap(), &options).map(|_| ())
    };
    load(&signed, Some(&[&public])).unwrap();
    load(&signed, None).unwrap();
    load(&file, None).unwrap();
    for (file, keys) in [(&file, &[&public][..]), (&signed, &[&other]), (&signed, &[])] {
        assert!(matches!(load(file, Some(keys)), Err(Error::Untrusted { .. })));
    }
    // A changed weight has a signed hash. `trust_file` must not skip its check.
    let mut changed = signed.clone();
    let weights = usize::try_from(read_manifest(&file).unwrap().chunks[0].offset).unwrap();
    changed[weights] ^= 1;
    let options = Options { trusted_keys: Some(vec![public]), trust_file: true, ..Options::default() };
    let loaded = Session::from_bundle(Bundle::from_vec(changed).unwrap(), &options).map(|_| ());
    assert!(matches!(loaded, Err(Error::Corrupt { .. })));
}

#[test]
fn messages_name_the_keys() {
    let (pair, public) = key_pair();
    let (_, other) = key_pair();
    let file = small_bundle();
    let signed = signed(&file, &signature(&pair, &file));
    let id = Bundle::from_vec(signed.clone()).unwrap().signer().unwrap().unwrap().to_string();
    let unsigned = refused(&file, std::slice::from_ref(&public));
    assert!(unsigned.contains("not signed") && unsigned.contains(&id), "{unsigned}");
    let foreign = refused(&signed, std::slice::from_ref(&other));
    assert!(foreign.contains(&format!("key {id} signed it")), "{foreign}");
    assert!(refused(&signed, &[]).contains("trusted keys are: none"));
    let secret = pair.sk.to_box(None).unwrap().into_string();
    for (key, part) in [
        (secret.clone(), "secret key"),
        (secret.lines().nth(1).unwrap().to_owned(), "secret key"),
        (signature(&pair, &file).lines().nth(1).unwrap().to_owned(), "is a signature"),
        (public.replace("RW", "XX"), "no minisign public key"),
        (format!("*{}", &public[1..]), "no minisign public key"),
        (String::new(), "no minisign public key"),
        (format!("{public}\n{other}"), "no minisign public key"),
    ] {
        let message = refused(&signed, &[other.clone(), key.clone()]);
        assert!(message.contains("key 2") && message.contains(part), "{message}");
        assert!(!message.contains(&secret[40..80]), "the message contains a secret key");
    }
}

#[test]
fn signatures_of_other_bytes_are_refused() {
    let (pair, public) = key_pair();
    let keys = std::slice::from_ref(&public);
    let file = small_bundle();
    let good = signature(&pair, &file);
    let mut manifest = read_manifest(&file).unwrap();
    manifest.provenance.model_name = "another".to_owned();
    let other = with_manifest(&file, &encode(&manifest));
    let swapped = signed(&other, &good);
    assert!(Bundle::from_vec(swapped.clone()).is_ok());
    assert!(refused(&swapped, keys).contains("does not match it"));
    // The header is signed too, such as its minor version, although its hash is valid.
    let header = with_minor(&file, 4);
    assert!(Bundle::from_vec(header.clone()).is_ok());
    assert!(refused(&signed(&header, &good), keys).contains("does not match it"));
    // A signature in the old form of minisign, without a hash of the message, has another first digit.
    let legacy = good.replacen("\nRU", "\nRW", 1);
    assert!(refused(&signed(&file, &legacy), keys).contains("does not match it"));
}

#[test]
fn every_other_end_of_a_signed_bundle_is_refused() {
    let (pair, public) = key_pair();
    let keys = std::slice::from_ref(&public);
    let file = small_bundle();
    assert_eq!(read_header(&file).unwrap().file_size, file.len() as u64);
    let good = signature(&pair, &file);
    let full = signed(&file, &good);
    for length in file.len() + 1..full.len() {
        let error = Bundle::from_vec(full[..length].to_vec()).map(|_| ()).expect_err("cut");
        assert!(matches!(error, Error::Corrupt { .. }), "{length}: {error}");
    }
    // Without its signature, the bundle is an unsigned one.
    assert!(refused(&full[..file.len()], keys).contains("not signed"));
    let comment = "untrusted comment: ".to_owned() + &"x".repeat(1000);
    let long = good.replacen(good.lines().next().unwrap(), &comment, 1);
    for wrong in [format!("{good}{good}"), format!("{good}\n"), format!("\n{good}"), long, "\n".repeat(4)] {
        assert!(matches!(Bundle::from_vec(signed(&file, &wrong)), Err(Error::Corrupt { .. })), "{wrong}");
    }
    // Only the first comment of a signature is not signed.
    let start = file.len() + good.find('\n').unwrap();
    for index in start..full.len() {
        for flip in [0x01, 0x20, 0x80] {
            let mut damaged = full.clone();
            damaged[index] ^= flip;
            let checked = Bundle::from_vec(damaged).and_then(|bundle| bundle.check_signature(keys));
            assert!(checked.is_err(), "byte {} ^ {flip:#x}", index - file.len());
        }
    }
}
