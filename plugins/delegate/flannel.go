package delegate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

// Flannel returns the plugin that connects containers to the subnet that flanneld leased for this host.
func Flannel(x *plugin.Exec) skel.Plugin {
	return serve("flannel", "reads the subnet that flanneld leased, and delegates to bridge or another plugin",
		flannel{subnetFile: "/run/flannel/subnet.env", lib: os.Getenv("FAIRLEAD_LIB")}, x)
}

type flannel struct {
	subnetFile string
	lib        string
}

type flannelConf struct {
	cni.PluginConf
	SubnetFile string `json:"subnetFile"`
	DataDir    string `json:"dataDir"`
	Delegate   conf   `json:"delegate"`
	IPAM       conf   `json:"ipam"`
}

func (f flannel) parse(args *skel.CmdArgs) (c flannelConf, from conf, err error) {
	if err = cni.Decode(args.StdinData, &from); err == nil {
		err = cni.Decode(args.StdinData, &c)
	}
	if c.SubnetFile == "" {
		c.SubnetFile = f.subnetFile
	}
	if c.DataDir == "" {
		c.DataDir = below(f.lib, "flannel")
	}
	for _, key := range []string{"name", "ipam"} {
		if _, ok := c.Delegate[key]; ok && err == nil {
			err = cni.Invalid(args.StdinData, "delegate."+key, "is set by flannel: move it out of delegate")
		}
	}
	return c, from, err
}

// rewrite builds the delegate's configuration from flanneld's file and saves it, so that later operations use what ADD
// used even if the lease changed.
func (f flannel) rewrite(verb string, args *skel.CmdArgs) (conf, error) {
	c, from, err := f.parse(args)
	if err != nil && verb != "DEL" && verb != "GC" {
		return nil, err
	}
	switch verb {
	case "CHECK", "DEL":
		if saved, err := readSaved(c, args); err == nil {
			saved.copyRuntimeKeys(from)
			return saved, nil
		}
	case "ADD", "STATUS":
		out, err := c.generated(from)
		if err != nil || verb == "STATUS" {
			return out, err
		}
		return out, save(c, args, out)
	}
	out, err := c.generated(from)
	if err != nil && verb == "CHECK" {
		return nil, err
	}
	if err != nil { // names and owner tags are enough to remove by
		out = c.base()
		out.copyRuntimeKeys(from)
		out["ipam"], err = c.ipam(subnetEnv{})
	}
	return out, err
}

func (f flannel) done(verb string, args *skel.CmdArgs, start time.Time) error {
	c, _, _ := f.parse(args)
	switch verb {
	case "DEL":
		return removeSaved(c, args)
	case "GC":
		return f.collect(c, start)
	}
	return nil
}

// generated returns the delegate's configuration for the current lease.
func (c flannelConf) generated(from conf) (conf, error) {
	env, err := readSubnet(c.SubnetFile)
	if err != nil {
		return nil, err
	}
	out := c.base()
	out.set("ipMasq", !env.ipMasq)
	if env.mtu > 0 {
		out.set("mtu", env.mtu)
	}
	if string(out["type"]) == `"bridge"` {
		out.set("isGateway", true)
	}
	out.copyRuntimeKeys(from)
	out["ipam"], err = c.ipam(env)
	return out, err
}

// base returns the configuration's delegate, with its type.
func (c flannelConf) base() conf {
	out := conf{}
	for k, v := range c.Delegate {
		out[k] = v
	}
	out.set("type", "bridge")
	return out
}

// ipam returns the configured ipam, with a range for each of the host's subnets and a route to each of flannel's
// networks.
func (c flannelConf) ipam(env subnetEnv) (json.RawMessage, error) {
	out := conf{}
	for k, v := range c.IPAM {
		out[k] = v
	}
	out.set("type", "host-local")
	var ranges [][]map[string]netip.Prefix
	for _, p := range env.subnets {
		ranges = append(ranges, []map[string]netip.Prefix{{"subnet": p.Masked()}})
	}
	out["ranges"], _ = json.Marshal(ranges)
	var routes []json.RawMessage
	if own, ok := out["routes"]; ok {
		if err := json.Unmarshal(own, &routes); err != nil {
			return nil, cni.Invalid(nil, "ipam.routes", "want a list of routes")
		}
	}
	for _, n := range env.networks {
		dst, _ := json.Marshal(map[string]netip.Prefix{"dst": n})
		routes = append(routes, dst)
	}
	out["routes"], _ = json.Marshal(routes)
	return json.Marshal(out)
}

// savedFile returns the file of an attachment. For eth0 it is the container ID, as in the reference plugin; other
// interfaces append their name.
func savedFile(c flannelConf, args *skel.CmdArgs) string {
	name := args.ContainerID
	if args.IfName != "eth0" {
		name += "," + args.IfName
	}
	return filepath.Join(c.DataDir, name)
}

func save(c flannelConf, args *skel.CmdArgs, out conf) error {
	raw, err := json.Marshal(out)
	if err == nil {
		err = os.MkdirAll(c.DataDir, 0o700)
	}
	file := savedFile(c, args)
	if err == nil {
		err = plainfile.Write(file+"~", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(file+"~", file)
	}
	if err != nil {
		_ = os.Remove(file + "~")
		return fmt.Errorf("save the delegate's configuration: %w", err)
	}
	return nil
}

// readSaved reads the configuration that ADD used. The reference plugin names the file by the container alone for every
// interface; such a file counts if it is of this network.
func readSaved(c flannelConf, args *skel.CmdArgs) (conf, error) {
	for _, file := range []string{savedFile(c, args), filepath.Join(c.DataDir, args.ContainerID)} {
		var out conf
		raw, err := plainfile.Read(file)
		if err != nil || json.Unmarshal(raw, &out) != nil {
			continue
		}
		var name string
		if json.Unmarshal(out["name"], &name) == nil && name == c.Name {
			return out, nil
		}
	}
	return nil, os.ErrNotExist
}

func removeSaved(c flannelConf, args *skel.CmdArgs) error {
	_ = os.Remove(savedFile(c, args) + "~") // left by a killed process
	if _, err := readSaved(c, args); err != nil {
		return nil
	}
	if err := os.Remove(savedFile(c, args)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// collect removes the files of this network's invalid attachments, except files written since this GC started.
func (f flannel) collect(c flannelConf, start time.Time) error {
	files, err := os.ReadDir(c.DataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range files {
		id, ifname, other := strings.Cut(strings.TrimSuffix(e.Name(), "~"), ",")
		if !other {
			ifname = "eth0"
		}
		args := &skel.CmdArgs{ContainerID: id, IfName: ifname}
		info, err := e.Info()
		if err != nil || young(info.ModTime(), start) || c.valid(args) {
			continue
		}
		errs = append(errs, removeSaved(c, args))
	}
	return errors.Join(errs...)
}

// young reports whether a file was written since a GC started. A time in the future is from before the clock was set
// back.
func young(written, start time.Time) bool {
	return !written.Before(start) && !written.After(time.Now())
}

func (c flannelConf) valid(args *skel.CmdArgs) bool {
	for _, a := range c.ValidAttachments {
		if a.ContainerID == args.ContainerID && a.IfName == args.IfName {
			return true
		}
	}
	return false
}
