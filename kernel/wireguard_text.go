package kernel

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// wireguardText is a device of a process, spoken with over a unix socket in lines
// of "key=value": the cross-platform interface of WireGuard.
type wireguardText struct{ socket string }

const (
	startPatience = 10 * time.Second
	textPatience  = 5 // seconds, for an answer
)

// start starts the process in a session of its own, so that it outlives this one,
// and waits until it answers.
func (w *WireGuard) start(e *Engine) error {
	argv := append(append([]string(nil), w.Program...), w.Name, w.Socket)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", null, null, null
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a WireGuard device in user space: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	e.noteCreated(w)
	for end := time.Now().Add(startPatience); ; time.Sleep(retryInterval) {
		_, err := wireguardText{w.Socket}.get()
		if err == nil {
			return nil
		}
		select {
		case state := <-ended:
			return fmt.Errorf("%s ended (%v): run it to see why; it needs /dev/net/tun", strings.Join(argv, " "), state)
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s does not answer at %s: %w", strings.Join(argv, " "), w.Socket, err)
		}
	}
}

func (t wireguardText) get() (*wireguardDevice, error) {
	answer, err := t.ask("get=1\n\n")
	if err != nil {
		return nil, err
	}
	return parseDevice(answer)
}

// parseDevice reads the answer to "get=1".
func parseDevice(answer string) (*wireguardDevice, error) {
	d := &wireguardDevice{peers: map[wireguardKey]*wireguardPeer{}}
	p := &wireguardPeer{} // what comes before the first peer
	for line := range strings.Lines(answer) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		var err error
		switch key {
		case "private_key":
			d.private, err = hexKey(value)
		case "listen_port":
			d.port, err = strconv.Atoi(value)
		case "public_key":
			var id wireguardKey
			id, err = hexKey(value)
			p = &wireguardPeer{}
			d.peers[id] = p
		default:
			err = p.line(key, value)
		}
		if err != nil {
			return nil, fmt.Errorf("answer of a WireGuard device: key %s: %w", key, err)
		}
	}
	return d, nil
}

func (p *wireguardPeer) line(key, value string) error {
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

// hexKey reads a key; its error does not show it.
func hexKey(s string) (key wireguardKey, err error) {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != len(key) {
		return key, errors.New("want 64 hexadecimal digits")
	}
	copy(key[:], raw)
	return key, nil
}

func (t wireguardText) set(c wireguardChanges) error {
	if c.none() {
		return nil
	}
	_, err := t.ask("set=1\n" + c.text() + "\n")
	return err
}

func (c wireguardChanges) text() string {
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

// ask sends a request and returns the answer without its last lines, "errno=0" and
// an empty one. It uses plain system calls: package net costs every plugin's start.
func (t wireguardText) ask(request string) (string, error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("ask the WireGuard device at %s: %w", t.socket, err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(fd)
	wait := &unix.Timeval{Sec: textPatience}
	err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, wait), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, wait))
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: t.socket})
	}
	for rest := []byte(request); err == nil && len(rest) > 0; {
		var n int
		if n, err = unix.Write(fd, rest); err == nil {
			rest = rest[n:]
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
		if err != nil || n == 0 {
			return fail(fmt.Errorf("its answer ends after %d bytes: %w", len(answer), errors.Join(err)))
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
		return fail(fmt.Errorf("it says %q", code))
	}
	return fail(unix.Errno(n))
}
