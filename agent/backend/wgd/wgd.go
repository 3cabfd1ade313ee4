// Package wgd runs a WireGuard device in user space, for kernels without WireGuard. The agent starts it as a separate
// process, which survives the agent. So stopping or replacing the agent loses no packet. The process ends when its link
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

// Command is the subcommand that runs the device. Its arguments are the link's name and the socket's path.
const Command = "wireguard-device"

// minMTU is the minimum MTU for IPv6 (RFC 8200, section 5). The engine sets the right MTU later.
const minMTU = 1280

// Run creates the link in the calling process's network namespace and carries its packets until the link is deleted or
// the context ends. Root can configure and query it over a unix socket, in the text protocol of wg(8).
func Run(ctx context.Context, link, socket string) error {
	t, err := tun.CreateTUN(link, minMTU)
	if err != nil {
		return fmt.Errorf("create link %s with /dev/net/tun: %w", link, err)
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

// listen creates the socket in a directory that only root can write. It replaces the socket of a process that is gone,
// and fails if another process answers on it.
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

// acceptPause is the delay after a failed accept.
const acceptPause = 50 * time.Millisecond

func serve(l net.Listener, d *device.Device) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return // the listener was closed
		}
		if err != nil { // for example, too many open files
			time.Sleep(acceptPause)
			continue
		}
		go d.IpcHandle(c)
	}
}
