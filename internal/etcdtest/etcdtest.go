// Package etcdtest gives tests a real etcd, with one or more members: Debian's etcd-server, or the current version. Tests
// can kill, pause and restart them. Everything ends with the test.
package etcdtest

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// Options configure a cluster. The zero value is one member on loopback without TLS.
type Options struct {
	Members int // 0: 1

	// Netns are the paths of the members' namespaces, and Addrs their addresses there. If they are nil, the members run
	// in this process's namespace on free loopback ports.
	Netns, Addrs []string

	TLS bool // with member and client certificates

	Flags []string // additional flags of every member

	Program string // "": Debian's
}

// Cluster is a running etcd.
type Cluster struct {
	Members []*Member
	Files   Files // client certificates; "" without TLS
	t       testing.TB
	dir     string
	scheme  string
	auth    bool
}

// Start starts a cluster and waits until it serves requests.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := &Cluster{t: t, dir: t.TempDir(), scheme: "http"}
	if o.TLS {
		c.scheme = "https"
		c.Files = newFiles(t, c.dir, o.Addrs)
	}
	program := cmp.Or(o.Program, "etcd")
	if o.Program == "" && os.Getenv(currentVariable) != "" {
		program = Current(t)
	}
	for i := range max(o.Members, 1) {
		m := &Member{Name: fmt.Sprintf("m%d", i), c: c, program: program, flags: o.Flags, dir: filepath.Join(c.dir, fmt.Sprintf("m%d", i))}
		m.address(o, i)
		c.Members = append(c.Members, m)
	}
	for _, m := range c.Members {
		m.start()
	}
	for _, m := range c.Members {
		m.Wait()
	}
	return c
}

func (m *Member) address(o Options, i int) {
	if o.Netns != nil {
		m.netns = o.Netns[i]
	}
	if o.Addrs == nil {
		m.client, m.peer = freePort(m.c.t), freePort(m.c.t)
		return
	}
	m.client, m.peer = net.JoinHostPort(o.Addrs[i], "2379"), net.JoinHostPort(o.Addrs[i], "2380")
}

func freePort(t testing.TB) string { return kerneltest.FreePort(t, "127.0.0.1").String() }

// Endpoints returns the members' client addresses.
func (c *Cluster) Endpoints() (list []string) {
	for _, m := range c.Members {
		list = append(list, m.Endpoint())
	}
	return list
}

// Options returns the options for a client.
func (c *Cluster) Options() store.Options {
	o := store.Options{Endpoints: c.Endpoints(), CACert: c.Files.CA, Cert: c.Files.Cert, Key: c.Files.Key}
	if c.auth {
		o.Username, o.Password = User, Password
	}
	return o
}

// Store returns a client's store in the cluster. It is closed with the test.
func (c *Cluster) Store(t testing.TB) store.Store {
	t.Helper()
	return c.StoreWith(t, c.Options())
}

// StoreWith is like Store, with other options.
func (c *Cluster) StoreWith(t testing.TB, o store.Options) store.Store {
	t.Helper()
	s, err := store.Etcd(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// initial returns the members in the format of etcd's flag.
func (c *Cluster) initial() string {
	var words []string
	for _, m := range c.Members {
		words = append(words, m.Name+"="+m.peerURL())
	}
	return strings.Join(words, ",")
}
