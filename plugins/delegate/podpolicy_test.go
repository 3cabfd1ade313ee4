package delegate

import "testing"

func TestWithPolicy(t *testing.T) {
	t.Parallel()
	const policy = `{"type": "fairlead-policy"}`
	for _, c := range []struct{ plugins, want string }{
		{`{"type":"ptp","ipam":{}},{"type":"portmap"}`, `{"type":"ptp","ipam":{},"antiSpoof":true},{"type":"portmap"},` + policy},
		{`{"type":"ptp","ipam":{},"antiSpoof":false}`, `{"type":"ptp","ipam":{},"antiSpoof":false},` + policy},
		{`{"type":"bridge","ipam":{}}`, `{"type":"bridge","ipam":{},"antiSpoof":true,"bridgeNetfilter":true},` + policy},
		{`{"type":"bridge"}`, `{"type":"bridge"},` + policy}, // a bridge without addresses
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
