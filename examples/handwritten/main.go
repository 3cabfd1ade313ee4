// Handwritten is an example of a chained plugin with package skel alone. For every attachment, it writes the container's
// addresses to a file, for example for a name service:
//
//	{"type": "handwritten", "dir": "/run/names"}
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
	"github.com/fairlead/fairlead/skel"
)

func main() {
	skel.PluginMain(skel.Plugin{
		Name:     "handwritten",
		About:    "Writes a container's addresses to a file.",
		Version:  "1.0.0",
		AnyNetns: true, // it changes files only
		Funcs:    skel.CNIFuncs{Add: add, Check: check, Del: del},
	})
}

type conf struct {
	cni.PluginConf
	Dir string `json:"dir"`
}

// load reads and validates everything before anything is changed.
func load(args *skel.CmdArgs) (c conf, err error) {
	if err = cni.Decode(args.StdinData, &c); err == nil && !filepath.IsAbs(c.Dir) {
		err = cni.Invalid(args.StdinData, "dir", "want an absolute path")
	}
	return c, err
}

func (c conf) file(containerID, ifName string) string {
	return filepath.Join(c.Dir, c.Name+"@"+containerID+"@"+ifName)
}

// wanted returns the attachment's file, the content that it should have, and the result to pass on.
func wanted(args *skel.CmdArgs) (file string, lines []byte, prev *cni.Result, err error) {
	c, err := load(args)
	if err != nil {
		return "", nil, nil, err
	}
	if prev, err = wire.Decode(c.CNIVersion, c.RawPrevResult); err != nil {
		return "", nil, nil, fmt.Errorf("prevResult: %w", err)
	}
	for _, ip := range prev.IPs {
		lines = fmt.Appendf(lines, "%s %s\n", ip.Address.Addr(), args.ContainerID)
	}
	return c.file(args.ContainerID, args.IfName), lines, prev, nil
}

func add(_ context.Context, args *skel.CmdArgs) (*cni.Result, error) {
	file, lines, prev, err := wanted(args)
	if err != nil {
		return nil, err
	}
	return prev, os.WriteFile(file, lines, 0o644)
}

func check(_ context.Context, args *skel.CmdArgs) error {
	file, want, _, err := wanted(args)
	if err != nil {
		return err
	}
	got, err := os.ReadFile(file)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s has %q, want %q", file, got, want)
	}
	return err
}

// del needs no prevResult, and succeeds when there is nothing left.
func del(_ context.Context, args *skel.CmdArgs) error {
	c, err := load(args)
	if err == nil {
		err = os.Remove(c.file(args.ContainerID, args.IfName))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
