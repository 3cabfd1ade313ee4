package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"
)

// whyTime is how long is spent on finding out why there was no answer.
const whyTime = 500 * time.Millisecond

// why is what is wrong with the connection to an endpoint, in place of the client's
// "deadline exceeded"; nil if there is a connection and etcd is silent.
func (e *etcd) why() error {
	var errs []error
	for _, endpoint := range e.Endpoints {
		if err := e.knock(endpoint); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
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
	if err != nil || conf == nil {
		return err
	}
	conf.ServerName = u.Hostname()
	conf.NextProtos = []string{"h2"}
	secure := tls.Client(conn, conf)
	if err := secure.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("%s: %w", u.Host, err)
	}
	// A server that does not like our certificate says so after the handshake.
	_ = secure.SetReadDeadline(time.Now().Add(whyTime / 2))
	_, err = secure.Read(make([]byte, 1))
	if _, alert := errors.AsType[tls.AlertError](err); alert || isRemote(err) {
		return fmt.Errorf("%s: %w", u.Host, err)
	}
	return nil
}

func isRemote(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}
