package kerneltest

import (
	"net"
	"testing"
)

// TestCanListen checks that a port with a listener is not free, and that the check itself leaves the port free.
func TestCanListen(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "::1"} {
		free := FreePort(t, host)
		if err := canListen(free); err != nil {
			t.Fatalf("%s: %v", free, err)
		}
		l, err := net.Listen("tcp", free.String())
		if err != nil {
			t.Fatal(err)
		}
		if canListen(free) == nil {
			t.Errorf("%s is free, and something listens there", free)
		}
		l.Close()
	}
}
