// What the apiserver's patience promises: a start that is only slow is not thrown away. In time of its own (synctest).
package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
)

var errSlow = errors.New("not done within 30 s")

// Without patience upstream ends the process at the first error, and so this test with it.
func TestAHookThatFailsIsTriedAgainAndEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(t)
		attempts := 0
		var last context.Context
		add(t, server, "slow", func(attempt genericapiserver.PostStartHookContext) error {
			if last != nil && last.Err() == nil {
				t.Error("what an attempt has started goes on beside the next")
			}
			last = attempt
			attempts++
			if attempts < 4 {
				time.Sleep(30 * time.Second)
				return errSlow
			}
			return nil
		})
		if err := wrap(server, "slow"); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		server.RunPostStartHooks(ctx)
		time.Sleep(3*31*time.Second - time.Millisecond)
		synctest.Wait()
		if attempts != 3 {
			t.Errorf("%d attempts before the time of the fourth", attempts)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if attempts != 4 {
			t.Errorf("%d attempts, of which the fourth succeeds", attempts)
		}
		if last.Err() != nil {
			t.Error("what the attempt that succeeds has started does not go on with the server")
		}
		end()
		synctest.Wait()
		if last.Err() == nil {
			t.Error("what a hook has started outlives the server")
		}
	})
}

func TestAServerThatEndsTriesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond)
		defer end()
		attempts := 0
		hook := patient("hopeless", func(genericapiserver.PostStartHookContext) error {
			attempts++
			return errSlow
		})
		if err := hook(genericapiserver.PostStartHookContext{Context: ctx}); err != nil {
			t.Errorf("the end of the server is told as a failure: %v", err)
		}
		if attempts != 11 {
			t.Errorf("%d attempts, one each second", attempts)
		}
	})
}

func TestAHookThatUpstreamHasNoMoreIsAnError(t *testing.T) {
	if wrap(newServer(t), "slow") == nil {
		t.Error("a hook that is not there was made patient")
	}
}

func newServer(t *testing.T) *genericapiserver.GenericAPIServer {
	t.Helper()
	config := genericapiserver.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
	config.ExternalAddress = "192.0.2.1:443"
	config.LoopbackClientConfig = &rest.Config{}
	config.EffectiveVersion = basecompatibility.NewEffectiveVersionFromString("", "", "")
	server, err := config.Complete(nil).New("test", genericapiserver.NewEmptyDelegate())
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func add(t *testing.T, server *genericapiserver.GenericAPIServer, name string, hook genericapiserver.PostStartHookFunc) {
	t.Helper()
	if err := server.AddPostStartHook(name, hook); err != nil {
		t.Fatal(err)
	}
}
