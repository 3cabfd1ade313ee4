package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
	addr "github.com/fairlead/fairlead/plugins/ipam"
)

// Request identifies the attachment of an operation and carries its configuration.
type Request struct {
	ContainerID, Netns, IfName, Args string
	Stdin                            []byte // network configuration
}

// Allocate gets a lease for an attachment. If it already has one, Allocate returns the same result, or an error if the
// network took the address back. The reference plugin does its CHECK with this call.
func (d *Daemon) Allocate(ctx context.Context, r Request) (*cni.Result, error) {
	conf, err := addr.ParseDHCP(r.Stdin, r.Args)
	if err != nil {
		return nil, err
	}
	id := netns.IDAt(d.o.HostPrefix + r.Netns)
	s := saved{
		Boot: d.store.boot, Network: conf.Network, ContainerID: r.ContainerID, IfName: r.IfName,
		Netns: r.Netns, NetnsID: id.File, NetnsCookie: id.StoredCookie(), Created: uptime(), Args: r.Args, Stdin: r.Stdin,
	}
	l, err := d.newLease(s)
	if err != nil {
		return nil, err
	}
	existing, err := d.claim(l)
	if err != nil || existing != nil {
		l.stop()
		return existingResult(existing, err)
	}
	if err = d.acquire(ctx, l); err != nil {
		return nil, err
	}
	d.log("%s: got %s", l, strings.Join(netConfig{IPs: l.result.IPs}.describe(), ", "))
	return l.result.Clone(), nil
}

func existingResult(existing *lease, err error) (*cni.Result, error) {
	if err != nil {
		return nil, err
	}
	if _, why := existing.missing(); why != "" {
		return nil, errors.New(why)
	}
	return existing.result.Clone(), nil
}

// acquire gets a lease, stores it and starts its maintenance.
func (d *Daemon) acquire(ctx context.Context, l *lease) (err error) {
	defer func() {
		if err != nil {
			l.finish()
			l.stop()
			d.drop(l)
		}
		<-l.turn
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(errors.New("the attachment is being removed")) })()
	leave, err := d.adds.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := l.acquire(ctx); err != nil {
		return err
	}
	if err := l.save(); err != nil {
		if at, e := l.open(); e == nil {
			_ = l.releaseAll(at)
			at.close()
		}
		return err
	}
	l.maintain()
	return nil
}

// claim registers a lease for its attachment and takes the lease's turn. If the attachment has a lease already, claim
// returns that one instead. A lease of an earlier namespace is replaced.
func (d *Daemon) claim(l *lease) (existing *lease, err error) {
	for {
		d.mu.Lock()
		have := d.leases[l.saved.owner()]
		if have == nil {
			l.turn <- struct{}{}
			d.leases[l.saved.owner()] = l
		}
		d.mu.Unlock()
		switch {
		case have == nil:
			return nil, nil
		case !have.isReady():
			return nil, fmt.Errorf("another ADD of %s is waiting for its address", l)
		case have.saved.namespace().Same(l.saved.namespace()):
			return have, nil
		}
		if err := d.end(have); err != nil {
			return nil, err
		}
	}
}

// drop removes a lease from the list, unless another one has replaced it.
func (d *Daemon) drop(l *lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leases[l.saved.owner()] == l {
		delete(d.leases, l.saved.owner())
	}
}

// forget ends a lease whose interface is gone, so it cannot be released. The lease's maintenance calls it.
func (l *lease) forget(why string) {
	if !l.finish() {
		return
	}
	l.d.log("%s: dropped the lease: %s", l, why)
	l.stop()
	if err := l.removeFile(); err != nil {
		l.d.log("%s: %v", l, err)
	}
	l.d.drop(l) // last: the next ADD stores its lease in the same file
}

// end stops the maintenance of a lease, or an ADD that waits for it, and releases it.
func (d *Daemon) end(l *lease) error {
	l.stop()
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.done.Wait()
	if !l.finish() {
		return nil
	}
	at, err := l.open()
	if err == nil {
		if err := l.releaseAll(at); err != nil {
			d.log("%s: release: %v", l, err) // the lease expires by itself
		}
		at.close()
	}
	err = l.removeFile()
	d.drop(l) // last: the next ADD stores its lease in the same file
	if err == nil {
		d.log("%s: released", l)
	}
	return err
}

// find returns the lease of an attachment, or nil.
func (d *Daemon) find(r Request) (*lease, error) {
	network, err := networkOf(r.Stdin)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leases[kernel.Owner{Network: network, ContainerID: r.ContainerID, IfName: r.IfName}], nil
}

// networkOf reads the network's name, which identifies the lease. The rest of the configuration may have changed since
// ADD.
func networkOf(stdin []byte) (string, error) {
	var c struct {
		Name string `json:"name"`
	}
	return c.Name, cni.Decode(stdin, &c)
}
