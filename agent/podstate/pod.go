package podstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Pod lists the networks that were attached to a pod. Its file exists from before the first change until after the last.
type Pod struct {
	Version     int    `json:"version"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`  // of the default network
	Network     string `json:"network"` // CNI name of the network that the runtime attaches
	// Namespace, Name and UID are the pod's in Kubernetes.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Boot and Uptime are when the ADD began: the ID of the boot, and the kernel's time since then.
	Boot     string        `json:"boot"`
	Uptime   time.Duration `json:"uptime"`
	Attached bool          `json:"attached"` // the ADD succeeded
	// Attachments are in the order of their ADD.
	Attachments []Attachment `json:"attachments"`
}

// Attachment is one network of a pod.
type Attachment struct {
	// Namespace and Name are those of the NetworkAttachmentDefinition. A network of the configuration directory has no
	// namespace.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	IfName    string `json:"ifName"`
	Default   bool   `json:"default,omitempty"`
	DeviceID  string `json:"deviceID,omitempty"`
	NoCheck   bool   `json:"noCheck,omitempty"` // the list has disableCheck
	// Config is the list of plugins as it was attached.
	Config        json.RawMessage `json:"config"`
	RuntimeConfig json.RawMessage `json:"runtimeConfig,omitempty"`
	// Result is the result of ADD, in the list's version; nil: ADD did not succeed.
	Result json.RawMessage `json:"result,omitempty"`
}

// separator is between the container's ID and the interface in file names. Neither contains it.
const separator = ":"

func (d Dir) pods() string { return filepath.Join(d.root, "pods") }

func (d Dir) pod(id, ifName string) string {
	return filepath.Join(d.pods(), id+separator+ifName+ending)
}

// Pod returns what was attached to a pod. The error is fs.ErrNotExist if no such pod has several networks.
func (d Dir) Pod(id, ifName string) (*Pod, error) {
	p := &Pod{}
	err := read(d.pod(id, ifName), p)
	if err == nil && (p.ContainerID != id || p.IfName != ifName) {
		err = fmt.Errorf("read %s: it describes another container, %s", d.pod(id, ifName), p.ContainerID)
	}
	return p, err
}

// WritePod writes what was attached to a pod. The caller holds the pod's lock.
func (d Dir) WritePod(p *Pod) error {
	p.Version = version
	if err := write(d.pod(p.ContainerID, p.IfName), p); err != nil {
		return fmt.Errorf("record the networks of container %s: %w", p.ContainerID, err)
	}
	return nil
}

// RemovePod removes a pod's file, and what a killed process left of it. The caller holds the pod's lock.
func (d Dir) RemovePod(id, ifName string) error {
	if err := remove(d.pod(id, ifName)); err != nil {
		return fmt.Errorf("remove the record of container %s: %w", id, err)
	}
	return nil
}

// Key identifies the file of a pod or an endpoint.
type Key struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
}

// Pods returns the keys of all pods with a file.
func (d Dir) Pods() ([]Key, error) {
	out, err := keys(d.pods())
	if err != nil {
		return nil, fmt.Errorf("list the pods with several networks: %w", err)
	}
	return out, nil
}

// Unrecorded returns the keys of pods with a lock and without a file: an operation on them runs, or was killed before it
// attached anything.
func (d Dir) Unrecorded() (out []Key) {
	entries, _ := os.ReadDir(d.pods()) // without the directory, there are none
	for _, e := range entries {
		name, isLock := strings.CutSuffix(e.Name(), lockEnding)
		id, ifName, ok := strings.Cut(name, separator)
		if _, err := os.Lstat(d.pod(id, ifName)); isLock && ok && errors.Is(err, fs.ErrNotExist) {
			out = append(out, Key{id, ifName})
		}
	}
	return out
}

// keys returns the keys of the files in a directory.
func keys(dir string) (out []Key, err error) {
	list, err := names(dir)
	for _, name := range list {
		if id, ifName, ok := strings.Cut(name, separator); ok {
			out = append(out, Key{id, ifName})
		}
	}
	return out, err
}

// Stamp returns a text that changes when a pod's file was written, added or removed, and the time of that change. The text
// is "" if it is unknown.
func (d Dir) Stamp() (stamp string, changed time.Time) { return stampOf(d.pods()) }

// EndpointStamp is Stamp for the files of endpoints.
func (d Dir) EndpointStamp() (stamp string, changed time.Time) { return stampOf(d.endpoints()) }

func stampOf(dir string) (stamp string, changed time.Time) {
	info, err := os.Stat(dir)
	if err != nil {
		return "", time.Time{}
	}
	return info.ModTime().String(), info.ModTime()
}
