// Command driver is the benchmark's runtime with Fairlead's libcni. It executes bench/load's requests with plugins as
// processes or, with the argument "in-process", within itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/fairlead/fairlead/bench/load"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/libcni"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/plugins/samebuild"
)

// timed runs plugins as processes and measures their time.
type timed struct{ invoke.RawExec }

func (t *timed) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	return load.Exec(ctx, path, env, func(path string, env []string) ([]byte, error) {
		return t.RawExec.ExecPlugin(ctx, path, stdin, env)
	})
}

func main() {
	inProcess := len(os.Args) > 1 && os.Args[1] == "in-process"
	var exec libcni.Exec = &timed{}
	if inProcess {
		exec = plugins.In(plugin.Env{IPAM: plugins.IPAM(), SameBuild: (&samebuild.Programs{}).Same})
	}
	lib := libcni.NewCNIConfigWithCacheDir([]string{os.Getenv("CNI_PATH")}, os.Getenv("FAIRLEAD_BENCH_CACHE"), exec)
	load.Main(func(ctx context.Context, j load.Job) error {
		err := do(ctx, lib, j)
		if err == nil && inProcess && started() {
			err = errors.New("a plugin was started as a process instead of running in this one")
		}
		return err
	})
}

// started reports whether this process has had child processes.
func started() bool {
	var u syscall.Rusage
	return syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u) == nil && u.Maxrss > 0
}

func do(ctx context.Context, lib *libcni.CNIConfig, j load.Job) error {
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
}
