package plugin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

// panicking is a plugin whose code panics once its links exist and it has its addresses.
type panicking struct{ plugin.Config }

func (p *panicking) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, p.Config) }

func (p *panicking) Addressed(*plugin.Attachment, *cni.Result) (kernel.Objects, error) {
	panic("on purpose")
}

// externalIPAM adds an address plugin that is a script. It notes each call in a file, which the returned function reads.
func (b *bridged) externalIPAM(script string) (calls func() string) {
	b.t.Helper()
	log := filepath.Join(b.dir, "calls")
	script = fmt.Sprintf("#!/bin/sh\necho $CNI_COMMAND >>%s\n[ $CNI_COMMAND = ADD ] || exit 0\n%s\n", log, script)
	if err := os.WriteFile(filepath.Join(b.dir, "script"), []byte(script), 0o755); err != nil {
		b.t.Fatal(err)
	}
	b.args.StdinData = []byte(`{"cniVersion": "1.1.0", "name": "n", "type": "bridge", "ipam": {"type": "script"}}`)
	return func() string {
		raw, err := os.ReadFile(log)
		if err != nil {
			b.t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(raw)), " ")
	}
}

// gone checks that nothing is left of a failed ADD.
func (b *bridged) gone() {
	b.t.Helper()
	if out := kerneltest.Run(b.t, "ip", "link"); strings.Contains(out, "veth") {
		b.t.Errorf("the pair is left:\n%s", out)
	}
	if _, err := attach.Open(b.env.Root).Read(b.owner); !errors.Is(err, os.ErrNotExist) {
		b.t.Errorf("the record is left: %v", err)
	}
}

// TestUnreadableAddresses checks that addresses are released that nobody can use, and that DEL follows the failure of a
// plugin (specification, section 4).
func TestUnreadableAddresses(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		`echo '{"cniVersion": "2.0.0", "ips": [{"address": "10.1.0.5/24"}]}'`:                       "ADD DEL",
		`echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5"}]}'`:                          "ADD DEL",
		`echo '{"cniVersion": "1.1.0", "ips": []}'`:                                                 "ADD DEL",
		`echo '{"cniVersion": "1.1.0", "ips": [{"address": "fd00::2/64", "gateway": "10.1.0.1"}]}'`: "ADD DEL",
		`echo nothing`: "ADD DEL",
		`true`:         "ADD DEL",
		`echo '{"cniVersion": "1.1.0", "code": 11, "msg": "no address is free"}'; exit 1`: "ADD DEL",
		`exit 3`: "ADD DEL",
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			b := newBridged(t)
			calls := b.externalIPAM(script)
			if _, err := b.p.Skel(b.env).Funcs.Add(t.Context(), &b.args); err == nil {
				t.Error("ADD succeeded")
			}
			if got := calls(); got != want {
				t.Errorf("calls of the address plugin: %s, want %s", got, want)
			}
			b.gone()
		})
	}
}

// TestPanicIsUndone checks that an ADD whose code panics leaves nothing: neither the links nor the addresses.
func TestPanicIsUndone(t *testing.T) {
	t.Parallel()
	b := newBridged(t)
	calls := b.externalIPAM(`echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/24"}]}'`)
	create := b.p.New
	b.p.New = func() plugin.Config { return &panicking{create()} }
	_, err := b.p.Skel(b.env).Funcs.Add(t.Context(), &b.args)
	if e := cni.AsError(err); err == nil || !strings.Contains(e.Msg, "plugin bridge panicked: on purpose") || !strings.Contains(e.Details, "undo_test.go") {
		t.Errorf("ADD: %v", err)
	}
	if got := calls(); got != "ADD DEL" {
		t.Errorf("calls of the address plugin: %s", got)
	}
	b.gone()
}

// TestReleaseAfterLinks verifies that DEL releases an address only when the link that had it is gone.
func TestReleaseAfterLinks(t *testing.T) {
	t.Parallel()
	b := newBridged(t)
	b.args.StdinData = fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "n", "type": "bridge", "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.1.0.0/24"}}`, b.dir)
	released, early := 0, 0
	for i, p := range b.env.IPAM {
		if del := p.Funcs.Del; p.Name == "host-local" {
			b.env.IPAM[i].Funcs.Del = func(ctx context.Context, args *skel.CmdArgs) error {
				links, err := net.Interfaces()
				if released++; err != nil || slices.ContainsFunc(links, func(l net.Interface) bool { return strings.HasPrefix(l.Name, "veth") }) {
					early++
				}
				return del(ctx, args)
			}
		}
	}
	for range 20 {
		b.add()
		if err := b.p.Skel(b.env).Funcs.Del(t.Context(), &b.args); err != nil {
			t.Fatal(err)
		}
	}
	if released != 20 || early > 0 {
		t.Errorf("of %d releases of an address, %d were before the removal of its link", released, early)
	}
}
