package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc/credentials"
)

// schemes rejects endpoints that the client would not use as written. The client uses the first endpoint's scheme for
// all of them, and with "http" it ignores certificates: a password would be sent unencrypted.
func (o Options) schemes() error {
	first, _, _ := strings.Cut(o.Endpoints[0], "://")
	for _, e := range o.Endpoints {
		scheme, host, some := strings.Cut(e, "://")
		switch {
		case strings.Contains(e, "@"): // errors contain endpoints
			return errors.New("an etcd endpoint contains a user name or password: set username and passwordFile instead")
		case e == "" || some && (scheme != "http" && scheme != "https" || host == ""):
			return fmt.Errorf(`etcd endpoint %q: want "https://HOST:PORT", or "http://HOST:PORT" without encryption`, e)
		case !hasPort(e):
			return fmt.Errorf(`etcd endpoint %q has no port: want one like "https://HOST:2379"`, e)
		case some != strings.Contains(o.Endpoints[0], "://") || some && scheme != first:
			return fmt.Errorf("etcd endpoints %s and %s: want all of them with https, or all with http", o.Endpoints[0], e)
		case scheme == "http" && some && (o.CACert != "" || o.Cert != ""):
			return fmt.Errorf("etcd endpoint %s is unencrypted, but certificates are configured: use https or remove the certificates", e)
		}
	}
	return nil
}

// hasPort reports whether an endpoint names a port. The client has no default for it.
func hasPort(endpoint string) bool {
	_, host, some := strings.Cut(endpoint, "://")
	if !some {
		host = endpoint
	}
	host, _, _ = strings.Cut(host, "/")
	_, port, err := net.SplitHostPort(host)
	return err == nil && port != ""
}

// rereading reads all certificates again for each connection, so that renewed ones take effect.
type rereading struct {
	credentials.TransportCredentials
	e *etcd
}

// ClientHandshake implements credentials.TransportCredentials.
func (r *rereading) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, err := r.e.tls()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(c).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (r *rereading) Clone() credentials.TransportCredentials {
	return &rereading{r.TransportCredentials.Clone(), r.e}
}

// tls returns the TLS configuration, or nil for unencrypted connections.
func (e *etcd) tls() (*tls.Config, error) {
	if e.CACert == "" && e.Cert == "" && !strings.HasPrefix(e.Endpoints[0], "https://") {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CACert != "" {
		pem, err := os.ReadFile(e.CACert)
		if err != nil {
			return nil, fmt.Errorf("read the CA certificate for etcd: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA certificate for etcd: %s contains no certificate: want PEM", e.CACert)
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
