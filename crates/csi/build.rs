//! Compiles what kubelet asks of a driver, in `OUT_DIR`. Needs no `protoc`.

use std::error::Error;

const ROOT: &str = "proto";
const FILES: [&str; 2] = ["proto/csi.proto", "proto/pluginregistration.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    let compiled = protox::compile(FILES, [ROOT])?;
    // No transport: who listens brings its own. No client: kubelet is one.
    tonic_prost_build::configure().build_transport(false).build_client(false).compile_fds(compiled)?;
    Ok(())
}
