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
	"time"
)

// whyTime is how long is spent on finding out why there was no answer.
const whyTime = 500 * time.Millisecond

// why is what is wrong with the connection to an endpoint, in place of the client's
// "deadline exceeded"; nil if there is a connection and etcd is silent.
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
		// A server that does not like our certificate says so after the handshake.
		_ = secure.SetReadDeadline(time.Now().Add(whyTime / 2))
		if _, err = secure.Read(make([]byte, 1)); !refused(err) {
			return nil
		}
	}
	return fmt.Errorf("%s: %w%s", u.Host, err, e.mend(err))
}

// speaksTLS refuses a server that answers to TLS, and was spoken to without.
func speaksTLS(ctx context.Context, conn net.Conn, host string) error {
	err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) // nothing is said to it
	if err != nil && !refused(err) {
		return nil
	}
	return fmt.Errorf("%s speaks TLS: want https://%s among the endpoints", host, host)
}

// mend is what to look at when TLS failed.
func (e *etcd) mend(err error) string {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case unknown && e.CACert == "":
		return ": want the certificate of that authority in caCert"
	case unknown:
		return ": it is not that of " + e.CACert + " (caCert)"
	case refused(err) && e.Cert == "":
		return ": it wants a certificate of ours, in cert and key"
	case refused(err):
		return ": it does not want that of " + e.Cert + " (cert)"
	case noTLS || errors.Is(err, io.EOF):
		return ": does it speak TLS? If not, its endpoint begins with http://"
	}
	return ""
}

// refused tells whether the server ended a handshake, with what TLS has for that.
func refused(err error) bool {
	_, alert := errors.AsType[tls.AlertError](err)
	op, ok := errors.AsType[*net.OpError](err)
	return alert || ok && op.Op == "remote error"
}
