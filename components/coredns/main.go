// CoreDNS with the plugins that a machine's resolver for its pods needs, and no others.
package main

import (
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	"k8s.io/client-go/transport"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/reload"
)

func init() {
	// The order in which they see a query, whatever the order in the Corefile.
	dnsserver.Directives = []string{
		"reload", "bind", "health", "prometheus", "errors", "cache", "kubernetes", "forward",
	}
}

func main() {
	// As components/kube does: a certificate that was renewed is shown soon.
	transport.CertCallbackRefreshDuration = 5 * time.Second
	coremain.Run()
}
