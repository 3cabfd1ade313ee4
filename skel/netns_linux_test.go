package skel_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// otherNetns creates a network namespace that lives as long as the test.
func otherNetns(t *testing.T) string {
	t.Helper()
	path, done := make(chan string), make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			path <- ""
			return
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			path <- ""
			return
		}
		defer f.Close()
		path <- filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd())))
		<-done
	}()
	p := <-path
	if p == "" {
		t.Fatal("this test needs root: it makes a network namespace")
	}
	t.Cleanup(func() { close(done) })
	return p
}

func TestNetns(t *testing.T) {
	t.Parallel()
	other, own := otherNetns(t), "/proc/thread-self/ns/net"
	for _, tt := range []struct {
		env  string
		code uint // 0: success
		want string
	}{
		{"CNI_COMMAND=ADD CNI_NETNS=" + other, 0, ""},
		{"CNI_COMMAND=ADD CNI_NETNS=/nonexistent", 4, "CNI_NETNS=/nonexistent: the network namespace is gone: no such file"},
		{"CNI_COMMAND=CHECK CNI_NETNS=/etc/passwd", 4, "not a network namespace"},
		{"CNI_COMMAND=ADD CNI_NETNS=" + own, 8, "network namespace of the plugin itself"},
		{"CNI_COMMAND=CHECK CNI_NETNS=" + own, 8, "network namespace of the plugin itself"},
		{"CNI_COMMAND=ADD CNI_NETNS_OVERRIDE=TRUE CNI_NETNS=" + own, 0, ""},
		{"CNI_COMMAND=ADD CNI_NETNS_OVERRIDE=1 CNI_NETNS=" + own, 0, ""},
		{"CNI_COMMAND=DEL CNI_NETNS=/nonexistent", 0, ""},
		{"CNI_COMMAND=DEL CNI_NETNS=", 0, ""},
		{"CNI_COMMAND=STATUS CNI_NETNS=/nonexistent", 0, ""},
	} {
		c := &calls{}
		p := c.plugin()
		p.AnyNetns = false
		code, stdout, _ := run(p, conf11, strings.Fields(tt.env)...)
		if tt.code == 0 && code != 0 {
			t.Errorf("%s: %s", tt.env, stdout)
		}
		if tt.code == 0 {
			continue
		}
		if e := decodeError(t, stdout); code != 1 || e.Code != tt.code || !strings.Contains(e.Msg, tt.want) {
			t.Errorf("%s: %d %+v", tt.env, code, e)
		}
	}
}

// On DEL, a path to the host's own namespace is stale.
func TestStaleNetnsOnDel(t *testing.T) {
	t.Parallel()
	c := &calls{}
	code, stdout, _ := run(c.plugin(), conf11, "CNI_COMMAND=DEL", "CNI_NETNS=/proc/thread-self/ns/net")
	if code != 0 || c.args.Netns != "" || len(c.seen) != 1 {
		t.Errorf("%d %s: netns %q", code, stdout, c.args.Netns)
	}
}
