package podstate

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/cni"
)

// Definition is a NetworkAttachmentDefinition.
type Definition struct {
	Version   int    `json:"version"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Config is spec.config: a plugin or a list of plugins; "": a file of the configuration directory has the network.
	Config string `json:"config,omitempty"`
	// Problem says why no pod can use the network; "": a pod can.
	Problem string `json:"problem,omitempty"`
	// Resource is the resource whose devices a device plugin allocates for the network; "": none.
	Resource string `json:"resource,omitempty"`
}

// DefinitionArgs ask the agent for a NetworkAttachmentDefinition. The answer is a Definition.
type DefinitionArgs struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// DevicesArgs ask the agent for the devices of a resource that the kubelet allocated to a pod. The answer is a
// DevicesResult.
type DevicesArgs struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Resource  string `json:"resource"`
}

// DevicesResult has the IDs of devices in the kubelet's order.
type DevicesResult struct {
	IDs []string `json:"ids"`
}

// These are the operations of the agent's socket.
const (
	OpDefinition = "definition" // DefinitionArgs -> Definition
	OpDevices    = "devices"    // DevicesArgs -> DevicesResult
)

func (d Dir) definitions(namespace string) string {
	return filepath.Join(d.root, "definitions", namespace)
}

// definition returns the path of a definition's file. It rejects names that are not file names.
func (d Dir) definition(namespace, name string) (string, error) {
	for _, s := range []string{namespace, name} {
		if err := cni.ValidateNetworkName(s); err != nil {
			return "", fmt.Errorf("NetworkAttachmentDefinition %s/%s: %w", namespace, name, err)
		}
	}
	return filepath.Join(d.definitions(namespace), fileName(name)+ending), nil
}

// Kubernetes allows names of 253 bytes, and Linux file names of 255, with the ending and with those of unfinished files.
const (
	longName = 200 // bytes: the file of a longer name has another one
	cut      = "_" // which no name in Kubernetes has
)

func fileName(name string) string {
	if len(name) <= longName {
		return name
	}
	h := fnv.New128a()
	h.Write([]byte(name))
	return name[:longName/2] + cut + hex.EncodeToString(h.Sum(nil))
}

// Definition returns a definition, or fs.ErrNotExist.
func (d Dir) Definition(namespace, name string) (*Definition, error) {
	path, err := d.definition(namespace, name)
	if err != nil {
		return nil, err
	}
	x := &Definition{}
	if err := read(path, x); err != nil {
		return nil, err
	}
	if x.Name != name {
		return nil, fmt.Errorf("NetworkAttachmentDefinition %s/%s: its file has %s: %w", namespace, name, x.Name, fs.ErrNotExist)
	}
	return x, nil
}

// WriteDefinition writes a definition unless it is on disk already.
func (d Dir) WriteDefinition(x Definition) error {
	path, err := d.definition(x.Namespace, x.Name)
	if err != nil {
		return err
	}
	x.Version = version
	if have, err := d.Definition(x.Namespace, x.Name); err == nil && *have == x {
		return nil
	}
	if err := write(path, x); err != nil {
		return fmt.Errorf("write NetworkAttachmentDefinition %s/%s: %w", x.Namespace, x.Name, err)
	}
	return nil
}

// RemoveDefinition removes a definition, if there is one.
func (d Dir) RemoveDefinition(namespace, name string) error {
	path, err := d.definition(namespace, name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove NetworkAttachmentDefinition %s/%s: %w", namespace, name, err)
	}
	_ = os.Remove(d.definitions(namespace)) // fails if there are more
	return nil
}

// Definitions returns the namespaces and names of all definitions. RemoveDefinition accepts them, also if the file of a
// long name is not readable.
func (d Dir) Definitions() (out []DefinitionArgs, err error) {
	namespaces, err := os.ReadDir(d.definitions(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range namespaces {
		list, err := names(d.definitions(e.Name()))
		if err != nil {
			return nil, err
		}
		for _, name := range list {
			var x Definition
			if strings.Contains(name, cut) && read(filepath.Join(d.definitions(e.Name()), name+ending), &x) == nil && fileName(x.Name) == name {
				name = x.Name
			}
			out = append(out, DefinitionArgs{e.Name(), name})
		}
	}
	return out, nil
}
