package cluster

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/contrib/kubernetes"
)

// TestManifestKinds checks that this package knows every kind in the manifest.
func TestManifestKinds(t *testing.T) {
	t.Parallel()
	raw, err := kubernetes.Manifest(kubernetes.Options{Namespace: "net"})
	if err != nil {
		t.Fatal(err)
	}
	all, err := Parse(raw)
	if err != nil || len(all) < 10 || all[0].GetKind() != "Namespace" {
		t.Fatalf("%d objects, %v", len(all), err)
	}
	for _, o := range all {
		path, err := objectPath(o)
		if err != nil || !strings.HasSuffix(path, "/"+o.GetName()) || (o.GetNamespace() == "net") != strings.Contains(path, "/namespaces/net/") {
			t.Errorf("%s: %s, %v", title(o), path, err)
		}
	}
	if _, err := Parse([]byte("kind: Unheard\nmetadata: {name: x}\n")); err == nil || !strings.Contains(err.Error(), "Unheard") {
		t.Errorf("%v", err)
	}
}

func TestArgument(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"x --cluster-cidr=10.0.0.0/8":         "10.0.0.0/8",
		"x -cluster-cidr 10.0.0.0/8 --other":  "10.0.0.0/8",
		"x --cluster-cidr --other":            "true",
		"x --cluster-cidr":                    "true",
		"x --service-cluster-cidr=10.0.0.0/8": "",
		"cluster-cidr=10.0.0.0/8":             "",
	} {
		if got := argument(strings.Fields(line), "cluster-cidr"); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestUsualRanges(t *testing.T) {
	t.Parallel()
	prefixes := func(text string) (list []netip.Prefix) {
		for word := range strings.FieldsSeq(text) {
			list = append(list, netip.MustParsePrefix(word))
		}
		return list
	}
	usual := prefixes("10.244.0.0/16")
	for have, want := range map[string]string{
		"":                               "block",
		"10.244.1.0/24":                  "podCIDR",
		"10.244.1.0/24 10.244.2.0/24":    "podCIDR",
		"10.245.1.0/24":                  "the podCIDR 10.245.1.0/24 of node n is not in 10.244.0.0/16",
		"10.0.0.0/8":                     "the podCIDR 10.0.0.0/8 of node n is not in 10.244.0.0/16",
		"10.244.1.0/24 fd00:10:244::/64": "the podCIDR fd00:10:244::/64 of node n is not in 10.244.0.0/16",
	} {
		owns := map[string][]netip.Prefix{}
		if have != "" {
			owns["n"] = prefixes(have)
		}
		r, err := usualRanges(nil, owns, usual)
		if err == nil && r.Assign != want || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--pod-cidr")) {
			t.Errorf("%s: %+v, %v, want %s", have, r, err, want)
		}
	}
	for addresses, want := range map[string]bool{
		"": true, "192.0.2.1": true, "2001:db8::1 192.0.2.1": true, "2001:db8::1": false, "fe80::1 2001:db8::1 2001:db8::2": false,
	} {
		nodes := make([]corev1.Node, 2) // the first one has not reported its addresses yet
		for a := range strings.FieldsSeq(addresses) {
			nodes[1].Status.Addresses = append(nodes[1].Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		_, err := usualRanges(nodes, nil, usual)
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "addresses like 2001:db8::") {
			t.Errorf("Nodes with the addresses %q: %v", addresses, err)
		}
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	type o = map[string]any
	spec := func(v any) o {
		return o{"metadata": o{"resourceVersion": fmt.Sprint(v), "managedFields": v}, "status": v, "spec": v}
	}
	named := func(name, image string) o { return o{"name": name, "image": image} }
	for _, x := range []struct {
		a, b any
		want string
	}{
		{1, 1, ""},
		{1, 2, "spec: 1 -> 2"},
		{o{"a": 1}, o{"b": "x"}, "spec.a: 1 -> none\nspec.b: none -> \"x\""},
		{[]any{1, 2}, []any{1, 3, 4}, "spec[1]: 2 -> 3\nspec[2]: none -> 4"},
		{[]any{named("p", "1"), named("q", "1")}, []any{named("q", "2"), named("p", "1")}, "spec.q.image: \"1\" -> \"2\""},
		{"a\nb\nc", "a\nc\nd", "spec: - b\nspec: + d"},
		{"a\nb", "b\na", "spec: the order of the lines"},
		{strings.Repeat("x", 100), "y", "spec: \"" + strings.Repeat("x", 59) + "... -> \"y\""},
	} {
		if got := strings.Join(differences(spec(x.a), spec(x.b)), "\n"); got != x.want {
			t.Errorf("%v and %v: %s, want %s", x.a, x.b, got, x.want)
		}
	}
	many := o{}
	for i := range 20 {
		many[fmt.Sprint("key", i)] = i
	}
	if got := differences(spec(o{}), spec(many)); len(got) != maxDifferences+1 || got[maxDifferences] != "and 8 more" {
		t.Errorf("%q", got)
	}
}

// TestPodState checks the words for the state of a pod.
func TestPodState(t *testing.T) {
	t.Parallel()
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	type status = corev1.ContainerStatus
	for want, s := range map[string]struct{ init, main corev1.ContainerStatus }{
		"ErrImagePull":                   {status{State: waiting("ErrImagePull")}, status{State: waiting("PodInitializing")}},
		"install ended with exit code 3": {status{Name: "install", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}}, status{State: waiting("PodInitializing")}},
		"CrashLoopBackOff":               {status{Ready: true, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}, status{State: waiting("CrashLoopBackOff")}},
		"agent runs, but is not ready":   {status{Ready: true}, status{Name: "agent", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		"install runs":                   {status{Name: "install", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, status{State: waiting("PodInitializing")}},
		string(corev1.PodPending):        {},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []status{s.init}, ContainerStatuses: []status{s.main}}}
		if got := podState(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := podState(&corev1.Pod{}); got != "not scheduled" {
		t.Errorf("%q", got)
	}
}

// TestShortLived checks that the pods of a command run where the agents run, with the image of the agents.
func TestShortLived(t *testing.T) {
	t.Parallel()
	raw, err := kubernetes.Render(kubernetes.Options{Namespace: "net", Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	all, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	agents := decodeDaemonSet(t, all[len(all)-1])
	agents.Spec.Template.Spec.NodeSelector[switchLabel] = switchValue
	set := remover(agents, "x.conflist", false)
	pod := set.Spec.Template.Spec
	if pod.Containers[0].Image != "docker.io/fairlead/fairlead:1.2.3" || len(pod.Tolerations) != 1 || pod.NodeSelector["kubernetes.io/os"] != "linux" || set.Namespace != "net" || !pod.HostPID {
		t.Errorf("%+v", set)
	}
	if may := pod.Containers[0].SecurityContext; may.Privileged != nil || len(may.Capabilities.Add) == 0 || len(pod.Volumes) != 4 {
		t.Errorf("%+v", pod)
	}
	if pod.NodeSelector[switchLabel] != "" || agents.Spec.Template.Spec.NodeSelector[switchLabel] == "" || slices.Contains(pod.Containers[0].Args, "--hand-over") {
		t.Errorf("%+v of agents on %v", pod, agents.Spec.Template.Spec.NodeSelector)
	}
	if args := remover(agents, "x.conflist", true).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--hand-over") {
		t.Errorf("%q", args)
	}
	yes := true
	agents.Spec.Template.Spec.Containers[0].SecurityContext.Privileged = &yes
	if may := remover(agents, "x.conflist", false).Spec.Template.Spec.Containers[0].SecurityContext; may.Privileged == nil {
		t.Errorf("%+v", may)
	}
	// What an administrator added to the agents, for a private registry and against virtual nodes.
	agents.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	agents.Spec.Template.Spec.Affinity = onNodes(&appsv1.DaemonSet{}, []string{"n1", "n2"}).Spec.Template.Spec.Affinity
	for _, set := range []*appsv1.DaemonSet{listeners(agents), clients(agents), remover(agents, "x", false)} {
		pod := set.Spec.Template.Spec
		if len(pod.ImagePullSecrets) != 1 || !reflect.DeepEqual(pod.Affinity, agents.Spec.Template.Spec.Affinity) {
			t.Errorf("%s: %+v", set.Name, pod)
		}
	}
	without := &nodeState{name: "virtual", node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kubernetes.io/os": "linux"}}}}
	delete(agents.Spec.Template.Spec.NodeSelector, switchLabel)
	if runsOn(without, observation{set: *agents}) {
		t.Error("a node that the affinity may exclude should have an agent")
	}
	agents.Spec.Template.Spec.Affinity = nil
	if !runsOn(without, observation{set: *agents}) {
		t.Error("a node that nothing excludes should have no agent")
	}
	for _, set := range []metav1.Object{listeners(agents), clients(agents)} {
		if set.GetNamespace() != "net" || set.GetLabels()[nameLabel] != set.GetName() {
			t.Errorf("%+v", set)
		}
	}
}

// decodeDaemonSet returns an object of the manifest as a DaemonSet.
func decodeDaemonSet(t *testing.T, o *Object) *appsv1.DaemonSet {
	t.Helper()
	set := &appsv1.DaemonSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, set); err != nil {
		t.Fatal(err)
	}
	return set
}

// TestWithoutSwitched checks that no term of a node selector matches a switched node, and that the selector stays as it was.
func TestWithoutSwitched(t *testing.T) {
	t.Parallel()
	linux := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "os", Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}}}}
	two := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{linux, {}}}
	for _, s := range []*corev1.NodeSelector{nil, two} {
		for i, term := range withoutSwitched(s).NodeSelectorTerms {
			last := term.MatchExpressions[len(term.MatchExpressions)-1]
			if last.Key != switchLabel || last.Operator != corev1.NodeSelectorOpNotIn || s == two && i == 0 && len(term.MatchExpressions) != 2 {
				t.Errorf("%+v", term)
			}
		}
	}
	if len(two.NodeSelectorTerms[0].MatchExpressions) != 1 || len(two.NodeSelectorTerms[1].MatchExpressions) != 0 {
		t.Errorf("%+v", two)
	}
}

// TestNamespaceLikeANumber checks that a namespace whose name YAML reads as another type stays a string in all objects.
func TestNamespaceLikeANumber(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"2026", "1e3", "on", "null", "0x1f"} {
		raw, err := kubernetes.Render(kubernetes.Options{Namespace: name})
		if err != nil {
			t.Fatal(err)
		}
		all, err := Parse(raw)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, o := range all {
			r, err := resourceOf(o.GetKind())
			if err != nil || r.namespaced && o.GetNamespace() != name || o.GetKind() == "Namespace" && o.GetName() != name {
				t.Errorf("%s: namespace %q, %v", title(o), o.GetNamespace(), err)
			}
			subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
			for _, x := range subjects {
				if got := x.(map[string]any)["namespace"]; got != name {
					t.Errorf("%s: the subject's namespace is %v", title(o), got)
				}
			}
			if text, has, _ := unstructured.NestedString(o.Object, "data", "agent.yaml"); has {
				var conf config.Config
				if err := config.Parse("agent.yaml", []byte(text), &conf); err != nil || conf.Store.Kubernetes.Namespace != name {
					t.Errorf("agent.yaml: %q, %v", conf.Store.Kubernetes.Namespace, err)
				}
			}
		}
	}
}
