package store_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/agent/store"
	"github.com/fairlead/fairlead/internal/etcdtest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// copyFile replaces a file by the content of another one.
func copyFile(t *testing.T, to, from string) {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestEtcdNewAuthority checks that a store trusts the authority that its file has now, without a restart.
func TestEtcdNewAuthority(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{TLS: true})
	o := c.Options()
	right := o.CACert
	o.CACert, o.Timeout = filepath.Join(t.TempDir(), "ca.pem"), time.Second
	copyFile(t, o.CACert, etcdtest.Authority(t))
	s := c.StoreWith(t, o)
	if _, _, err := s.List(t.Context(), ""); err == nil {
		t.Fatal("another authority is trusted")
	}
	copyFile(t, o.CACert, right)
	kerneltest.Eventually(t, func() error { _, _, err := s.List(t.Context(), ""); return err })
}

// TestEtcdNewPassword checks that a store signs in with the password that its file has now, without a restart.
func TestEtcdNewPassword(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	c.EnableAuth()
	o := c.Options()
	o.Password, o.PasswordFile = "", filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(o.PasswordFile, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(etcdtest.Password)
	s := c.StoreWith(t, o)
	put := func(key string) error {
		_, err := s.Commit(t.Context(), store.Op{Key: key, Value: []byte("{}")})
		return err
	}
	if err := put("nodes/a"); err != nil {
		t.Fatal(err)
	}
	changePassword(t, c)
	if err := put("nodes/b"); err == nil {
		t.Error("the old password is accepted")
	}
	write("new")
	if err := put("nodes/b"); err != nil {
		t.Error(err)
	}
	if err := put("nodes/c"); err != nil {
		t.Error(err)
	}
}

// TestEtcdHoldWithoutClient checks that a store survives that etcd rejects the new password, too: the client of a held
// key is closed then, and there is no other one.
func TestEtcdHoldWithoutClient(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	c.EnableAuth()
	o := c.Options()
	o.Password, o.PasswordFile = "", filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(o.PasswordFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(etcdtest.Password)
	s := c.StoreWith(t, o)
	held, err := s.Hold(t.Context(), "alive/a", []byte("{}"), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	changePassword(t, c)
	write("wrong")
	if _, err := s.Commit(t.Context(), store.Op{Key: "nodes/a", Value: []byte("{}")}); err == nil {
		t.Error("a wrong password is accepted")
	}
	<-held.Lost
	held.Release() // waits until the lease was given up
	write("new")
	if _, err := s.Commit(t.Context(), store.Op{Key: "nodes/a", Value: []byte("{}")}); err != nil {
		t.Error(err)
	}
}

// changePassword gives the stores' user the password "new".
func changePassword(t *testing.T, c *etcdtest.Cluster) {
	t.Helper()
	root, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Username: "root", Password: etcdtest.Password, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := root.UserChangePassword(t.Context(), etcdtest.User, "new"); err != nil {
		t.Fatal(err)
	}
}
