package etcdtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Files are the paths of a client's certificates in PEM format.
type Files struct {
	CA, Cert, Key         string
	serverCert, serverKey string
}

type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newFiles(t testing.TB, dir string, addrs []string) Files {
	t.Helper()
	a := &authority{t: t, dir: dir}
	f := Files{CA: a.make("ca", nil)[0]}
	server := a.make("server", append([]string{"127.0.0.1"}, addrs...))
	client := a.make("client", nil)
	f.Cert, f.Key, f.serverCert, f.serverKey = client[0], client[1], server[0], server[1]
	return f
}

// make writes a certificate and its key. The first is the CA's own.
func (a *authority) make(name string, addrs []string) []string {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, ip := range addrs {
		c.IPAddresses = append(c.IPAddresses, net.ParseIP(ip))
	}
	if a.cert == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
		a.cert, a.key = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	must(a.t, err)
	raw, err := x509.MarshalECPrivateKey(key)
	must(a.t, err)
	return []string{a.write(name+".pem", "CERTIFICATE", der), a.write(name+"-key.pem", "EC PRIVATE KEY", raw)}
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	must(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Authority writes a CA certificate that no cluster uses.
func Authority(t testing.TB) string {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	return a.make("other", nil)[0]
}
