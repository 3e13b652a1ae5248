// What both controllers in one process promise: each finds its flags, and the lease of a dead process keeps nobody waiting.
package main

import (
	"os"
	"testing"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestALeaseOfThisMachineIsLetGoOfAndNoOther(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ holder, then string }{
		{host + "_0b5b", ""},
		{host + "x_0b5b", host + "x_0b5b"},
		{"another_0b5b", "another_0b5b"},
		{"", ""},
	} {
		lease := &coordination.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "kube-scheduler", Namespace: metav1.NamespaceSystem},
			Spec:       coordination.LeaseSpec{HolderIdentity: &row.holder},
		}
		client := fake.NewClientset(lease)
		takeOver(t.Context(), client, "kube-scheduler")
		takeOver(t.Context(), client, "kube-controller-manager") // nobody has had that one
		now, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), "kube-scheduler", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if *now.Spec.HolderIdentity != row.then {
			t.Errorf("held by %q: then by %q", row.holder, *now.Spec.HolderIdentity)
		}
	}
}

func TestEachControllerHasItsFlags(t *testing.T) {
	command := newControllersCommand()
	arguments := []string{"--kubeconfig=/of/the/manager", "--secure-port=1", "--", "--kubeconfig=/of/the/scheduler", "--secure-port=0"}
	if err := command.ParseFlags(arguments); err != nil {
		t.Fatal(err)
	}
	left := command.Flags().Args()
	if command.Flags().Lookup("kubeconfig").Value.String() != "/of/the/manager" || len(left) != 2 || left[0] != arguments[3] {
		t.Errorf("the manager takes %v, and leaves %v", command.Flags().Lookup("kubeconfig").Value, left)
	}
	if err := command.RunE(command, []string{"--no-flag-of-the-scheduler"}); err == nil {
		t.Error("a flag that the scheduler does not have is taken")
	}
}
