// The controllers of a control plane, controller-manager and scheduler, in one process: they share a runtime and what client-go
// keeps of types. Each elects its leader by a lease of its own. Whoever loses one ends the process, and nothing beside it.
package main

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	manageroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// newControllersCommand takes the flags of the controller-manager, `--`, and those of the scheduler.
func newControllersCommand() *cobra.Command {
	m, err := manageroptions.NewKubeControllerManagerOptions()
	if err != nil {
		klog.Background().Error(err, "No options for the controller-manager")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	s := scheduleroptions.NewOptions()
	schedulerFlags := pflag.NewFlagSet("kube-scheduler", pflag.ContinueOnError)
	for _, set := range s.Flags.FlagSets {
		schedulerFlags.AddFlagSet(set)
	}
	command := &cobra.Command{
		Use:          "kube-controllers [flags of the controller-manager] -- [flags of the scheduler]",
		SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			rest.SetDefaultWarningHandler(rest.NoWarnings{})
			return m.ComponentGlobalsRegistry.Set()
		},
		RunE: func(command *cobra.Command, args []string) error {
			if err := schedulerFlags.Parse(args); err != nil {
				return err
			}
			// What is of the process is set once: logs, metrics of versions, signals.
			if err := logsapi.ValidateAndApply(m.Logs, utilfeature.DefaultFeatureGate); err != nil {
				return err
			}
			cliflag.PrintFlags(command.Flags())
			cliflag.PrintFlags(schedulerFlags)
			utilfeature.DefaultMutableFeatureGate.AddMetrics()
			m.ComponentGlobalsRegistry.AddMetrics()
			return runControllers(genericapiserver.SetupSignalContext(), m, s)
		},
	}
	flags := m.Flags(manager.KnownControllers(), manager.ControllersDisabledByDefault(), manager.ControllerAliases())
	m.ParsedFlags = &flags
	globalflag.AddGlobalFlags(flags.FlagSet("global"), command.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range flags.FlagSets {
		command.Flags().AddFlagSet(set)
	}
	return command
}

// runControllers runs both until the process is asked to end, or one of them ends.
func runControllers(asked context.Context, m *manageroptions.KubeControllerManagerOptions, s *scheduleroptions.Options) error {
	config, err := m.Config(asked, manager.KnownControllers(), manager.ControllersDisabledByDefault(), manager.ControllerAliases())
	if err != nil {
		return err
	}
	// The scheduler ends the process once it has let go of its lease, so it is asked last.
	schedules, endScheduling := context.WithCancel(context.Background())
	defer endScheduling()
	schedulerConfig, sched, err := scheduler.Setup(schedules, s)
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() {
		takeOver(asked, config.Client, m.Generic.LeaderElection.ResourceName)
		ended <- manager.Run(asked, config.Complete())
	}()
	go func() {
		takeOver(asked, schedulerConfig.Client, s.ComponentConfig.LeaderElection.ResourceName)
		ended <- scheduler.Run(schedules, schedulerConfig, sched)
	}()
	err = <-ended
	if asked.Err() == nil {
		return errors.Join(errors.New("a controller has ended by itself"), err)
	}
	endScheduling()
	<-ended
	return err
}

// takeOver lets go of the lease that an earlier process on this machine had and did not let go of: there is one process at a time,
// so nobody has it, and nobody has to wait until it ends. What fails is not tried again: then they wait.
func takeOver(ctx context.Context, client kubernetes.Interface, name string) {
	host, err := os.Hostname()
	if err != nil {
		return
	}
	leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		holder := lease.Spec.HolderIdentity
		// The form is that of both: host name, underscore, UUID.
		if holder == nil || !strings.HasPrefix(*holder, host+"_") {
			return
		}
		nobody := ""
		lease.Spec.HolderIdentity = &nobody
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "The lease of an earlier process stays until it ends", "lease", name)
	}
}
