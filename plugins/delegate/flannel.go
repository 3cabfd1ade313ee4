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

// Flannel joins containers to the subnet that flanneld leased for this host.
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
			err = cni.Invalid(args.StdinData, "delegate."+key, "is flannel's to say; give it beside delegate")
		}
	}
	return c, from, err
}

// rewrite makes the delegate's configuration from flanneld's file, and keeps
// it: what follows ADD uses what ADD used, whatever flanneld did since.
func (f flannel) rewrite(verb string, args *skel.CmdArgs) (conf, error) {
	c, from, err := f.parse(args)
	if err != nil && verb != "DEL" && verb != "GC" {
		return nil, err
	}
	switch verb {
	case "CHECK", "DEL":
		if kept, err := readKept(c, args); err == nil {
			kept.passed(from)
			return kept, nil
		}
	case "ADD", "STATUS":
		out, err := c.generated(from)
		if err != nil || verb == "STATUS" {
			return out, err
		}
		return out, keep(c, args, out)
	}
	out, err := c.generated(from)
	if err != nil && verb == "CHECK" {
		return nil, err
	}
	if err != nil { // names and owners are enough to remove by
		out = c.base()
		out.passed(from)
		out["ipam"], err = c.ipam(subnetEnv{})
	}
	return out, err
}

func (f flannel) done(verb string, args *skel.CmdArgs, began time.Time) error {
	c, _, _ := f.parse(args)
	switch verb {
	case "DEL":
		return forget(c, args)
	case "GC":
		return f.collect(c, began)
	}
	return nil
}

// generated is the delegate's configuration, without what the runtime adds.
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
	out.passed(from)
	out["ipam"], err = c.ipam(env)
	return out, err
}

// base is what the configuration says of the delegate.
func (c flannelConf) base() conf {
	out := conf{}
	for k, v := range c.Delegate {
		out[k] = v
	}
	out.set("type", "bridge")
	return out
}

// ipam is the configuration's own, with a range for each subnet of the host and
// a route to each of flannel's networks.
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

// kept is the file of an attachment: the container's, as the original has it,
// for the usual interface; another interface's has its name, too.
func kept(c flannelConf, args *skel.CmdArgs) string {
	name := args.ContainerID
	if args.IfName != "eth0" {
		name += "," + args.IfName
	}
	return filepath.Join(c.DataDir, name)
}

func keep(c flannelConf, args *skel.CmdArgs, out conf) error {
	raw, err := json.Marshal(out)
	if err == nil {
		err = os.MkdirAll(c.DataDir, 0o700)
	}
	file := kept(c, args)
	if err == nil {
		err = plainfile.Write(file+"~", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(file+"~", file)
	}
	if err != nil {
		_ = os.Remove(file + "~")
		return fmt.Errorf("keep the delegate's configuration: %w", err)
	}
	return nil
}

// readKept reads what ADD used. The original names every interface's file by
// the container alone: such a one is ours if it is of this network.
func readKept(c flannelConf, args *skel.CmdArgs) (conf, error) {
	for _, file := range []string{kept(c, args), filepath.Join(c.DataDir, args.ContainerID)} {
		var out conf
		raw, err := os.ReadFile(file)
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

func forget(c flannelConf, args *skel.CmdArgs) error {
	_ = os.Remove(kept(c, args) + "~") // what a kill left of it
	if _, err := readKept(c, args); err != nil {
		return nil
	}
	if err := os.Remove(kept(c, args)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// collect removes the files of this network's attachments that are not valid,
// but for those younger than this GC.
func (f flannel) collect(c flannelConf, began time.Time) error {
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
		if err != nil || young(info.ModTime(), began) || c.valid(args) {
			continue
		}
		errs = append(errs, forget(c, args))
	}
	return errors.Join(errs...)
}

// young tells whether a file was written since a GC began. One of the future was
// written before the clock was set back.
func young(written, began time.Time) bool {
	return !written.Before(began) && !written.After(time.Now())
}

func (c flannelConf) valid(args *skel.CmdArgs) bool {
	for _, a := range c.ValidAttachments {
		if a.ContainerID == args.ContainerID && a.IfName == args.IfName {
			return true
		}
	}
	return false
}
