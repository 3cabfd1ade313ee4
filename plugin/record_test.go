package plugin_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

// TestRecordInOneProcess checks that a plugin without desired state of its own, such as fairlead-policy, finds the record of
// the plugins before it, although the list runs in one process and writes the record at its end.
func TestRecordInOneProcess(t *testing.T) {
	t.Parallel()
	b := newBridged(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	probed := false
	probe := skel.Plugin{Name: "probe", Funcs: skel.CNIFuncs{Add: func(ctx context.Context, args *skel.CmdArgs) (*cni.Result, error) {
		r, err := plugin.Record(ctx, b.owner)
		if err != nil || len(r.Parts) != 1 || r.Parts[0].Plugin != "bridge" || r.Netns != args.Netns {
			t.Errorf("the record: %+v, %v", r, err)
		}
		probed = true
		return &cni.Result{CNIVersion: "1.1.0"}, nil
	}}}
	x := &plugin.Exec{Plugins: []skel.Plugin{b.p.Skel(b.env), probe}, Env: b.env}
	member := func(name string, conf []byte) invoke.Member {
		path := filepath.Join(b.dir, name)
		if err := os.Symlink(self, path); err != nil {
			t.Fatal(err)
		}
		return invoke.Member{Path: path, Request: func([]byte) ([]byte, error) { return conf, nil }}
	}
	list := []invoke.Member{member("bridge", b.args.StdinData), member("probe", []byte(`{"cniVersion": "1.1.0", "name": "n", "type": "probe"}`))}
	args := &invoke.Args{Command: "ADD", ContainerID: b.args.ContainerID, NetNS: b.args.Netns, IfName: b.args.IfName, Path: b.dir}
	if _, _, err := x.ExecList(t.Context(), list, args); err != nil || !probed {
		t.Errorf("ADD: %v, probed: %v", err, probed)
	}
}
