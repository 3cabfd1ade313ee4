package wireguard

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// SocketDevice is a device of a process, reached over a UNIX socket with lines of "key=value": WireGuard's
// cross-platform interface.
type SocketDevice struct{ Path string }

const (
	textPatience = 5 // seconds to wait for a reply
)

// Get reads the device.
func (t SocketDevice) Get() (*Device, error) {
	answer, err := t.ask("get=1\n\n")
	if err != nil {
		return nil, err
	}
	return parseDevice(answer)
}

// parseDevice decodes the reply to "get=1".
func parseDevice(answer string) (*Device, error) {
	d := &Device{Peers: map[Key]*Peer{}}
	p := &Peer{} // for lines before the first peer
	for line := range strings.Lines(answer) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		var err error
		switch key {
		case "private_key":
			d.PrivateKey, err = hexKey(value)
		case "listen_port":
			d.ListenPort, err = strconv.Atoi(value)
		case "public_key":
			var id Key
			id, err = hexKey(value)
			p = &Peer{}
			d.Peers[id] = p
		default:
			err = p.line(key, value)
		}
		if err != nil {
			return nil, fmt.Errorf("parse the reply of a WireGuard device: key %s: %w", key, err)
		}
	}
	return d, nil
}

func (p *Peer) line(key, value string) error {
	var err error
	var n int64
	switch key {
	case "endpoint":
		p.endpoint, err = netip.ParseAddrPort(value)
	case "persistent_keepalive_interval":
		p.keepalive, err = strconv.Atoi(value)
	case "last_handshake_time_sec":
		if n, err = strconv.ParseInt(value, 10, 64); n != 0 {
			p.handshake = time.Unix(n, int64(p.handshake.Nanosecond()))
		}
	case "last_handshake_time_nsec":
		if n, err = strconv.ParseInt(value, 10, 64); !p.handshake.IsZero() {
			p.handshake = p.handshake.Add(time.Duration(n))
		}
	case "allowed_ip":
		var a netip.Prefix
		a, err = netip.ParsePrefix(value)
		p.allowed = append(p.allowed, a)
	}
	return err
}

// hexKey decodes a key. Its error does not contain the input.
func hexKey(s string) (key Key, err error) {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != len(key) {
		return key, errors.New("want 64 hexadecimal digits")
	}
	copy(key[:], raw)
	return key, nil
}

// Set applies changes to the device.
func (t SocketDevice) Set(c Changes) error {
	if c.Empty() {
		return nil
	}
	_, err := t.ask("set=1\n" + c.text() + "\n")
	return err
}

func (c Changes) text() string {
	var b strings.Builder
	if c.private != nil {
		fmt.Fprintf(&b, "private_key=%x\n", c.private[:])
	}
	if c.port != 0 {
		fmt.Fprintf(&b, "listen_port=%d\n", c.port)
	}
	for _, p := range c.peers {
		fmt.Fprintf(&b, "public_key=%x\n", p.key[:])
		if !p.add {
			b.WriteString("update_only=true\n")
		}
		if p.remove {
			b.WriteString("remove=true\n")
		}
		if p.endpoint.IsValid() {
			fmt.Fprintf(&b, "endpoint=%s\n", p.endpoint)
		}
		if p.keepalive >= 0 {
			fmt.Fprintf(&b, "persistent_keepalive_interval=%d\n", p.keepalive)
		}
		if p.replace {
			b.WriteString("replace_allowed_ips=true\n")
		}
		for _, a := range p.allowed {
			fmt.Fprintf(&b, "allowed_ip=%s\n", a)
		}
	}
	return b.String()
}

// ask sends a request and returns the reply without its last lines, "errno=0" and an empty one. It uses plain system
// calls because package net would slow down the start of every plugin.
func (t SocketDevice) ask(request string) (string, error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("ask the WireGuard device at %s: %w", t.Path, err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(fd)
	wait := &unix.Timeval{Sec: textPatience}
	err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, wait), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, wait))
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: t.Path})
	}
	for rest := []byte(request); err == nil && len(rest) > 0; {
		var n int
		switch n, err = unix.Write(fd, rest); err {
		case nil:
			rest = rest[n:]
		case unix.EINTR: // the kernel does not restart a call with a timeout
			err = nil
		}
	}
	if err != nil {
		return fail(err)
	}
	var answer []byte
	for chunk := make([]byte, 32<<10); !strings.HasSuffix(string(answer[max(0, len(answer)-2):]), "\n\n"); {
		n, err := unix.Read(fd, chunk)
		if err == unix.EINTR {
			continue
		}
		if err == nil && n == 0 { // the process has ended
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fail(fmt.Errorf("the reply ends after %d bytes: %w", len(answer), err))
		}
		answer = append(answer, chunk[:n]...)
	}
	text := strings.TrimSuffix(string(answer), "\n")
	if body, ok := strings.CutSuffix(text, "errno=0\n"); ok {
		return body, nil
	}
	_, code, _ := strings.Cut(text, "errno=")
	n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(code), "-"))
	if err != nil {
		return fail(fmt.Errorf("the reply is %q", code))
	}
	return fail(unix.Errno(n))
}
