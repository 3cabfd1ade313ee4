package delegate

import (
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/skel"
)

// MiniCNI returns a plugin with four keys on top of bridge and host-local. It shows how small a plugin can be.
func MiniCNI(x *plugin.Exec) skel.Plugin {
	return serve("minicni", "one bridge and one subnet: a preset over bridge and host-local", minicni{}, x)
}

type minicni struct{}

func (minicni) rewrite(_ string, args *skel.CmdArgs) (conf, error) {
	var in struct{ Bridge, Subnet, MTU any }
	c, from := conf{}, conf{}
	if err := cni.Decode(args.StdinData, &from); err != nil {
		return nil, err
	}
	if err := cni.Decode(args.StdinData, &in); err != nil {
		return nil, err
	}
	c.copyRuntimeKeys(from)
	for key, v := range map[string]any{
		"type": "bridge", "bridge": in.Bridge, "mtu": in.MTU, "isDefaultGateway": true, "ipMasq": true,
		"ipam": map[string]any{"type": "host-local", "subnet": in.Subnet},
	} {
		if v != nil {
			c.set(key, v)
		}
	}
	return c, nil
}

func (minicni) done(string, *skel.CmdArgs, time.Time) error { return nil }
