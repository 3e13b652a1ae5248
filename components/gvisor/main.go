// containerd-shim-runsc-v1: upstream's shim of containerd for gVisor, in the cgroup of shims. Upstream's own reads `shim_cgroup` from
// its configuration and does nothing with it (pkg/shim/v1/runsc/options.go), so that all shims would be bounded with containerd, and
// end it.
package main

import (
	"fmt"
	"os"

	"gvisor.dev/gvisor/shim/v1/cli"
)

// Where PID 1 has made the cgroup of shims (crates/services, SHIM_CGROUP).
const shims = "/sys/fs/cgroup/shims/cgroup.procs"

func main() {
	// The shim that is called by containerd only starts the one that stays, which is in the same cgroup from its first moment.
	if err := os.WriteFile(shims, []byte("0"), 0); err != nil {
		fmt.Fprintln(os.Stderr, "go to the cgroup of shims:", err)
		os.Exit(1)
	}
	cli.Main()
}
