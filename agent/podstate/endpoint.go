package podstate

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/kernel"
)

// Endpoint is an attachment to which network policy applies. The plugin fairlead-policy writes its file before it asks
// the agent to enforce policy, and removes the file on DEL. So an agent that restarts knows the attachment, and DEL needs
// no agent.
type Endpoint struct {
	Version     int    `json:"version"`
	Network     string `json:"network"` // CNI name of the network
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
	// Namespace, Name and UID are the pod's; "": the container is not a pod.
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name,omitempty"`
	UID       string            `json:"uid,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"` // that policies select; those of a Kubernetes pod are in the API
	Addresses []netip.Addr      `json:"addresses"`
	// Bridged are the addresses on a bridge, with their prefix lengths.
	Bridged []netip.Prefix `json:"bridged,omitempty"`
	// Direct is the plugin of a link to which policy does not apply: the host does not forward its packets (macvlan), or ADD
	// gave it no address (a plugin without addresses). "": policy applies.
	Direct string `json:"direct,omitempty"`
	// Isolated is the isolated network of the cluster that the addresses are in; "": the host's namespace.
	Isolated string `json:"isolatedNetwork,omitempty"`
	// Boot and Uptime are when the ADD began: the ID of the boot, and the kernel's time since then.
	Boot   string        `json:"boot"`
	Uptime time.Duration `json:"uptime"`
}

// OpPolicy is the operation of the agent's socket with which a plugin says that an endpoint's file was written or
// removed. The argument is a Key. After ADD, the answer arrives when policy is in force for the endpoint.
const OpPolicy = "policy"

func (d Dir) endpoints() string { return filepath.Join(d.root, "endpoints") }

func (d Dir) endpoint(k Key) string {
	return filepath.Join(d.endpoints(), k.ContainerID+separator+k.IfName+ending)
}

// Endpoint returns an endpoint, or fs.ErrNotExist, also if a power failure damaged the file of an earlier boot.
func (d Dir) Endpoint(k Key) (*Endpoint, error) {
	if strings.Contains(k.ContainerID+k.IfName, "/") {
		return nil, fmt.Errorf("container %q, interface %q: %w", k.ContainerID, k.IfName, fs.ErrNotExist)
	}
	e := &Endpoint{}
	err := read(d.endpoint(k), e)
	if err != nil && d.isOfEarlierBoot(k) {
		err = fs.ErrNotExist
	}
	if err == nil && (e.ContainerID != k.ContainerID || e.IfName != k.IfName) {
		err = fmt.Errorf("read %s: it describes another container, %s", d.endpoint(k), e.ContainerID)
	}
	return e, err
}

// isOfEarlierBoot reports whether an endpoint's file was written before this boot.
func (d Dir) isOfEarlierBoot(k Key) bool {
	info, err := os.Stat(d.endpoint(k))
	return err == nil && info.ModTime().Before(time.Now().Add(-kernel.Uptime()))
}

// WriteEndpoint writes an endpoint. It does not wait for the disk: an endpoint ends with the boot.
func (d Dir) WriteEndpoint(e *Endpoint) error {
	e.Version = version
	if err := writeBy(local.ReplaceWithoutSync, d.endpoint(e.Key()), e); err != nil {
		return fmt.Errorf("record the addresses of container %s: %w", e.ContainerID, err)
	}
	return nil
}

// RemoveEndpoint removes an endpoint, if there is one.
func (d Dir) RemoveEndpoint(k Key) error {
	if err := remove(d.endpoint(k)); err != nil {
		return fmt.Errorf("remove the addresses of container %s: %w", k.ContainerID, err)
	}
	return nil
}

// RemoveEndpointOfEarlierBoot removes an endpoint's file if it was written before this boot.
func (d Dir) RemoveEndpointOfEarlierBoot(k Key) error {
	if !d.isOfEarlierBoot(k) {
		return nil
	}
	return d.RemoveEndpoint(k)
}

// UnfinishedEndpoints returns the keys of endpoints whose files a process was writing when it died, at the latest at a
// time.
func (d Dir) UnfinishedEndpoints(latest time.Time) (out []Key) {
	entries, _ := os.ReadDir(d.endpoints()) // without the directory, there are none
	for _, e := range entries {
		name, is := strings.CutPrefix(e.Name(), local.Unfinished)
		end := strings.LastIndex(name, ending+"-")
		info, err := e.Info()
		if !is || end < 0 || err != nil || info.ModTime().After(latest) {
			continue
		}
		if id, ifName, ok := strings.Cut(name[:end], separator); ok {
			out = append(out, Key{id, ifName})
		}
	}
	return out
}

// Endpoints returns the keys of all endpoints.
func (d Dir) Endpoints() ([]Key, error) {
	out, err := keys(d.endpoints())
	if err != nil {
		return nil, fmt.Errorf("list the endpoints of network policy: %w", err)
	}
	return out, nil
}

// Key returns the endpoint's key.
func (e *Endpoint) Key() Key { return Key{e.ContainerID, e.IfName} }
