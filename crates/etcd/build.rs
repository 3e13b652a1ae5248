//! Compiles what is asked of etcd's protobuf files, in `OUT_DIR`. Needs no `protoc`.

use std::error::Error;

const ROOT: &str = "proto";
const FILES: [&str; 1] = ["proto/etcdserverpb/rpc.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    // No transport: who connects brings its own, with its own TLS. No server: etcd is one.
    let compiled = protox::compile(FILES, [ROOT])?;
    tonic_prost_build::configure().build_transport(false).build_server(false).compile_fds(compiled)?;
    Ok(())
}
