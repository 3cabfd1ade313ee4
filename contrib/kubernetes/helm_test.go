package kubernetes

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/internal/built"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// TestHelm compares the objects of "fairlead kubernetes manifest" with those of Helm, for several values.
func TestHelm(t *testing.T) {
	kerneltest.OptIn(t, "FAIRLEAD_HELM") // it builds Helm
	helm, err := built.Program("helm-3.22.0", "helm", built.Install("helm.sh/helm/v3/cmd/helm@v3.22.0", "-s -w"))
	if err != nil {
		t.Fatal(err)
	}
	run := func(argv ...string) string {
		t.Helper()
		var problem strings.Builder
		cmd := exec.Command(helm, argv...)
		cmd.Stderr = &problem
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("helm %v: %v: %s%s", argv, err, out, problem.String())
		}
		return string(out)
	}
	run("lint", "--strict", "chart")
	for _, set := range []string{"", "isolatedNetworks=true", "network.mtu=1400", "podNetworks.enabled=true", "flannel.enabled=true", "image.tag=x", "maxUnavailable=2"} {
		argv := []string{"template", "fairlead", "chart", "--namespace", DefaultNamespace, "--kube-version", "1.37.2"}
		o := Options{Namespace: DefaultNamespace, Values: Values{}}
		if set != "" {
			argv = append(argv, "--set", set)
			v, err := Set(set)
			if err != nil {
				t.Fatal(err)
			}
			o.Values.Merge(v)
		}
		ours, err := Render(o)
		if err != nil {
			t.Fatal(err)
		}
		want, got := objects(t, run(argv...)), objects(t, string(ours))
		delete(got, "Namespace/"+DefaultNamespace) // Helm creates it with --create-namespace
		if a, b := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)); !slices.Equal(a, b) {
			t.Errorf("%s: Helm renders %v\nwe render %v", set, a, b)
		}
		for name, text := range want {
			if got[name] != text {
				t.Errorf("%s: %s: Helm renders\n%s\nwe render\n%s", set, name, text, got[name])
			}
		}
	}
	for _, wrong := range []string{"network.subnets=null", "agent.port=x", "natt=true"} {
		if out, err := exec.Command(helm, "template", "fairlead", "chart", "--set", wrong).CombinedOutput(); err == nil {
			t.Errorf("Helm accepts %s: %s", wrong, out)
		}
	}
}

// objects returns the documents in one form, by kind and name, without the hash of the values: Helm adds values of its
// own.
func objects(t *testing.T, text string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for doc := range strings.SplitSeq("\n"+text, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if len(o) == 0 {
			continue
		}
		name, _ := o["metadata"].(map[string]any)["name"].(string)
		raw, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		lines := slices.DeleteFunc(strings.Split(string(raw), "\n"), func(l string) bool { return strings.Contains(l, "fairlead.io/values: ") })
		out[o["kind"].(string)+"/"+name] = strings.Join(lines, "\n")
	}
	return out
}
