//! Answers that are the same on every machine, and amounts as kubelet counts them.

use crate::wire::csi::node_service_capability::{self, Rpc, rpc};
use crate::wire::csi::plugin_capability::{self, VolumeExpansion, volume_expansion};
use crate::wire::csi::volume_usage::Unit;
use crate::wire::csi::{
    GetPluginCapabilitiesResponse, NodeGetCapabilitiesResponse, NodeGetVolumeStatsResponse, NodeServiceCapability,
    PluginCapability, VolumeUsage,
};
use crate::wire::pluginregistration::PluginInfo;
use volumes::DRIVER;

/// Registration of the driver that listens at `endpoint`.
#[must_use]
pub fn registration(endpoint: &str) -> PluginInfo {
    PluginInfo {
        // Kubelet's words: a driver of volumes, of any version of the interface from 1.0 on.
        r#type: "CSIPlugin".to_owned(),
        name: DRIVER.to_owned(),
        endpoint: endpoint.to_owned(),
        supported_versions: vec!["1.0.0".to_owned()],
    }
}

/// Plugin's capabilities: volumes grow while they are mounted, and no controller answers here.
#[must_use]
pub fn expansion() -> GetPluginCapabilitiesResponse {
    let online = VolumeExpansion { r#type: volume_expansion::Type::Online.into() };
    let grows = PluginCapability { r#type: Some(plugin_capability::Type::VolumeExpansion(online)) };
    GetPluginCapabilitiesResponse { capabilities: vec![grows] }
}

/// Node's capabilities: it tells how full a volume is, and lets one grow; nothing is staged.
#[must_use]
pub fn capabilities() -> NodeGetCapabilitiesResponse {
    let capability = |kind: rpc::Type| NodeServiceCapability {
        r#type: Some(node_service_capability::Type::Rpc(Rpc { r#type: kind.into() })),
    };
    let capabilities = [rpc::Type::GetVolumeStats, rpc::Type::ExpandVolume].map(capability);
    NodeGetCapabilitiesResponse { capabilities: capabilities.to_vec() }
}

/// Usage of a volume that may have `bytes` and takes `used` of them.
#[must_use]
pub fn usage(bytes: u64, used: u64) -> NodeGetVolumeStatsResponse {
    let counted = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let usage = VolumeUsage {
        available: counted(bytes.saturating_sub(used)),
        total: counted(bytes),
        used: counted(used),
        unit: Unit::Bytes.into(),
    };
    NodeGetVolumeStatsResponse { usage: vec![usage] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_adds_up_and_never_overflows() {
        let amounts = |bytes, used| usage(bytes, used).usage.pop().map(|it| (it.available, it.total, it.used));
        assert_eq!(amounts(10, 4), Some((6, 10, 4)));
        assert_eq!(amounts(4, 10), Some((0, 4, 10)));
        assert_eq!(amounts(u64::MAX, 0), Some((i64::MAX, i64::MAX, 0)));
    }

    /// With more of them kubelet would ask for what nobody answers.
    #[test]
    fn the_driver_promises_what_it_serves() {
        use prost::Message;
        // rpc = 1 { type = 1: 2 }, rpc = 1 { type = 1: 3 }.
        let expected = [0x0a, 4, 0x0a, 2, 8, 2, 0x0a, 4, 0x0a, 2, 8, 3];
        assert_eq!(capabilities().encode_to_vec(), expected);
        // volume_expansion = 2 { type = 1: 1 }.
        assert_eq!(expansion().encode_to_vec(), [0x0a, 4, 0x12, 2, 8, 1]);
    }
}
