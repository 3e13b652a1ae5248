//! Names of units in the tree, in logs and on the command line. They stand here, since units need each other by name.

/// etcd.
pub const ETCD: &str = "etcd";
/// containerd with the shims of all pods.
pub const CONTAINERD: &str = "containerd";
/// This machine's apiserver.
pub const APISERVER: &str = "kube.apiserver";
/// kubelet, by which the machine is a node of Kubernetes.
pub const KUBELET: &str = "kube.kubelet";
/// Controller-manager and scheduler of this machine.
pub const CONTROLLERS: &str = "kube.controllers";
/// Resolver of the machine's pods.
pub const DNS: &str = "kube.dns";
/// Proxy that leads the addresses of services to pods.
pub const PROXY: &str = "kube.proxy";
/// Task that tells the resolver where names outside the cluster are asked for.
pub const RESOLVERS: &str = "kube.resolvers";
/// Task that says where containerd pulls images from.
pub const REGISTRIES: &str = "registries";
/// Task that has a worker's pods go by the policies of Kubernetes' network.
pub const POLICIES: &str = "policies";
/// Task that compiles these policies, on a coordinator.
pub const COMPILES_POLICIES: &str = "kube.policies";
/// Task that makes etcd's users.
pub const MAKES_USERS: &str = "etcd.users";
/// Task that carries connections to an apiserver that answers.
pub const BALANCER: &str = "kube.balancer";
/// Task that imports images.
pub const IMAGES: &str = "images";
/// Task that creates a cluster's first objects.
pub const BOOTSTRAP: &str = "kube.bootstrap";
/// Task that keeps node objects as the records have them.
pub const NODES: &str = "kube.nodes";
/// Task that writes where services are published.
pub const PUBLISHER: &str = "kube.publisher";
/// Task that has machines make the volumes of claims.
pub const PROVISIONER: &str = "kube.provisioner";
/// Task that says what nodes and pods use, in the apiserver's place.
pub const METRICS: &str = "kube.metrics";
/// Task that looks whether the node is Ready.
pub const OBSERVER: &str = "kube.observer";
/// Task that serves kubelet as the driver of the machine's volumes.
pub const VOLUMES: &str = "kube.volumes";
/// Task that ends pods, which kubelet and PID 1 have to agree on.
pub const PODS: &str = "pods";
