package ipam

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

type planner func(context.Context, *skel.CmdArgs) (*cni.Result, error)

func planIPs(p planner, conf string) (string, error) {
	r, err := p(context.Background(), &skel.CmdArgs{ContainerID: "c1", IfName: "eth0", StdinData: []byte(conf)})
	if err != nil {
		return "", err
	}
	var all []string
	for _, ip := range r.IPs {
		all = append(all, ip.Address.String())
	}
	return strings.Join(all, " "), nil
}

// filesBelow returns the names below a directory, except files that agents write.
func filesBelow(t *testing.T, dir string) (list []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // the agent renames a temporary file
			return nil
		}
		list = append(list, path)
		return err
	}))
	return list
}

// A plan predicts what ADD would return and allocates nothing. If it cannot, it says why.
func TestPreview(t *testing.T) {
	m := newMember(t, "a")
	t.Setenv("FAIRLEAD_LIB", m.lib)
	t.Setenv("FAIRLEAD_RUN", m.run)
	fixed, lan := fairleadOf(`, "addresses": [{"pool": "fixed"}, {"family": 6}]`), whereaboutsOf(`"range": "192.168.2.0/24"`)
	want := func(p planner, conf, words string) {
		t.Helper()
		_, err := planIPs(p, conf)
		if _, ok := errors.AsType[*plugin.CannotPlanError](err); !ok || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: got %v, want %q", conf, err, words)
		}
	}
	want(PlanFairlead, fairleadOf(""), "this node has not joined network default yet: the agent assigns it a block with the first container")
	want(PlanWhereabouts, lan, "the agent allocates cluster addresses: the agent does not answer at")
	open := storeFile(t)
	m.start(open)
	kerneltest.Until(t, func() bool { _, err := planIPs(PlanFairlead, fixed); return err == nil })
	s, err := open()
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	before := filesBelow(t, m.lib)
	for _, row := range []struct {
		plan         planner
		plugin, conf string
	}{{PlanFairlead, "fairlead-ipam", fairleadOf("")}, {PlanFairlead, "fairlead-ipam", fixed}, {PlanWhereabouts, "whereabouts", lan}} {
		reason, err := planIPs(row.plan, row.conf)
		must(t, err)
		left, _, err := s.List(storetest.Context(t), cluster.AddressesPrefix)
		if now := filesBelow(t, m.lib); err != nil || len(left) > 0 || strings.Join(now, "\n") != strings.Join(before, "\n") {
			t.Errorf("%s: the plan allocated something: %v, %v, %v", row.plugin, left, now, err)
		}
		code, out := m.plugin(row.plugin, call{verb: "ADD", id: "c1", conf: row.conf})
		if code != 0 {
			t.Fatal(out)
		}
		var gave []string
		for _, ip := range ipsOf(t, out) {
			gave = append(gave, strings.Fields(ip)[0])
		}
		if strings.Join(gave, " ") != reason {
			t.Errorf("%s allocated %v, but planned %s", row.plugin, gave, reason)
		}
		if again, err := planIPs(row.plan, row.conf); err != nil || again != reason {
			t.Errorf("%s: the plan for the owner is %s, %v: want %s", row.plugin, again, err, reason)
		}
		m.plugin(row.plugin, call{verb: "DEL", id: "c1", conf: row.conf})
		kerneltest.Until(t, func() bool {
			left, _, err := s.List(storetest.Context(t), cluster.AddressesPrefix)
			_, more := os.Stat(filepath.Join(m.lib, "fairlead", "journal.work"))
			return err == nil && len(left) == 0 && more != nil
		})
		before = filesBelow(t, m.lib)
	}
	four := fairleadOf(`, "pool": "extra", "coolDown": 3600`)
	var all []string
	for i := range 4 {
		all = append(all, ipsOf(t, m.must(call{verb: "ADD", id: fmt.Sprint("four", i), conf: four}))[0])
	}
	m.must(call{verb: "DEL", id: "four2", conf: four}) // now the only free address was released recently
	if reason, err := planIPs(PlanFairlead, four); err != nil || reason != strings.Fields(all[2])[0] {
		t.Errorf("planned %s, %v: want %s", reason, err, all[2])
	}
	m.must(call{verb: "ADD", id: "four2", conf: four})
	want(PlanFairlead, four, "are full")
	m.stop()
	if reason, err := planIPs(PlanFairlead, fairleadOf("")); err != nil || reason == "" {
		t.Errorf("out of blocks, without the agent: %s, %v", reason, err)
	}
	want(PlanFairlead, fixed, "the agent does not answer at")
}
