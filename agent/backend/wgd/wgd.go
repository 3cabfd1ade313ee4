// Package wgd is a WireGuard device in user space, for kernels that have none. It
// is a process of its own, which the agent starts and which outlives the agent, so
// that an agent that is stopped or replaced loses no packet. It ends when its link
// is deleted.
package wgd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

// Command is the word by which the program that has this package starts it; the
// link's name and the socket's path follow.
const Command = "wireguard-device"

// minMTU is what IPv6 needs of any link (RFC 8200, section 5); the engine sets the right one.
const minMTU = 1280

// Run makes the link in the calling process's network namespace and carries its
// packets until it is deleted or the context ends. It is set and asked over a unix socket, in the text
// that wg(8) knows, by root alone.
func Run(ctx context.Context, link, socket string) error {
	t, err := tun.CreateTUN(link, minMTU)
	if err != nil {
		return fmt.Errorf("make link %s by /dev/net/tun: %w", link, err)
	}
	d := device.NewDevice(t, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, link+": "))
	defer d.Close()
	l, err := listen(socket)
	if err != nil {
		return err
	}
	defer os.Remove(socket)
	defer l.Close()
	go serve(l, d)
	select {
	case <-d.Wait():
	case <-ctx.Done():
	}
	return nil
}

// listen makes the socket in a directory that is root's; one of a process that is
// gone is replaced, one that answers is not.
func listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, err
	}
	if c, err := net.Dial("unix", socket); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("%s: another process serves it", socket)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// acceptPause is that after a connection that could not be taken.
const acceptPause = 50 * time.Millisecond

func serve(l net.Listener, d *device.Device) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return // at the end
		}
		if err != nil { // too many open files, say
			time.Sleep(acceptPause)
			continue
		}
		go d.IpcHandle(c)
	}
}
