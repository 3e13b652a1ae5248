//! Compiles the protobuf files to Rust and to a descriptor set, both in `OUT_DIR`. Needs no `protoc`.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use prost::Message as _;

const ROOT: &str = "proto";
const PUBLIC: &str = "proto/cairn/v1/public.proto";
/// Compiled with the feature `faults` alone.
const DEBUG: &str = "proto/cairn/v1/debug.proto";
const VPN: &str = "proto/cairn/v1/vpn.proto";

fn main() -> Result<(), Box<dyn Error>> {
    let files: &[&str] =
        if env::var_os("CARGO_FEATURE_FAULTS").is_some() { &[PUBLIC, DEBUG, VPN] } else { &[PUBLIC, VPN] };
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptor = protox::compile(files, [ROOT])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    fs::write(out.join("descriptor.bin"), descriptor.encode_to_vec())?;
    // No transport: who listens and who connects brings its own, so that the TLS session stays in reach.
    // What carries a key is not printed: `key.rs`.
    let secret = [
        ".cairn.v1.ActivateRequest",
        ".cairn.v1.ReleaseKeyResponse",
        ".cairn.v1.GiveClusterKeyRequest",
        ".cairn.v1.Contribution",
    ];
    tonic_prost_build::configure().build_transport(false).skip_debug(secret).compile_fds(descriptor)?;
    Ok(())
}
