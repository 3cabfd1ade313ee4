package podnetworks

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/agent/podstate"
	"github.com/fairlead/fairlead/cni"
)

// field appends a field with a text or a message.
func field[T ~string | ~[]byte](message []byte, number protowire.Number, value T) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), []byte(value))
}

// device returns a ContainerDevices, with the topology that the kubelet adds.
func device(resource string, ids ...string) (message []byte) {
	message = field(message, 1, resource)
	for _, id := range ids {
		message = field(message, 2, id)
	}
	return field(message, 3, field(nil, 1, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)))
}

// container returns a ContainerResources, with the IDs of two CPUs.
func container(name string, devices ...[]byte) (message []byte) {
	message = field(message, 1, name)
	for _, d := range devices {
		message = field(message, 2, d)
	}
	return field(message, 3, []byte{0, 1})
}

// podResources returns a PodResources.
func podResources(namespace, name string, containers ...[]byte) (message []byte) {
	message = field(field(message, 1, name), 2, namespace)
	for _, c := range containers {
		message = field(message, 3, c)
	}
	return message
}

// answer returns a ListPodResourcesResponse.
func answer(pods ...[]byte) (message []byte) {
	for _, p := range pods {
		message = field(message, 1, p)
	}
	return message
}

// serveKubelet answers List as a kubelet does.
func serveKubelet(t *testing.T, response []byte) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "kl") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "kubelet.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var request []byte
		if method, _ := grpc.MethodFromServerStream(stream); method != listMethod {
			return errors.New("there is no method " + method)
		}
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		return stream.SendMsg(response)
	}))
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return socket
}

// TestDevices checks that a plugin gets the devices of its pod and resource in the kubelet's order.
func TestDevices(t *testing.T) {
	t.Parallel()
	socket := serveKubelet(t, answer(
		podResources("shop", "other", container("c", device("example.com/nic", "0000:01:00.9"))),
		podResources("shop", "web",
			container("a", device("example.com/gpu", "gpu0"), device("example.com/nic", "0000:01:00.1")),
			container("b", device("example.com/nic", "0000:01:00.2", "0000:01:00.3"))),
		podResources("data", "web", container("a", device("example.com/nic", "0000:01:00.8"))),
	))
	m := NewManager(Options{Kubelet: socket, Log: slog.New(slog.DiscardHandler)})
	ask := func(namespace, name, resource string) ([]string, error) {
		raw, err := json.Marshal(podstate.DevicesArgs{Namespace: namespace, Name: name, Resource: resource})
		if err != nil {
			t.Fatal(err)
		}
		result, err := m.devices(t.Context(), raw)
		if err != nil {
			return nil, err
		}
		return result.(podstate.DevicesResult).IDs, nil
	}
	for _, c := range []struct {
		namespace, name, resource string
		want                      []string
	}{
		{"shop", "web", "example.com/nic", []string{"0000:01:00.1", "0000:01:00.2", "0000:01:00.3"}},
		{"shop", "web", "example.com/gpu", []string{"gpu0"}},
		{"data", "web", "example.com/nic", []string{"0000:01:00.8"}},
		{"data", "web", "example.com/gpu", nil},
		{"data", "none", "example.com/nic", nil},
	} {
		got, err := ask(c.namespace, c.name, c.resource)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s/%s %s: %v, %v, want %v", c.namespace, c.name, c.resource, got, err, c.want)
		}
	}
	m.o.Kubelet = filepath.Join(t.TempDir(), "none.sock")
	if _, err := ask("shop", "web", "example.com/nic"); cni.AsError(err).Code != cni.CodeTryAgainLater {
		t.Errorf("without a kubelet: %v", err)
	}
}

// FuzzDevices checks that no answer causes a panic.
func FuzzDevices(f *testing.F) {
	f.Add(answer(podResources("shop", "web", container("a", device("example.com/nic", "1")))))
	f.Fuzz(func(t *testing.T, message []byte) {
		ids, err := devicesOf(message, podstate.DevicesArgs{Namespace: "shop", Name: "web", Resource: "example.com/nic"})
		if err != nil && ids != nil {
			t.Error("an error with a result")
		}
	})
}
