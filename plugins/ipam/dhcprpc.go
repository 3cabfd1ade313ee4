package ipam

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/leangob"
	"github.com/fairlead/fairlead/internal/unixdial"
	"github.com/fairlead/fairlead/skel"
)

// The daemon is called by net/rpc over HTTP, as the reference plugin does: a CONNECT, then a request and its argument,
// a response and its value, in gob.
const (
	rpcConnect = "CONNECT /_goRPC_ HTTP/1.0\n\n"
	rpcService = "DHCP."
)

// errNoMethod is the answer of a daemon without a method, such as the reference daemon.
var errNoMethod = errors.New("the daemon has no such method") // a constant; nothing assigns it

// callDHCP calls a daemon's method with the arguments of this operation.
func callDHCP(ctx context.Context, socket, method string, args *skel.CmdArgs, more ...leangob.Field) (map[string]any, error) {
	conn, err := dialDHCP(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	netns := args.Netns
	if netns != "" {
		if netns, err = filepath.Abs(netns); err != nil {
			return nil, err
		}
	}
	r := bufio.NewReader(conn)
	if err := connectDHCP(conn, r); err != nil {
		return nil, fmt.Errorf("connect to the DHCP daemon at %s: %w", socket, err)
	}
	b := leangob.AppendStruct(nil, 65, "Request", []leangob.Field{{Name: "ServiceMethod", Value: rpcService + method}})
	b = leangob.AppendStruct(b, 66, "CmdArgs", append([]leangob.Field{
		{Name: "ContainerID", Value: args.ContainerID}, {Name: "Netns", Value: netns}, {Name: "IfName", Value: args.IfName},
		{Name: "Args", Value: args.Args}, {Name: "Path", Value: args.Path}, {Name: "StdinData", Value: args.StdinData},
	}, more...))
	if _, err := conn.Write(b); err != nil {
		return nil, fmt.Errorf("ask the DHCP daemon at %s: %w", socket, err)
	}
	return answerDHCP(r, socket)
}

// connectDHCP requests the connection and reads the whole response first, because a server discards data sent before
// that.
func connectDHCP(w io.Writer, r *bufio.Reader) error {
	if _, err := io.WriteString(w, rpcConnect); err != nil {
		return err
	}
	status, err := r.ReadString('\n')
	if err == nil && !strings.Contains(status, " 200 ") {
		return fmt.Errorf("it rejects the connection: %q", strings.TrimSpace(status))
	}
	for line := status; err == nil && strings.TrimSpace(line) != ""; {
		line, err = r.ReadString('\n')
	}
	return err
}

// answerDHCP reads the daemon's answer. An error keeps the daemon's text.
func answerDHCP(r *bufio.Reader, socket string) (map[string]any, error) {
	dec := leangob.NewDecoder(r)
	var body any
	head, err := dec.Decode()
	if err == nil {
		body, err = dec.Decode()
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("it closed the connection before it answered: %w", io.ErrUnexpectedEOF)
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer of the DHCP daemon at %s: %w", socket, err)
	}
	h, _ := head.(map[string]any)
	if text, _ := h["Error"].(string); strings.HasPrefix(text, "rpc: can't find method") {
		return nil, errNoMethod
	} else if text != "" {
		return nil, errors.New(text)
	}
	v, _ := body.(map[string]any)
	return v, nil
}

// unreachable is the error of a daemon that cannot be called at all.
type unreachable struct {
	socket string
	err    error
}

func (u *unreachable) Error() string {
	return fmt.Sprintf("no DHCP daemon answers at %s: %v: start it with \"systemctl start fairlead-dhcp.socket\" or \"dhcp daemon\"", u.socket, u.err)
}

func (u *unreachable) Unwrap() error { return u.err }

// dialDHCP connects to the daemon.
func dialDHCP(socket string) (*os.File, error) {
	conn, err := unixdial.Dial(socket)
	if a, ok := errors.AsType[*unixdial.AbsentError](err); ok {
		return nil, &unreachable{socket, a.Err}
	}
	if err != nil { // the daemon may run and hold the lease
		return nil, fmt.Errorf("connect to the DHCP daemon at %s: %w", socket, err)
	}
	return conn, nil
}
