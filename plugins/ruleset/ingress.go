package ruleset

import (
	"errors"
	"os"
	"slices"

	"github.com/fairlead/fairlead/kernel"
)

const (
	fromChain = "ingress-from" // by the bridge that a packet comes from
	toChain   = "ingress-to"   // by the bridge that a packet goes to
)

// Ingress returns the rules that drop packets from one bridge with a policy to another or, for an isolated bridge, from
// port to port. Packets from elsewhere (host ports, the host) pass. The rules exist as long as the bridge.
func Ingress(bridge string, isolated bool) kernel.Objects {
	list := kernel.Objects{
		Part("table", "", ""),
		Part("chain", "forward", Forward),
		Part("chain", fromChain, ""),
		Part("chain", toChain, ""),
		Part("rule", "forward", "jump "+fromChain),
	}
	for _, n := range ofBridge(bridge, isolated) {
		list = append(list, n)
	}
	return list
}

// ofBridge returns the rules that name a bridge.
func ofBridge(bridge string, isolated bool) []*kernel.NFT {
	name := `"` + bridge + `"`
	rules := []*kernel.NFT{
		Part("rule", fromChain, "iifname "+name+" oifname != "+name+" jump "+toChain),
		Part("rule", toChain, "oifname "+name+" drop"),
	}
	if isolated {
		rules = append(rules, Part("rule", fromChain, "iifname "+name+" oifname "+name+" drop"))
	}
	return rules
}

// RemoveIngress removes the rules of the matching bridges that do not exist, and returns the names of these bridges. With
// dry it only returns the names.
//
// An ADD creates its bridge before it looks for the rules. So a bridge that exists after the removal may belong to an
// ADD that found them: RemoveIngress restores its rules.
func RemoveIngress(e *kernel.Engine, match func(bridge string) bool, dry bool) (bridges []string, err error) {
	comments, err := e.LinkRules(fromChain, toChain)
	if err != nil {
		return nil, err
	}
	gone := map[string][]*kernel.NFT{}
	var all []*kernel.NFT
	for bridge, tags := range comments {
		if !absent(e, bridge) || !match(bridge) {
			continue
		}
		gone[bridge] = slices.DeleteFunc(ofBridge(bridge, true), func(n *kernel.NFT) bool { return !slices.Contains(tags, n.Tag()) })
		all = append(all, gone[bridge]...)
	}
	if !dry {
		err = e.RemoveRules(all)
	}
	for bridge, rules := range gone {
		switch {
		case dry || absent(e, bridge):
			bridges = append(bridges, bridge)
		default:
			for _, n := range rules {
				err = errors.Join(err, e.Apply(kernel.Objects{n}))
			}
		}
	}
	slices.Sort(bridges)
	return bridges, err
}

func absent(e *kernel.Engine, link string) bool {
	_, err := e.Link(kernel.Host, link)
	return errors.Is(err, os.ErrNotExist)
}
