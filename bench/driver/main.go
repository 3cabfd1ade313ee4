// Command driver is the benchmark's runtime of ours: it does what bench/load's
// requests say through our libcni, plugins as processes.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/bench/load"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/libcni"
)

// timed runs plugins as processes and notes how long they take.
type timed struct{ invoke.RawExec }

func (t *timed) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	return load.Exec(ctx, path, env, func(path string, env []string) ([]byte, error) {
		return t.RawExec.ExecPlugin(ctx, path, stdin, env)
	})
}

func main() {
	lib := libcni.NewCNIConfigWithCacheDir([]string{os.Getenv("CNI_PATH")}, os.Getenv("FAIRLEAD_BENCH_CACHE"), &timed{})
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
