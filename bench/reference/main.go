// Command reference is the benchmark's reference runtime. It executes bench/load's requests with the reference libcni,
// so that the start of a runtime is not counted. It is a separate module, so that the project does not depend on
// libcni.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/fairlead/fairlead/bench/load"
)

// timed runs plugins as processes and measures their time.
type timed struct{ invoke.DefaultExec }

func (t *timed) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	return load.Exec(ctx, path, env, func(path string, env []string) ([]byte, error) {
		return t.RawExec.ExecPlugin(ctx, path, stdin, env)
	})
}

func main() {
	lib := libcni.NewCNIConfigWithCacheDir([]string{os.Getenv("CNI_PATH")}, os.Getenv("FAIRLEAD_BENCH_CACHE"), &timed{invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: io.Discard}}})
	load.Main(func(ctx context.Context, j load.Job) error {
		list, err := libcni.ConfListFromBytes([]byte(j.List))
		if err != nil {
			return err
		}
		rt := &libcni.RuntimeConf{ContainerID: j.Container, NetNS: j.Netns, IfName: j.IfName, CapabilityArgs: j.Runtime}
		switch j.Verb {
		case "ADD":
			_, err = lib.AddNetworkList(ctx, list, rt)
		case "CHECK":
			err = lib.CheckNetworkList(ctx, list, rt)
		case "DEL":
			err = lib.DelNetworkList(ctx, list, rt)
		default:
			err = fmt.Errorf("no such operation: %s", j.Verb)
		}
		return err
	})
}
