//! Writes a copy of a bundle in which a weight is changed, with valid hashes: `change-weight BUNDLE COPY`. The bundle's self-test
//! fails on the copy.

use std::path::Path;

use drift_runtime::Bundle;
use drift_tests::tested_bundle::write_edited;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bundle, copy] = arguments.as_slice() else {
        panic!("usage: change-weight BUNDLE COPY");
    };
    let bundle = Bundle::open(Path::new(bundle)).unwrap_or_else(|e| panic!("{bundle}: {e}"));
    // The highest byte of a float: its sign and exponent.
    write_edited(&bundle, Path::new(copy), &|weights, _| weights[3] ^= 0x7f);
}
