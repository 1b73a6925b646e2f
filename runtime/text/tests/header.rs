//! macrame_text.h is what cbindgen makes of the sources. `MACRAME_REWRITE=1` writes it anew.

use std::path::Path;

#[test]
fn the_committed_header_is_fresh() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml");
    let made = cbindgen::Builder::new()
        .with_crate(folder)
        .with_config(config)
        .generate()
        .expect("the sources can be read");
    let mut fresh = Vec::new();
    made.write(&mut fresh);
    let path = folder.join("macrame_text.h");
    if std::env::var_os("MACRAME_REWRITE").is_some() {
        std::fs::write(&path, &fresh).expect("macrame_text.h can be written");
    }
    let committed = std::fs::read(&path).unwrap_or_default();
    assert!(
        committed == fresh,
        "macrame_text.h is stale: run MACRAME_REWRITE=1 cargo test --release --test header"
    );
}
