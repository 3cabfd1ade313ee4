// Package dbus calls methods on the system bus that take strings and return nothing or a boolean, as firewalld's do. A
// complete D-Bus library links package net, which costs each start of a plugin more than these calls. Source: D-Bus
// Specification 0.42.
package dbus

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Conn is a connection to a bus.
type Conn struct {
	fd     int
	serial uint32
	buf    []byte
}

// Error is an error reply.
type Error struct{ Name, Message string }

func (e *Error) Error() string { return e.Name + ": " + e.Message }

const (
	defaultAddress = "unix:path=/var/run/dbus/system_bus_socket"
	timeout        = 25 * time.Second // of a call, as in the reference implementation of D-Bus
	maxMessage     = 1 << 20          // in bytes; the expected replies are much shorter
)

// System connects to the system bus. It returns os.ErrNotExist if there is none.
func System() (*Conn, error) {
	address := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS")
	if address == "" {
		address = defaultAddress
	}
	path, ok := unixPath(address)
	if !ok {
		return nil, fmt.Errorf("system bus %q: want a socket, unix:path=/...", address)
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("system bus: %w", err)
	}
	c := &Conn{fd: fd}
	tv := syscall.NsecToTimeval(int64(timeout))
	_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &tv)
	_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &tv)
	if err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err == nil {
		err = c.hello()
	}
	if err != nil {
		c.Close()
		if err == syscall.ECONNREFUSED {
			err = os.ErrNotExist
		}
		return nil, fmt.Errorf("system bus at %s: %w", path, err)
	}
	return c, nil
}

// unixPath returns the path of the first address in a list that has one.
func unixPath(addresses string) (string, bool) {
	for a := range strings.SplitSeq(addresses, ";") {
		if path, ok := strings.CutPrefix(a, "unix:path="); ok {
			path, _, _ = strings.Cut(path, ",")
			return path, true
		}
	}
	return "", false
}

// Close closes the connection.
func (c *Conn) Close() { _ = syscall.Close(c.fd) }

// hello authenticates this process and gets its name on the bus.
func (c *Conn) hello() error {
	uid := hex.EncodeToString([]byte(strconv.Itoa(os.Getuid())))
	if err := c.write([]byte("\x00AUTH EXTERNAL " + uid + "\r\n")); err != nil {
		return err
	}
	line, err := c.line()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "OK ") {
		return fmt.Errorf("refused: %s", line)
	}
	if err := c.write([]byte("BEGIN\r\n")); err != nil {
		return err
	}
	_, err = c.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello")
	return err
}

func (c *Conn) line() (string, error) {
	for {
		if i := strings.Index(string(c.buf), "\r\n"); i >= 0 {
			line := string(c.buf[:i])
			c.buf = c.buf[i+2:]
			return line, nil
		}
		if err := c.more(); err != nil {
			return "", err
		}
	}
}

// Call calls a method with string arguments.
func (c *Conn) Call(dest, path, iface, method string, args ...string) error {
	_, err := c.call(dest, path, iface, method, args...)
	return err
}

// CallBool calls a method that returns a boolean.
func (c *Conn) CallBool(dest, path, iface, method string, args ...string) (bool, error) {
	body, err := c.call(dest, path, iface, method, args...)
	if err == nil && len(body) < 4 {
		err = fmt.Errorf("%s.%s yields no boolean", iface, method)
	}
	return err == nil && binary.LittleEndian.Uint32(body) != 0, err
}

func (c *Conn) call(dest, path, iface, method string, args ...string) ([]byte, error) {
	c.serial++
	if err := c.write(message(c.serial, dest, path, iface, method, args)); err != nil {
		return nil, err
	}
	for {
		m, err := c.read()
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", iface, method, err)
		}
		if m.replyTo != c.serial {
			continue // a signal: the bus always sends NameAcquired
		}
		if m.kind == kindError {
			return nil, &Error{m.errorName, m.text()}
		}
		return m.body, nil
	}
}

func (c *Conn) write(p []byte) error {
	for len(p) > 0 {
		n, err := syscall.SendmsgN(c.fd, p, nil, nil, syscall.MSG_NOSIGNAL)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// more reads the available bytes.
func (c *Conn) more() error {
	p := make([]byte, 4096)
	for {
		n, err := syscall.Read(c.fd, p)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return fmt.Errorf("no answer within %v", timeout)
		case err != nil:
			return err
		case n == 0:
			return errors.New("the bus closed the connection")
		}
		c.buf = append(c.buf, p[:n]...)
		return nil
	}
}

// read reads one message.
func (c *Conn) read() (received, error) {
	for {
		m, size, err := parse(c.buf)
		if err != nil {
			return m, err
		}
		if size > 0 {
			m.body = append([]byte(nil), m.body...)
			c.buf = c.buf[size:]
			return m, nil
		}
		if err := c.more(); err != nil {
			return m, err
		}
	}
}
