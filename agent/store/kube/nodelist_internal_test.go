package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// encodedNodes returns a list as the API server sends it.
func encodedNodes(t testing.TB, nodes ...corev1.Node) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	list := &corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "more"}, Items: nodes}
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(list, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func twoNodes() []corev1.Node {
	return []corev1.Node{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{nodeAnnotation: "{}"}},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.0.1.0/24", "fd00::/64"}},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "n2"},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.2"}}},
		},
	}
}

// TestReadNodes decodes lists that Kubernetes' own code encoded. A list that is cut anywhere is an error.
func TestReadNodes(t *testing.T) {
	t.Parallel()
	for _, want := range [][]corev1.Node{nil, twoNodes(), twoNodes()[:1]} {
		raw := encodedNodes(t, want...)
		var got []corev1.Node
		meta, err := readNodes(bytes.NewReader(raw), func(n *corev1.Node) { got = append(got, *n) })
		if err != nil || meta.ResourceVersion != "7" || meta.Continue != "more" || !reflect.DeepEqual(got, want) {
			t.Errorf("%d nodes: got %+v, %+v, %v", len(want), meta, got, err)
		}
	}
	raw := encodedNodes(t, twoNodes()...)
	end := bytes.LastIndex(raw, []byte("192.0.2.2")) // after it are empty fields and the end of the envelope
	for i := range end {
		if _, err := readNodes(bytes.NewReader(raw[:i]), func(*corev1.Node) {}); err == nil {
			t.Errorf("the first %d of %d bytes are a list", i, len(raw))
		}
	}
	if _, err := readNodes(bytes.NewReader(raw[:end]), func(*corev1.Node) {}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut list: %v", err)
	}
	for text, raw := range map[string][]byte{
		"invalid character '<' looking for beginning of value": []byte("<html>"),
		"unexpected EOF":                []byte(`{"kind": "NodeList"`),
		"EOF":                           nil,
		"field 1 is not a message":      []byte("k8s\x00\x08"),
		"field 1 has 68719476735 bytes": []byte("k8s\x00\x0a\xff\xff\xff\xff\xff\x01"),
	} {
		if _, err := readNodes(bytes.NewReader(raw), func(*corev1.Node) {}); fmt.Sprint(err) != text {
			t.Errorf("%q: %v, want %s", raw, err, text)
		}
	}
}

// TestReadNodesInJSON decodes a list of a proxy that does not answer in protobuf.
func TestReadNodesInJSON(t *testing.T) {
	t.Parallel()
	want := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: twoNodes()}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got []corev1.Node
	meta, err := readNodes(bytes.NewReader(raw), func(n *corev1.Node) { got = append(got, *n) })
	if err != nil || meta.ResourceVersion != "7" || !reflect.DeepEqual(got, want.Items) {
		t.Errorf("got %+v, %+v, %v", meta, got, err)
	}
}

func FuzzReadNodes(f *testing.F) {
	f.Add(encodedNodes(f))
	f.Add(encodedNodes(f, twoNodes()...))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		_, _ = readNodes(bytes.NewReader(raw), func(*corev1.Node) {})
	})
}
