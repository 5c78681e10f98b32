//! `driftc keygen`: creates a key pair that signs bundles, in minisign's format.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use minisign::KeyPair;

use crate::environment::KEY_PASSWORD;
use crate::failure::{Failure, Result};
use crate::output::{Out, write_file, write_private};
use crate::output_paths::check_output_file;
use crate::signing::{key_id, password};

#[derive(Debug, Args)]
pub(crate) struct KeygenArgs {
    /// Write the secret key to this file, and the public key to the same name with the ending .pub
    #[arg(short, long, value_name = "KEY", default_value = "driftc.key")]
    output: PathBuf,
    /// Store the secret key without a password
    #[arg(long)]
    no_password: bool,
    /// Replace existing key files
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &KeygenArgs, out: &mut Out) -> Result<()> {
    let public = args.output.with_extension("pub");
    if public == args.output {
        return Err(Failure::usage("--output has the ending .pub, which is for the public key")
            .help("give the secret key another name, such as release.key"));
    }
    check_output_file(&public, "--output")?;
    for path in [&args.output, &public] {
        if path.exists() && !args.force {
            return Err(Failure::input(format!("{} exists already", path.display())).help(
                "name another file, or replace the key with --force; a replaced secret key cannot be restored",
            ));
        }
    }
    let failed = |e: minisign::PError| Failure::input(format!("cannot create a key: {e}"));
    let pair = match args.no_password {
        true => KeyPair::generate_unencrypted_keypair(),
        false => KeyPair::generate_encrypted_keypair(Some(new_password()?)),
    }
    .map_err(failed)?;
    let id = key_id(&pair.pk)?;
    let comment = format!("driftc secret key {id}");
    let secret = pair.sk.to_box(Some(&comment)).map_err(failed)?.into_string();
    write_private(&args.output, &secret)?;
    let text = pair.pk.to_box().map_err(failed)?.into_string();
    write_file(&public, |file| file.write_all(text.as_bytes()))?;
    writeln!(out, "secret key  {}", args.output.display())?;
    writeln!(out, "public key  {}", public.display())?;
    writeln!(out, "key id      {id}")?;
    writeln!(out, "{}", pair.pk.to_base64())?;
    Ok(())
}

/// Returns the password for a new key. On a terminal, the user repeats it.
fn new_password() -> Result<String> {
    let first = password("Password for the secret key: ")?;
    if KEY_PASSWORD.value().is_none() && std::io::stdin().is_terminal() {
        let second = password("The same password again: ")?;
        if first != second {
            return Err(Failure::input("the two passwords differ").help("run the command again"));
        }
    }
    Ok(first)
}
