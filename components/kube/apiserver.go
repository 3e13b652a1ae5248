// The apiserver with patience. Upstream ends the process (exit code 255) when what it does once the server listens has
// not succeeded within 30 seconds, and at once when an admission plugin has not read within 10 seconds what it needs to
// let the first priority class in. On a slow machine that throws away a start that was only slow; the next is no faster.
package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	rbac "k8s.io/kubernetes/pkg/registry/rbac/rest"
	scheduling "k8s.io/kubernetes/pkg/registry/scheduling/rest"
)

// The hooks that end the process: the first roles, the first priority classes.
var impatient = []func() (string, genericapiserver.PostStartHookFunc, error){
	rbac.RESTStorageProvider{}.PostStartHook,
	scheduling.RESTStorageProvider{}.PostStartHook,
}

// newAPIServerCommand is app.NewAPIServerCommand of upstream with another run.
func newAPIServerCommand() *cobra.Command {
	s := options.NewServerRunOptions()
	ctx := genericapiserver.SetupSignalContext()
	registry := s.GenericServerRunOptions.ComponentGlobalsRegistry
	featureGate := registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	command := &cobra.Command{
		Use:          "kube-apiserver",
		SilenceUsage: true,
		Args:         cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			rest.SetDefaultWarningHandler(rest.NoWarnings{})
			return registry.Set()
		},
		RunE: func(command *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(s.Logs, featureGate); err != nil {
				return err
			}
			cliflag.PrintFlags(command.Flags())
			completed, err := s.Complete(ctx)
			if err != nil {
				return err
			}
			if errs := completed.Validate(); len(errs) != 0 {
				return utilerrors.NewAggregate(errs)
			}
			featureGate.(featuregate.MutableFeatureGate).AddMetrics()
			registry.AddMetrics()
			return run(ctx, completed)
		},
	}
	command.SetContext(ctx)
	flags := s.Flags()
	globalflag.AddGlobalFlags(flags.FlagSet("global"), command.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range flags.FlagSets {
		command.Flags().AddFlagSet(set)
	}
	return command
}

// run is app.Run of upstream; the impatient hooks give way to patient ones of other names.
func run(ctx context.Context, opts options.CompletedOptions) error {
	config, err := app.NewConfig(opts)
	if err != nil {
		return err
	}
	hooks := map[string]genericapiserver.PostStartHookFunc{}
	for _, provider := range impatient {
		name, hook, err := provider()
		if err != nil {
			return err
		}
		config.KubeAPIs.ControlPlane.Generic.DisabledPostStartHooks.Insert(name)
		hooks["patient/"+name] = patient(name, hook)
	}
	completed, err := config.Complete()
	if err != nil {
		return err
	}
	server, err := app.CreateServerChain(completed)
	if err != nil {
		return err
	}
	for name, hook := range hooks {
		if err := server.GenericAPIServer.AddPostStartHook(name, hook); err != nil {
			return err
		}
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}

// patient tries a hook until it succeeds or the server ends. The server is not ready before; who supervises it knows the
// only deadline.
func patient(name string, hook genericapiserver.PostStartHookFunc) genericapiserver.PostStartHookFunc {
	return func(hookContext genericapiserver.PostStartHookContext) error {
		for {
			err := hook(hookContext)
			if err == nil {
				return nil
			}
			klog.ErrorS(err, "A slow start: the hook is tried again", "hook", name)
			select {
			case <-hookContext.Done():
				return nil
			case <-time.After(time.Second):
			}
		}
	}
}
