package cluster

import (
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestExplainForbidden checks that only a missing permission is explained as one.
func TestExplainForbidden(t *testing.T) {
	t.Parallel()
	const administrator, wait = "Use the kubeconfig of an administrator", "Wait until the namespace has gone"
	for message, want := range map[string]string{
		`daemonsets.apps is forbidden: User "a" cannot create resource "daemonsets" in API group "apps" in the namespace "b"`: administrator,
		`daemonsets.apps "fairlead" is forbidden: exceeded quota: q, requested: count/daemonsets.apps=1`:                      "",
		`daemonsets.apps "fairlead" is forbidden: unable to create new content in namespace b because it is being terminated`: wait,
		`admission webhook "x" denied the request: no`:                                                                        "",
		`ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`:                                                   "",
		"unknown": administrator,
	} {
		status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message}
		if want == wait {
			status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}
		}
		got := (&Client{}).Explain("create a DaemonSet", &apierrors.StatusError{ErrStatus: status}).Error()
		for _, hint := range []string{administrator, wait} {
			if strings.Contains(got, hint) != (hint == want) || !strings.Contains(got, message) {
				t.Errorf("%s: %s", message, got)
			}
		}
	}
}

// TestRunsOn checks on which nodes an agent should run.
func TestRunsOn(t *testing.T) {
	t.Parallel()
	taint := func(key string, effect corev1.TaintEffect) []corev1.Taint {
		return []corev1.Taint{{Key: key, Value: "v", Effect: effect}}
	}
	for name, c := range map[string]struct {
		taints   []corev1.Taint
		tolerate []corev1.Toleration
		want     bool
	}{
		"no taint":              {nil, nil, true},
		"everything tolerated":  {taint("a", corev1.TaintEffectNoExecute), []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, true},
		"not tolerated":         {taint("a", corev1.TaintEffectNoSchedule), nil, false},
		"another one tolerated": {taint("a", corev1.TaintEffectNoSchedule), []corev1.Toleration{{Key: "b", Operator: corev1.TolerationOpExists}}, false},
		"only preferred":        {taint("a", corev1.TaintEffectPreferNoSchedule), nil, true},
		"not ready":             {taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute), nil, true},
		"out of service":        {taint(corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute), nil, false},
	} {
		s := observation{set: appsv1.DaemonSet{}}
		s.set.Spec.Template.Spec.Tolerations = c.tolerate
		if got := runsOn(&nodeState{node: &corev1.Node{Spec: corev1.NodeSpec{Taints: c.taints}}}, s); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
