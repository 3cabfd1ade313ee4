// Package attach keeps the record of an attachment: a small file that names it
// and what was built for it, one part a plugin of its list. It is a shortcut:
// everything it says can be found again by owner.
//
// Records live below a root of runtime state and are worth nothing after a
// reboot: one that another boot wrote counts as absent.
package attach

import (
	"strconv"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
)

// DefaultRoot is where runtime state lives; RootVariable in the environment
// names another one, so that several hosts fit on one machine.
const (
	DefaultRoot  = "/run/fairlead"
	RootVariable = "FAIRLEAD_RUN"
)

// Record is one attachment.
type Record struct {
	Boot        string        `json:"boot"`
	Network     string        `json:"network"`
	ContainerID string        `json:"containerID"`
	IfName      string        `json:"ifname"`
	Netns       string        `json:"netns"`
	NetnsID     string        `json:"netnsID"`           // device and inode: tells a namespace from its successor
	Host        string        `json:"host,omitempty"`    // path of the namespace that is the host to it; "": the real one
	Created     time.Time     `json:"created"`           // for people: the time of day may jump
	Since       time.Duration `json:"since"`             // the machine's start, when it was created
	Parts       []Part        `json:"parts"`             // in the order of the list
	Adopted     bool          `json:"adopted,omitempty"` // the reference's plugins made it: objects are what to remove, not what stands

	stored []byte // as last written
	held   bool   // by this ADD, at work: fd is the file, open and locked
	fd     int
}

// Part is what one plugin of the list built.
type Part struct {
	Plugin  string                `json:"plugin"`
	IPAM    string                `json:"ipam,omitempty"` // the type it delegated to
	Done    bool                  `json:"done"`           // false: ADD has not ended, or was cut off
	PID     int                   `json:"pid,omitempty"`  // of that ADD
	Objects Later[kernel.Objects] `json:"objects"`
	Result  Later[*cni.Result]    `json:"result"` // nil until ADD has one
	Ports   []Port                `json:"ports,omitempty"`

	adding bool // its process held the record's lock when the record was read
}

// Port is a host port of an attachment.
type Port struct {
	HostIP        string `json:"hostIP,omitempty"`
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
}

// Owner is the attachment as objects are marked with it.
func (r *Record) Owner() kernel.Owner {
	return kernel.Owner{Network: r.Network, ContainerID: r.ContainerID, IfName: r.IfName}
}

// Last is the position of the newest part of a plugin, or -1.
func (r *Record) Last(plugin string) int {
	for i := len(r.Parts) - 1; i >= 0; i-- {
		if r.Parts[i].Plugin == plugin {
			return i
		}
	}
	return -1
}

// Adding tells whether a process was still at work on the part when its record
// was read.
func (p Part) Adding() bool { return p.adding }

// Living tells whether the attachment's namespace is still the one it was made in.
// What cannot be looked at lives.
func (r *Record) Living() bool {
	var st syscall.Stat_t
	switch err := syscall.Stat(r.Netns, &st); {
	case r.NetnsID == "" || r.Netns == "" || err == syscall.ENOENT || err == syscall.ENOTDIR:
		return false
	case err != nil:
		return true
	}
	return netnsID(&st) == r.NetnsID
}

// NetnsID is the device and inode of what a path names, "" if nothing.
func NetnsID(path string) string {
	var st syscall.Stat_t
	if path == "" || syscall.Stat(path, &st) != nil {
		return ""
	}
	return netnsID(&st)
}

func netnsID(st *syscall.Stat_t) string {
	return strconv.FormatUint(st.Dev, 10) + ":" + strconv.FormatUint(st.Ino, 10)
}

// The same number of bytes, so that the one can be written over the other.
const (
	notDone = `"done":false`
	done    = `"done":true `
)
