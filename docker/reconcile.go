package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/ipam"
)

// dockerd forgets a network, an endpoint or an address if it is killed after it called the driver and before it wrote
// its own store. So the driver compares its objects with Docker's, and removes what Docker does not know.

// dockerNetwork is a network in Docker's API: GET /networks/ID.
type dockerNetwork struct {
	ID   string `json:"Id"`
	IPAM struct {
		Config []struct {
			Subnet             string
			AuxiliaryAddresses map[string]string
		}
	}
	Containers map[string]struct{ EndpointID, IPv4Address, IPv6Address string }
}

func (d *Driver) reconcileForever(ctx context.Context) {
	for d.o.Docker != "" {
		select {
		case <-ctx.Done():
			return
		case <-time.After(d.o.Interval):
		}
		if err := d.host.Do(func() error { return d.reconcile(ctx) }); err != nil {
			d.log("compare with Docker: %v", err)
		}
	}
}

// absence notes since when Docker has not known an object. It measures with the monotonic clock: the host's clock may jump
// while Docker creates the object.
type absence struct{ since, now map[string]time.Time }

func (a *absence) begin() { a.now = map[string]time.Time{} }
func (a *absence) end()   { a.since = a.now }

// forAtLeast notes that Docker does not know an object, and reports whether that has been so for a time.
func (a *absence) forAtLeast(t time.Duration, object string) bool {
	since, known := a.since[object]
	if !known {
		since = time.Now()
	}
	a.now[object] = since
	return time.Since(since) >= t
}

// reconcile removes what Docker has not known for Options.Grace. It changes nothing if Docker does not answer.
func (d *Driver) reconcile(ctx context.Context) error {
	networks, err := d.dockerNetworks(ctx)
	if err != nil {
		return nil // dockerd is not running: it will clean up itself, or ask again
	}
	d.absent.begin()
	defer d.absent.end()
	old := func(object string) bool { return d.absent.forAtLeast(d.o.Grace, object) }
	known := map[string]*dockerNetwork{}
	endpoints := map[string]bool{}
	for _, n := range networks {
		known[n.ID] = n
		for _, c := range n.Containers {
			endpoints[c.EndpointID] = true
		}
	}
	var errs []error
	for _, id := range d.endpoints.ids() {
		if _, err := d.endpoints.read(id); err == nil && !endpoints[id] && old("endpoint "+id) {
			d.log("removing endpoint %s, which Docker does not know", id)
			errs = append(errs, d.remove(ctx, id))
		}
	}
	for _, id := range d.networks.ids() {
		if _, err := d.networks.read(id); err == nil && known[id] == nil && old("network "+id) {
			d.log("removing network %s, which Docker does not know", id)
			_, err := d.deleteNetwork(ctx, &networkRequest{NetworkID: id})
			errs = append(errs, err)
		}
	}
	errs = append(errs, d.unreserve(ctx, func(r *reservation) bool { return old("reservation " + r.ID) }))
	return errors.Join(append(errs, d.reconcilePools(ctx, networks, old))...)
}

// reconcilePools frees pools and addresses that no network of Docker uses.
func (d *Driver) reconcilePools(ctx context.Context, networks []*dockerNetwork, old func(object string) bool) error {
	d.poolLock.Lock()
	defer d.poolLock.Unlock()
	subnets, used := map[netip.Prefix]bool{}, map[netip.Addr]bool{}
	for _, n := range networks {
		n.addresses(subnets, used)
	}
	var errs []error
	for _, id := range d.pools.ids() {
		p, err := d.pools.read(id)
		switch {
		case err != nil:
			errs = append(errs, err)
		case subnets[p.Subnet]:
			errs = append(errs, d.free(ctx, id, func(a ipam.Allocation) bool { return !used[a.Addr] && old("address "+id+" "+a.Addr.String()) }))
		case old("pool " + id):
			errs = append(errs, d.dropPool(id))
		}
	}
	return errors.Join(errs...)
}

// addresses notes the subnets of a network, and the addresses that it uses.
func (n *dockerNetwork) addresses(subnets map[netip.Prefix]bool, used map[netip.Addr]bool) {
	for _, c := range n.IPAM.Config {
		if p, err := netip.ParsePrefix(c.Subnet); err == nil {
			subnets[p] = true
		}
		for _, text := range c.AuxiliaryAddresses {
			if a, err := netip.ParseAddr(text); err == nil {
				used[a] = true
			}
		}
	}
	for _, c := range n.Containers {
		for _, text := range []string{c.IPv4Address, c.IPv6Address} {
			if p, err := netip.ParsePrefix(text); err == nil {
				used[p.Addr()] = true
			}
		}
	}
}

// dockerNetworks returns Docker's networks of all drivers, with their endpoints: this driver does not know the name
// that it has in Docker.
func (d *Driver) dockerNetworks(ctx context.Context) ([]*dockerNetwork, error) {
	var all []*dockerNetwork
	if err := d.ask(ctx, "/networks", &all); err != nil {
		return nil, err
	}
	for _, n := range all {
		if err := d.ask(ctx, "/networks/"+n.ID, n); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// apiTime bounds a question to Docker.
const apiTime = 30 * time.Second

func (d *Driver) ask(ctx context.Context, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", d.o.Docker)
		},
	}}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker"+path, nil)
	if err != nil {
		return err
	}
	res, err := client.Do(q)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("Docker answers %s to %s", res.Status, path)
	}
	return json.NewDecoder(res.Body).Decode(answer)
}
