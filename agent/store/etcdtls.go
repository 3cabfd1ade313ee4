package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// schemes refuses endpoints that would be spoken with otherwise than they say. The
// client goes by the first endpoint for all of them, and by "http" whatever
// certificates it is given: a password would go over the wire as it is.
func (o Options) schemes() error {
	first, _, _ := strings.Cut(o.Endpoints[0], "://")
	for _, e := range o.Endpoints {
		scheme, host, some := strings.Cut(e, "://")
		switch {
		case strings.Contains(e, "@"): // errors name endpoints
			return errors.New("an endpoint of etcd has a user's name or password in it: give them as username and passwordFile")
		case some && (scheme != "http" && scheme != "https" || host == ""):
			return fmt.Errorf(`etcd's endpoint %q: want "https://HOST:PORT", or "http://HOST:PORT" without encryption`, e)
		case some != strings.Contains(o.Endpoints[0], "://") || some && scheme != first:
			return fmt.Errorf("etcd's endpoints %s and %s: want all of them with https, or all with http", o.Endpoints[0], e)
		case scheme == "http" && some && (o.CACert != "" || o.Cert != ""):
			return fmt.Errorf("etcd's endpoint %s is without encryption, and there are certificates for it: want https, or no certificates", e)
		}
	}
	return nil
}

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
