//! Modules that `build.rs` generates from `proto/`, one for each package.

#![expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]

/// Container Storage Interface, the part that kubelet speaks.
pub mod csi {
    tonic::include_proto!("csi.v1");
}

/// Kubelet's registration of drivers.
pub mod pluginregistration {
    tonic::include_proto!("pluginregistration");
}
