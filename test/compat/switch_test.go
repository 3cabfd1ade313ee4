package compat

import "testing"

// switchNode moves a node from one implementation to the other and back while containers run. Addresses stay unique,
// containers stay reachable, and either implementation removes all objects.
func switchNode(t *testing.T, first side) {
	h := newSideHost(t, first)
	r := &recorder{host: h}
	h.write(`{"cniVersion": "1.0.0", "name": "net", "plugins": [` + bridgeWith(`"isDefaultGateway": true, `) + `]}`)
	second := side{ourRuntime: !first.ourRuntime, ourPlugins: !first.ourPlugins}
	for i, name := range []string{"a", "b", "c", "d"} {
		h.container(name)
		h.ip(name, "link set lo up")
		h.side = []side{first, second}[i%2]
		if !r.do(call{verb: "add", netns: name}) {
			t.Fatalf("%v: add %s failed", h.side, name)
		}
		h.serve(name, "tcp", ":80")
	}
	want := "net/10.1.0.2: ID-a\r\neth0\nnet/10.1.0.3: ID-b\r\neth0\nnet/10.1.0.4: ID-c\r\neth0\nnet/10.1.0.5: ID-d\r\neth0\nnet/last_reserved_ip.0: 10.1.0.5"
	held := func() string { return r.files("ipam", func(s string) string { return s }) }
	if got := held(); got != want {
		t.Errorf("addresses allocated:\n%s\nwant:\n%s", got, want)
	}
	for _, from := range []string{"host", "a", "b"} {
		for _, to := range []string{"10.1.0.4:80", "10.1.0.5:80"} {
			if answer := h.dial(from, "tcp", to); answer == noAnswer {
				t.Errorf("%s does not reach %s", from, to)
			}
		}
	}
	for i, name := range []string{"a", "b", "c", "d"} {
		h.side = []side{second, first}[i%2] // not the side of its ADD
		for _, verb := range []string{"check", "del", "del"} {
			if !r.do(call{verb: verb, netns: name}) && verb == "del" {
				t.Errorf("%v: %s of container %s, which the other side added, failed", h.side, verb, name)
			}
		}
		if left := h.snapshot(name); containsLink(left, "eth0") {
			t.Errorf("%v left eth0 in container %s, which the other side added", h.side, name)
		}
	}
	if got := held(); got != "net/last_reserved_ip.0: 10.1.0.5" {
		t.Errorf("addresses allocated at the end:\n%s", got)
	}
}

// returnedDevice checks that one implementation finds a host device that the other moved into a container, and returns
// it.
func returnedDevice(t *testing.T, first side, key string) {
	h := newSideHost(t, first)
	r := &recorder{host: h}
	device(h)
	h.container("a")
	h.write(`{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "host-device", ` + key + `}]}`)
	r.do(call{verb: "add", netns: "a"})
	if !containsLink(h.snapshot("a"), "eth0") {
		t.Fatal("the device is not in the container")
	}
	h.side = side{ourRuntime: !first.ourRuntime, ourPlugins: !first.ourPlugins}
	if !r.do(call{verb: "check", netns: "a"}) {
		t.Errorf("%v: CHECK failed", h.side)
	}
	if !r.do(call{verb: "del", netns: "a"}) || !containsLink(h.snapshot("host"), "dev0") {
		t.Errorf("%v did not return the device to the host:\n%s", h.side, h.snapshot("host"))
	}
}
