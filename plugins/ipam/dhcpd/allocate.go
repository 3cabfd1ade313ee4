package dhcpd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	addr "github.com/fairlead/fairlead/plugins/ipam"
)

// Request is what an operation is about.
type Request struct {
	ContainerID, Netns, IfName, Args string
	Stdin                            []byte // the configuration
}

// Allocate gets an attachment its addresses. For one that has them it is the
// same again, or an error if the network took them back: so the reference's
// plugin does its CHECK.
func (d *Daemon) Allocate(ctx context.Context, r Request) (*cni.Result, error) {
	conf, err := addr.ParseDHCP(r.Stdin, r.Args)
	if err != nil {
		return nil, err
	}
	s := saved{
		Boot: d.store.boot, Network: conf.Network, ContainerID: r.ContainerID, IfName: r.IfName,
		Netns: r.Netns, NetnsID: attach.NetnsID(d.o.HostPrefix + r.Netns), Created: uptime(), Args: r.Args, Stdin: r.Stdin,
	}
	l, err := d.newLease(s)
	if err != nil {
		return nil, err
	}
	standing, err := d.claim(l)
	if err != nil || standing != nil {
		l.stop()
		return again(standing, err)
	}
	if err = d.acquire(ctx, l); err != nil {
		return nil, err
	}
	d.log("%s: got %s", l, strings.Join(given{IPs: l.result.IPs}.words(), ", "))
	return l.result.Clone(), nil
}

func again(standing *lease, err error) (*cni.Result, error) {
	if err != nil {
		return nil, err
	}
	if why := standing.missing(); why != "" {
		return nil, errors.New(why)
	}
	return standing.result.Clone(), nil
}

// acquire gets a lease, writes it down and begins its upkeep.
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
			_ = l.giveBack(at)
			at.close()
		}
		return err
	}
	l.keep()
	return nil
}

// claim makes a lease the one of its attachment, with its turn taken, unless
// another stands. One of an earlier namespace makes way.
func (d *Daemon) claim(l *lease) (standing *lease, err error) {
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
		case have.saved.NetnsID == l.saved.NetnsID:
			return have, nil
		}
		if err := d.end(have); err != nil {
			return nil, err
		}
	}
}

// drop takes a lease off the list, if it is still the one there.
func (d *Daemon) drop(l *lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.leases[l.saved.owner()] == l {
		delete(d.leases, l.saved.owner())
	}
}

// forget ends a lease whose interface is gone: nobody is there to release it.
// It is called by the upkeep itself.
func (l *lease) forget(why string) {
	if !l.finish() {
		return
	}
	l.d.log("%s: upkeep ends: %s", l, why)
	l.stop()
	l.d.drop(l)
	if err := l.d.store.remove(l.saved.owner()); err != nil {
		l.d.log("%s: %v", l, err)
	}
}

// end stops the upkeep of a lease, or the wait for it, and gives back what it holds.
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
		if err := l.giveBack(at); err != nil {
			d.log("%s: release: %v", l, err) // it ends by itself
		}
		at.close()
	}
	d.drop(l)
	if err := d.store.remove(l.saved.owner()); err != nil {
		return err
	}
	d.log("%s: released", l)
	return nil
}

// find is the lease of an attachment, or nil.
func (d *Daemon) find(r Request) (*lease, error) {
	network, err := networkOf(r.Stdin)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.leases[kernel.Owner{Network: network, ContainerID: r.ContainerID, IfName: r.IfName}], nil
}

// networkOf reads the one key that names a lease: the rest may have become
// anything since ADD.
func networkOf(stdin []byte) (string, error) {
	var c struct {
		Name string `json:"name"`
	}
	return c.Name, cni.Decode(stdin, &c)
}
