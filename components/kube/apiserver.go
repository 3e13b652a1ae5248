// The apiserver with patience. Upstream ends the process (exit code 255) when what it does once the server listens has
// not succeeded within 30 or 60 seconds, and at once when an admission plugin has not read within 10 seconds what it needs
// to let the first priority class in. On a slow machine that throws away a start that was only slow; the next is no faster.
package main

import (
	"context"
	"fmt"
	"reflect"
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
)

// The hooks that end the process: the first roles, the first priority classes, the first look at service addresses.
var impatient = []string{
	"rbac/bootstrap-roles",
	"scheduling/bootstrap-system-priority-classes",
	"start-service-ip-repair-controllers",
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

// run is app.Run of upstream, with patience put into the server before it runs.
func run(ctx context.Context, opts options.CompletedOptions) error {
	config, err := app.NewConfig(opts)
	if err != nil {
		return err
	}
	completed, err := config.Complete()
	if err != nil {
		return err
	}
	server, err := app.CreateServerChain(completed)
	if err != nil {
		return err
	}
	for _, name := range impatient {
		if err := wrap(server.GenericAPIServer, name); err != nil {
			return err
		}
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}

// wrap makes a hook of the server patient. Upstream hands out the table of hooks, whose rows are of a type of its own with
// the function in a field of its own: no other way leads there. A table that looks otherwise is an error at every start,
// so a version of upstream with another one is noticed at once.
func wrap(server *genericapiserver.GenericAPIServer, name string) error {
	table := reflect.ValueOf(server.PostStartHooks())
	found := table.MapIndex(reflect.ValueOf(name))
	if !found.IsValid() {
		return fmt.Errorf("the apiserver has no hook %q", name)
	}
	row := reflect.New(found.Type()).Elem()
	row.Set(found)
	field := row.FieldByName("hook")
	if !field.IsValid() || field.Type() != reflect.TypeFor[genericapiserver.PostStartHookFunc]() {
		return fmt.Errorf("the apiserver's hook %q is of another kind", name)
	}
	hook := (*genericapiserver.PostStartHookFunc)(field.Addr().UnsafePointer())
	*hook = patient(name, *hook)
	table.SetMapIndex(reflect.ValueOf(name), row)
	return nil
}

// patient tries a hook until it succeeds or the server ends. The server is not ready before; who supervises it knows the
// only deadline.
func patient(name string, hook genericapiserver.PostStartHookFunc) genericapiserver.PostStartHookFunc {
	return func(whole genericapiserver.PostStartHookContext) error {
		for {
			attempt := whole
			var end context.CancelFunc
			attempt.Context, end = context.WithCancel(whole.Context)
			err := hook(attempt)
			if err == nil {
				// What it has started goes on with the server.
				context.AfterFunc(whole, end)
				return nil
			}
			// What it has started ends before it is started again.
			end()
			klog.ErrorS(err, "A slow start: the hook is tried again", "hook", name)
			select {
			case <-whole.Done():
				return nil
			case <-time.After(time.Second):
			}
		}
	}
}
