package delegate

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/plugin"
)

// TestPodPolicy checks that each network that a pod selects waits for policy and pins addresses if the node's own list does,
// also one that replaces the default network.
func TestPodPolicy(t *testing.T) {
	h := newPodHost(t)
	h.file(filepath.Join(h.bin, "bridge"), fmt.Sprintf(logging, h.log))
	h.file(filepath.Join(h.bin, "fairlead-policy"), fmt.Sprintf(logging, h.log))
	h.define("fixed", `{"cniVersion": "1.0.0", "type": "bridge", "ipam": {"type": "x"}}`, "")
	for _, annotation := range []string{`"v1.multus-cni.io/default-network": "shop/fixed"`, `"fairlead.io/default-network": "shop/fixed"`} {
		args := h.args(`{` + annotation + `, "k8s.v1.cni.cncf.io/networks": "fixed"}`)
		args.StdinData = []byte(strings.Replace(string(args.StdinData), `"default": true}`, `"default": true}, {"type": "fairlead-policy"}`, 1))
		if _, err := Pod(&plugin.Exec{}).Funcs.Add(t.Context(), args); err != nil {
			t.Fatalf("%s: %v", annotation, err)
		}
		wantCalls(t, h.calls(), `ADD eth0 "type":"bridge" "antiSpoof":true "bridgeNetfilter":true`, "ADD eth0 fairlead-policy", `ADD net1 "antiSpoof":true "bridgeNetfilter":true`, "ADD net1 fairlead-policy")
		if err := Pod(&plugin.Exec{}).Funcs.Del(t.Context(), args); err != nil {
			t.Error(err)
		}
		h.calls()
	}
}

func TestWithPolicy(t *testing.T) {
	t.Parallel()
	const policy = `{"type": "fairlead-policy"}`
	for _, c := range []struct{ plugins, want string }{
		{`{"type":"ptp","ipam":{"type":"x"}},{"type":"portmap"}`, `{"type":"ptp","ipam":{"type":"x"},"antiSpoof":true},{"type":"portmap"},` + policy},
		{`{"type":"ptp","ipam":{"type":"x"},"antiSpoof":false}`, `{"type":"ptp","ipam":{"type":"x"},"antiSpoof":false},` + policy},
		{`{"type":"bridge","ipam":{"type":"x"}}`, `{"type":"bridge","ipam":{"type":"x"},"antiSpoof":true,"bridgeNetfilter":true},` + policy},
		{`{"type":"bridge"}`, `{"type":"bridge"},` + policy}, // a bridge without addresses
		{`{"type":"bridge","ipam":{}}`, `{"type":"bridge","ipam":{}},` + policy},
		{`{"type":"bridge","ipam":null}`, `{"type":"bridge","ipam":null},` + policy},
		{`{"type":"bridge","ipam":{"type":""}}`, `{"type":"bridge","ipam":{"type":""}},` + policy},
		{`{"type":"fairlead-net","network":"blue"}`, `{"type":"fairlead-net","network":"blue","antiSpoof":true},` + policy},
		{`{"type":"other","ipam":{}}`, `{"type":"other","ipam":{}},` + policy},
		{`{"type":"ptp","ipam":{}},{"type":"fairlead-policy"}`, `{"type":"ptp","ipam":{}},{"type":"fairlead-policy"}`},
	} {
		list := func(plugins string) string { return `{"name":"n","plugins":[` + plugins + `]}` }
		got, err := WithPolicy([]byte(list(c.plugins)))
		if err != nil || string(got) != list(c.want) {
			t.Errorf("%s: %v:\n%s, want\n%s", c.plugins, err, got, list(c.want))
		}
	}
	for _, bad := range []string{``, `[]`, `{}`, `{"plugins":[]}`, `{"plugins":[{}]}`} {
		if got, err := WithPolicy([]byte(bad)); err == nil {
			t.Errorf("%q: %s", bad, got)
		}
	}
}
