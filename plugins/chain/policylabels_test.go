package chain

import (
	"maps"
	"testing"

	"github.com/fairlead/fairlead/skel"
)

func TestLabels(t *testing.T) {
	t.Parallel()
	const head = `{"cniVersion": "1.0.0", "name": "n", "type": "fairlead-policy", "prevResult": {"ips": [{"address": "10.0.0.1/24"}]}`
	for _, c := range []struct {
		conf, args string
		want       map[string]string
	}{
		{``, ``, map[string]string{}},
		{`, "labels": {"app": "db", "tier": "x"}`, `LABELS=app:web`, map[string]string{"app": "web", "tier": "x"}},
		{`, "args": {"cni": {"labels": [{"key": "example.com/a_b", "value": ""}]}}`, `LABELS=`, map[string]string{"example.com/a_b": ""}},
		{`, "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"fairlead.io/labels": " app = web , b=c,", "x": "y"}}`, `LABELS=app:db,d:e`,
			map[string]string{"app": "web", "b": "c", "d": "e"}},
		{`, "labels": null, "args": null, "runtimeConfig": null`, ``, map[string]string{}},
	} {
		got, err := readPolicy(t.Context(), &skel.CmdArgs{Args: c.args, StdinData: []byte(head + c.conf + "}")}, true)
		if err != nil || !maps.Equal(got.endpoint.Labels, c.want) {
			t.Errorf("%s %s: %v, %+v", c.conf, c.args, err, got)
		}
	}
	for _, c := range [][2]string{
		{`, "labels": {"": "x"}`}, {`, "labels": {"a": "x y"}`}, {`, "labels": {"/a": "x"}`}, {`, "labels": {"a/": "x"}`}, {`, "labels": {"-a": "x"}`},
		{`, "labels": []`}, {``, `LABELS=app`}, {`, "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"fairlead.io/labels": "app:x"}}`},
	} {
		if got, err := readPolicy(t.Context(), &skel.CmdArgs{Args: c[1], StdinData: []byte(head + c[0] + "}")}, true); err == nil {
			t.Errorf("%v: %+v", c, got.endpoint.Labels)
		}
	}
}
