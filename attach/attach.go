// Package attach keeps the record of an attachment: a small file with the attachment's names and the objects that were
// created for it, one part per plugin of its list. The record is a shortcut: all objects can be found again by their
// owner.
//
// Records live below a directory of runtime state and end with the boot: a record of an earlier boot counts as absent.
package attach

import (
	"syscall"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/netns"
)

// DefaultRoot is the directory of runtime state. The environment variable RootVariable overrides it, so that tests can
// run several hosts on one machine.
const (
	DefaultRoot  = "/run/fairlead"
	RootVariable = "FAIRLEAD_RUN"
)

// Record is the record of one attachment.
type Record struct {
	Boot        string        `json:"boot"`
	Network     string        `json:"network"`
	ContainerID string        `json:"containerID"`
	IfName      string        `json:"ifname"`
	Netns       string        `json:"netns"`
	NetnsID     string        `json:"netnsID"` // device and inode of the namespace: see netns.ID
	NetnsCookie uint64        `json:"netnsCookie,omitempty"`
	Host        string        `json:"host,omitempty"`    // path of the namespace that acts as the host; "": the real host
	Created     time.Time     `json:"created"`           // for display: the wall clock may jump
	Since       time.Duration `json:"since"`             // time since boot at creation
	Parts       []Part        `json:"parts"`             // in the order of the list
	Adopted     bool          `json:"adopted,omitempty"` // created by the reference plugins: objects lists what to remove, not what exists
	Staged      bool          `json:"staged,omitempty"`  // the container's link is on the host, and the runtime will move it: see NoteMove
	Link        string        `json:"link,omitempty"`    // name of the container's link, if the runtime changed it; "": IfName

	stored []byte // as last written
	held   bool   // this process holds the lock: fd is the open file
	fd     int
}

// Part contains the objects that one plugin of the list created.
type Part struct {
	Plugin  string               `json:"plugin"`
	IPAM    string               `json:"ipam,omitempty"` // the IPAM plugin's type
	Done    bool                 `json:"done"`           // false: the ADD is in progress or was interrupted
	PID     int                  `json:"pid,omitempty"`  // of that ADD
	Conf    string               `json:"conf,omitempty"` // hash of the configuration that ADD got; "": unknown
	Objects Lazy[kernel.Objects] `json:"objects"`
	Result  Lazy[*cni.Result]    `json:"result"` // nil until ADD has one
	Ports   []Port               `json:"ports,omitempty"`

	adding bool // the ADD held the record's lock when the record was read

	changing     kernel.Objects // see changes
	changingRead bool
}

// Port is a host port of an attachment.
type Port struct {
	HostIP        string `json:"hostIP,omitempty"`
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
}

// Owner returns the owner of the attachment's objects.
func (r *Record) Owner() kernel.Owner {
	return kernel.Owner{Network: r.Network, ContainerID: r.ContainerID, IfName: r.IfName}
}

// Last returns the position of a plugin's newest part, or -1.
func (r *Record) Last(plugin string) int {
	for i := len(r.Parts) - 1; i >= 0; i-- {
		if r.Parts[i].Plugin == plugin {
			return i
		}
	}
	return -1
}

// Adding reports whether the part's ADD was in progress when the record was read.
func (p Part) Adding() bool { return p.adding }

// Namespace returns the ID of the network namespace that the attachment was added in.
func (r *Record) Namespace() netns.ID { return netns.FromStored(r.NetnsID, r.NetnsCookie) }

// HasNetns reports whether the attachment's network namespace is still the one it was added in. If the path cannot be
// examined, or the runtime has not moved the link there yet, HasNetns returns true.
func (r *Record) HasNetns() bool {
	if r.Staged {
		return true
	}
	if r.NetnsID == "" || r.Netns == "" {
		return false
	}
	is, err := r.Namespace().IsAt(r.Netns)
	return is || err != nil && err != syscall.ENOENT && err != syscall.ENOTDIR
}

// Both have the same length, so that Finish can overwrite one with the other.
const (
	notDone = `"done":false`
	done    = `"done":true `
)
