//! Tests of keys and signatures on the command line: `keygen`, `sign`, `compile --sign`, `check --key`, `inspect`.

use std::path::Path;
use std::process::{Command, Output};

use crate::fixture::{driftc, file, json, refused, target, text};

/// Runs driftc in a folder, with a password for keys if there is one.
fn run(folder: &Path, password: Option<&str>, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_driftc"));
    command.current_dir(folder).args(args).env_remove("DRIFTC_KEY_PASSWORD");
    command.envs(password.map(|password| ("DRIFTC_KEY_PASSWORD", password)));
    command.stdin(std::process::Stdio::null()).output().unwrap()
}

#[track_caller]
fn succeeds(folder: &Path, password: Option<&str>, args: &[&str]) -> String {
    let done = run(folder, password, args);
    assert_eq!(done.status.code(), Some(0), "{args:?}\n{}", text(&done.stderr));
    text(&done.stdout)
}

/// Checks that a command fails with code 1 and a message, which must not contain a part of a secret key.
#[track_caller]
fn fails(folder: &Path, password: Option<&str>, args: &[&str], says: &str) {
    let done = run(folder, password, args);
    let errors = text(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{args:?}\n{errors}");
    assert!(errors.contains(says) && !errors.contains("panicked"), "{args:?}: `{says}` in\n{errors}");
    for secret in ["a.key", "b.key"].map(|name| std::fs::read_to_string(folder.join(name))) {
        let Ok(secret) = secret else { continue };
        assert!(!errors.contains(&secret.lines().nth(1).unwrap()[8..40]), "the error shows a secret key");
    }
}

#[test]
fn bundles_are_signed_and_checked() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    let plain = std::fs::read(file("add.drift")).unwrap();
    std::fs::write(folder.join("m.drift"), &plain).unwrap();
    let created = succeeds(folder, None, &["keygen", "-o", "a.key", "--no-password"]);
    succeeds(folder, Some("secret"), &["keygen", "-o", "b.key"]);
    let line = created.lines().last().unwrap();
    let id = created.lines().find_map(|line| line.strip_prefix("key id      ")).unwrap();
    assert!(std::fs::read_to_string(folder.join("a.pub")).unwrap().contains(line));
    fails(folder, None, &["check", "m.drift", "--key", "a.pub"], "it is not signed");
    assert!(succeeds(folder, None, &["inspect", "m.drift"]).contains("signed      no"));
    assert!(succeeds(folder, None, &["sign", "m.drift", "--key", "a.key"]).contains(id));
    let signed = std::fs::read(folder.join("m.drift")).unwrap();
    assert_eq!(signed[..plain.len()], plain, "the signature follows the unsigned bundle");
    for key in ["a.pub", line] {
        let report = succeeds(folder, None, &["check", "m.drift", "--key", "b.pub", "--key", key]);
        assert!(report.contains(&format!("signed   by key {id}, which is trusted")), "{report}");
    }
    assert!(succeeds(folder, None, &["inspect", "m.drift"]).contains(&format!("by key {id}")));
    let inspected = json(&run(folder, None, &["inspect", "m.drift", "--json"]));
    assert_eq!(inspected["signer"].as_str(), Some(id));
    assert_eq!(inspected["hash"], json(&driftc(&["inspect", &file("add.drift"), "--json"]))["hash"]);
    assert_eq!(inspected["bytes"]["signature"].as_u64(), Some((signed.len() - plain.len()) as u64));
    fails(folder, None, &["check", "m.drift", "--key", "b.pub"], &format!("key {id} signed it"));
    // Another key replaces the signature.
    let args = ["sign", "m.drift", "--key", "b.key", "-o", "n.drift"];
    fails(folder, None, &args, "there is no terminal");
    fails(folder, Some("wrong"), &args, "the password is wrong");
    fails(folder, Some(""), &args, "the password is empty");
    succeeds(folder, Some("secret"), &args);
    succeeds(folder, None, &["check", "n.drift", "--key", "b.pub"]);
    fails(folder, None, &["check", "n.drift", "--key", "a.pub"], "signed it");
    assert_eq!(std::fs::read(folder.join("n.drift")).unwrap()[..plain.len()], plain);
    let args = [
        "compile",
        &file("add.onnx"),
        "-t",
        &target(),
        "--dim",
        "n=1..8",
        "-o",
        "c.drift",
        "--sign",
        "a.key",
    ];
    assert!(succeeds(folder, None, &args).contains(&format!("signed by key {id}")));
    assert_eq!(std::fs::read(folder.join("c.drift")).unwrap()[..plain.len()], plain);
    succeeds(folder, None, &["check", "c.drift", "--key", "a.pub"]);
    // The signature of another bundle, and two signatures.
    std::fs::write(folder.join("twice.drift"), [&signed, &signed[plain.len()..]].concat()).unwrap();
    fails(folder, None, &["check", "twice.drift", "--key", "a.pub"], "corrupt bundle");
    let args = ["compile", &file("add.onnx"), "-t", &target(), "--dim", "n=1..4", "-o", "other.drift"];
    succeeds(folder, None, &args);
    let other = std::fs::read(folder.join("other.drift")).unwrap();
    std::fs::write(folder.join("moved.drift"), [&other, &signed[plain.len()..]].concat()).unwrap();
    fails(folder, None, &["check", "moved.drift", "--key", "a.pub"], "does not match it");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(files.map(|name| name.into_string().unwrap()).all(|name| !name.contains("partial")));
}

#[test]
fn wrong_keys_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    std::fs::copy(file("add.drift"), folder.join("m.drift")).unwrap();
    succeeds(folder, None, &["keygen", "-o", "a.key", "--no-password"]);
    succeeds(folder, Some("secret"), &["keygen", "-o", "b.key"]);
    #[cfg(unix)]
    for name in ["a.key", "b.key"] {
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&folder.join(name).metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let before = std::fs::read(folder.join("a.key")).unwrap();
    fails(folder, None, &["keygen", "-o", "a.key", "--no-password"], "a.key exists already");
    std::fs::rename(folder.join("b.key"), folder.join("moved.key")).unwrap();
    fails(folder, None, &["keygen", "-o", "b.key", "--no-password"], "b.pub exists already");
    std::fs::rename(folder.join("moved.key"), folder.join("b.key")).unwrap();
    assert_eq!(std::fs::read(folder.join("a.key")).unwrap(), before);
    succeeds(folder, None, &["keygen", "-o", "a.key", "--no-password", "--force"]);
    assert_ne!(std::fs::read(folder.join("a.key")).unwrap(), before);
    fails(folder, None, &["keygen", "-o", "c.key"], "there is no terminal");
    assert!(!folder.join("c.key").exists());
    for (key, says) in
        [("a.pub", "is a public key"), ("m.drift", "no key in minisign's format"), ("none", "none")]
    {
        fails(folder, None, &["sign", "m.drift", "--key", key], says);
    }
    let secret = std::fs::read_to_string(folder.join("a.key")).unwrap();
    let mut damaged = secret.clone().into_bytes();
    let place = secret.find('\n').unwrap() + 120;
    damaged[place] = if damaged[place] == b'A' { b'B' } else { b'A' };
    let damaged = String::from_utf8(damaged).unwrap();
    for (text, says) in [
        (secret.replace("RWQAAEIy", "RWQABEIy"), "is no secret key"),
        (secret[..secret.len() - 40].to_owned(), "is no secret key"),
        (damaged, "the secret key is damaged"),
        (String::new(), "is no secret key"),
    ] {
        std::fs::write(folder.join("broken.key"), text).unwrap();
        fails(folder, None, &["sign", "m.drift", "--key", "broken.key"], says);
    }
    let line = secret.lines().nth(1).unwrap();
    for key in ["a.key", line] {
        fails(folder, None, &["check", "m.drift", "--key", key], "it is a secret key");
    }
    fails(folder, None, &["check", "m.drift", "--key", "m.drift"], "no key in minisign's format");
    refused(
        &["check", &file("add.drift"), "--key", "absent.pub"],
        2,
        "--key names no file and is no public key",
    );
    refused(&["check", &file("add.onnx"), "--key", "absent.pub"], 2, "need a bundle");
    refused(&["keygen", "-o", "x.pub", "--no-password"], 2, "has the ending .pub");
    refused(&["sign", &file("add.onnx"), "--key", "x.key"], 1, "takes a bundle");
}
