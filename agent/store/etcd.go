package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// DefaultPrefix is the default prefix of all keys in etcd.
const DefaultPrefix = "/fairlead/"

// Options configure the connection to etcd.
type Options struct {
	Endpoints []string // "https://10.0.0.1:2379"; at least one
	Prefix    string   // of all keys; "": DefaultPrefix

	CACert, Cert, Key  string // PEM files; "": the system's CAs and no client certificate
	Username, Password string // an etcd user; "": none
	PasswordFile       string // has the password; a new one takes effect. "": see Password

	// Mounts map key prefixes to other etcd prefixes: "flannel/" may be "/coreos.com/network/". Mounted keys also
	// appear in lists of "".
	Mounts map[string]string

	DialTimeout time.Duration // timeout for a connection; 0: 2 s
	Timeout     time.Duration // timeout for a call, which then returns ErrUnavailable; 0: 5 s
}

const (
	dialTimeout = 2 * time.Second
	callTimeout = 5 * time.Second
	pageSize    = 500 // keys per page of a list
)

// etcd is a store in etcd. The client is created at the first call. If that fails, the next call tries again: creating
// it checks the password, for which etcd must answer.
type etcd struct {
	Options
	mu      sync.Mutex
	conn    *clientv3.Client
	secret  string // the password of conn
	closed  bool
	lineage lineage

	ctx   context.Context // cancelled by Close
	close context.CancelFunc
	held  sync.WaitGroup
}

// Etcd returns a store in etcd 3.4 or newer. It does not wait for etcd.
func Etcd(o Options) (Store, error) {
	if len(o.Endpoints) == 0 {
		return nil, errors.New(`etcd has no endpoints: want at least one, for example "https://10.0.0.1:2379"`)
	}
	if (o.Cert == "") != (o.Key == "") {
		return nil, errors.New("a client certificate for etcd needs its key: set both cert and key, or neither")
	}
	if err := o.schemes(); err != nil {
		return nil, err
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = dialTimeout
	}
	if o.Timeout == 0 {
		o.Timeout = callTimeout
	}
	e := &etcd{Options: o}
	if _, err := e.tls(); err != nil {
		return nil, err
	}
	e.ctx, e.close = context.WithCancel(context.Background())
	return e, nil
}

// client returns the client, and creates it if necessary.
func (e *etcd) client() (*clientv3.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("etcd at %s: %w", e.where(), os.ErrClosed)
	}
	if e.conn != nil {
		return e.conn, nil
	}
	tls, err := e.tls()
	if err != nil {
		return nil, err
	}
	secret, err := e.password()
	if err != nil {
		return nil, err
	}
	dial := []grpc.DialOption{grpc.WithConnectParams(e.reconnect())}
	if tls != nil {
		dial = append(dial, grpc.WithTransportCredentials(&rereading{credentials.NewTLS(tls), e}))
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: e.Endpoints, TLS: tls, Username: e.Username, Password: secret,
		DialTimeout: e.DialTimeout, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		Logger: zap.NewNop(), Context: e.ctx, DialOptions: dial,
	})
	if err != nil {
		return nil, e.failed(e.ctx, err)
	}
	e.conn, e.secret = c, secret
	return c, nil
}

// password returns the etcd user's password.
func (e *etcd) password() (string, error) {
	if e.PasswordFile == "" {
		return e.Password, nil
	}
	raw, err := os.ReadFile(e.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("read the password for etcd: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// signIn drops a client whose password etcd rejected if there is another one by now, and reports whether it did. The next
// call creates a client.
func (e *etcd) signIn(c *clientv3.Client, failed error) bool {
	if e.PasswordFile == "" || !errors.Is(failed, rpctypes.ErrAuthFailed) {
		return false
	}
	now, err := e.password()
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil || e.conn != c || now == e.secret {
		return false
	}
	e.conn = nil
	_ = c.Close()
	return true
}

// reconnect returns the pauses between attempts to connect. gRPC's own grow to two minutes, for which an agent would stay
// away from an etcd that is back.
func (e *etcd) reconnect() grpc.ConnectParams {
	return grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: firstPause, Multiplier: 2, Jitter: 0.2, MaxDelay: longestPause}, MinConnectTimeout: e.DialTimeout}
}

func (e *etcd) where() string { return strings.Join(e.Endpoints, ", ") }

// call runs a call with a timeout.
func (e *etcd) call(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	err = do(limited, c)
	if err != nil && e.signIn(c, err) {
		if c, err = e.client(); err != nil {
			return err
		}
		err = do(limited, c)
	}
	if err != nil {
		return e.failed(ctx, err)
	}
	return nil
}

// failed wraps a client error. A missing answer is ErrUnavailable; a rejection is not.
func (e *etcd) failed(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrConflict) || errors.Is(err, ErrCompacted) || errors.Is(err, os.ErrNotExist):
		return err
	case errors.Is(err, rpctypes.ErrCompacted):
		return ErrCompacted
	case ctx.Err() != nil && e.ctx.Err() == nil:
		if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
			return fmt.Errorf("etcd at %s: %w", e.where(), cause)
		}
		return fmt.Errorf("etcd at %s: %w", e.where(), lateError{})
	case e.ctx.Err() != nil:
		return fmt.Errorf("etcd at %s: %w", e.where(), os.ErrClosed)
	case refusal(err):
		return fmt.Errorf("etcd at %s rejected the request: %w", e.where(), err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		if why := e.why(); why != nil {
			err = why
		}
	}
	return fmt.Errorf("etcd at %s: %w: %w", e.where(), err, ErrUnavailable)
}

// lateError is context.DeadlineExceeded with words for users.
type lateError struct{}

func (lateError) Error() string { return "no answer in time" }

func (lateError) Unwrap() error { return context.DeadlineExceeded }

// refusal reports whether etcd answered with a rejection.
func refusal(err error) bool {
	code := status.Code(err)
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		code = e.Code()
	}
	switch code {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.NotFound:
		return true
	case codes.ResourceExhausted: // "no space" is an answer; "too many requests" is temporary
		return strings.Contains(err.Error(), "no space") || strings.Contains(err.Error(), "larger than max")
	}
	return false
}

// Close releases all held keys and closes the connection.
func (e *etcd) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	c := e.conn
	e.mu.Unlock()
	e.close()
	e.held.Wait()
	if c == nil {
		return nil
	}
	if err := c.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close the connection to etcd at %s: %w", e.where(), err)
	}
	return nil
}
