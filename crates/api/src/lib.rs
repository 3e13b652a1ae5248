//! The wire: protobuf services, conversion to the model, who may call what.
