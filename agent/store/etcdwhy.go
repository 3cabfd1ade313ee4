package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// whyTime limits the diagnosis of a missing answer.
const whyTime = 500 * time.Millisecond

// why returns what is wrong with the connection to an endpoint, instead of the client's "deadline exceeded". It returns
// nil if the connection works and etcd is silent.
func (e *etcd) why() error {
	var words []string
	for _, endpoint := range e.Endpoints {
		if err := e.knock(endpoint); err != nil {
			words = append(words, err.Error())
		}
	}
	if len(words) == 0 {
		return nil
	}
	return errors.New(strings.Join(words, "; "))
}

func (e *etcd) knock(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		u = &url.URL{Host: endpoint}
	}
	ctx, cancel := context.WithTimeout(context.Background(), whyTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	conf, err := e.tls()
	if err != nil {
		return err
	}
	if conf == nil || u.Scheme == "http" {
		return speaksTLS(ctx, conn, u.Host)
	}
	conf.ServerName = u.Hostname()
	conf.NextProtos = []string{"h2"}
	secure := tls.Client(conn, conf)
	err = secure.HandshakeContext(ctx)
	if err == nil {
		// A server that rejects our certificate reports it after the handshake.
		_ = secure.SetReadDeadline(time.Now().Add(whyTime / 2))
		if _, err = secure.Read(make([]byte, 1)); !refused(err) {
			return nil
		}
	}
	return fmt.Errorf("%s: %w%s", u.Host, err, e.tlsHint(err))
}

// speaksTLS returns an error if a server without https in its endpoint answers a TLS handshake.
func speaksTLS(ctx context.Context, conn net.Conn, host string) error {
	err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) // nothing secret is sent
	if err != nil && !refused(err) {
		return nil
	}
	return fmt.Errorf("%s uses TLS: set the endpoint to https://%s", host, host)
}

// tlsHint returns advice for a TLS error.
func (e *etcd) tlsHint(err error) string {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case unknown && e.CACert == "":
		return ": set caCert to the certificate of its CA"
	case unknown:
		return ": the CA is not in " + e.CACert + " (caCert)"
	case refused(err) && e.Cert == "":
		return ": it requires a client certificate: set cert and key"
	case refused(err):
		return ": it rejects the client certificate " + e.Cert + " (cert)"
	case noTLS || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET):
		return ": if it does not use TLS, its endpoint must begin with http://"
	}
	return ""
}

// refused reports whether the server aborted the handshake with a TLS alert.
func refused(err error) bool {
	_, alert := errors.AsType[tls.AlertError](err)
	op, ok := errors.AsType[*net.OpError](err)
	return alert || ok && op.Op == "remote error"
}
