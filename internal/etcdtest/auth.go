package etcdtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent/store"
)

// These are the credentials of the user that EnableAuth creates.
const (
	User     = "fairlead"
	Password = "a ship's line"
)

// EnableAuth turns on authentication. User has full access below the default prefix and none elsewhere.
func (c *Cluster) EnableAuth() {
	c.t.Helper()
	e := c.Client()
	ctx, cancel := context.WithTimeout(context.Background(), started)
	defer cancel()
	_, err := e.RoleAdd(ctx, "fairlead")
	must(c.t, err)
	_, err = e.RoleGrantPermission(ctx, "fairlead", store.DefaultPrefix, clientv3.GetPrefixRangeEnd(store.DefaultPrefix), clientv3.PermissionType(clientv3.PermReadWrite))
	must(c.t, err)
	for user, role := range map[string]string{"root": "root", User: "fairlead"} {
		_, err = e.UserAdd(ctx, user, Password)
		must(c.t, err)
		_, err = e.UserGrantRole(ctx, user, role)
		must(c.t, err)
	}
	_, err = e.AuthEnable(ctx)
	must(c.t, err)
	c.auth = true
}

// Compact removes all revisions before the current one, and returns the current one.
func (c *Cluster) Compact() int64 {
	c.t.Helper()
	e := c.Client()
	ctx, cancel := context.WithTimeout(context.Background(), started)
	defer cancel()
	r, err := e.Get(ctx, store.DefaultPrefix)
	must(c.t, err)
	_, err = e.Compact(ctx, r.Header.Revision, clientv3.WithCompactPhysical())
	must(c.t, err)
	return r.Header.Revision
}

// Client returns etcd's own client, for operations that a Store does not have. It is closed with the test.
func (c *Cluster) Client() *clientv3.Client {
	c.t.Helper()
	conf := clientv3.Config{Endpoints: c.Endpoints(), DialTimeout: 5 * time.Second, Logger: zap.NewNop()}
	if c.Files.CA != "" {
		pair, err := tls.LoadX509KeyPair(c.Files.Cert, c.Files.Key)
		must(c.t, err)
		pem, err := os.ReadFile(c.Files.CA)
		must(c.t, err)
		conf.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: x509.NewCertPool()}
		conf.TLS.RootCAs.AppendCertsFromPEM(pem)
	}
	e, err := clientv3.New(conf)
	must(c.t, err)
	c.t.Cleanup(func() { e.Close() })
	return e
}
