package store

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
)

// tls is how the connection is secured; nil: not at all. Our own certificate is read
// from its file at each connection, so that a renewed one is taken.
func (e *etcd) tls() (*tls.Config, error) {
	if e.CACert == "" && e.Cert == "" && !strings.HasPrefix(e.Endpoints[0], "https://") {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CACert != "" {
		pem, err := os.ReadFile(e.CACert)
		if err != nil {
			return nil, fmt.Errorf("etcd's certificate authority: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("etcd's certificate authority: %s has no certificate: want PEM", e.CACert)
		}
	}
	if e.Cert != "" {
		if _, err := e.certificate(nil); err != nil {
			return nil, err
		}
		c.GetClientCertificate = e.certificate
	}
	return c, nil
}

func (e *etcd) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(e.Cert, e.Key)
	if err != nil {
		return nil, fmt.Errorf("the client certificate for etcd: %w", err)
	}
	return &cert, nil
}
