//! Modules that `build.rs` generates from `proto/`, one for each of etcd's packages.

#![expect(unused_qualifications, clippy::allow_attributes_without_reason, reason = "generated code")]

/// Users and their rights.
pub mod authpb {
    tonic::include_proto!("authpb");
}

/// Keys, values, events.
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// The API itself.
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}
