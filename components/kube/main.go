// The Kubernetes components of a machine in one binary: the name it is called by chooses the component.
// One file on the image instead of five saves about 300 MB, for they share most of their code.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/transport"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var components = map[string]func() *cobra.Command{
	"kube-apiserver":   newAPIServerCommand,
	"kube-controllers": newControllersCommand,
	"kube-proxy":       proxy.NewProxyCommand,
	"kubelet":          func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

// How soon a client sees that the certificate in its file is another. Where a machine lay saved for days all of them have ended when
// it comes back, and upstream's 5 minutes would be a time without a node. It compares two small files, in memory.
const clientCertificateLook = 5 * time.Second

func main() {
	transport.CertCallbackRefreshDuration = clientCertificateLook
	name := filepath.Base(os.Args[0])
	component, known := components[name]
	if !known {
		fmt.Fprintf(os.Stderr, "kube: called as %q, which is none of its components\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(component()))
}
