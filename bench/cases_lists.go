package main

import (
	"os"
	"strings"

	"github.com/fairlead/fairlead/examples"
)

// These are the names of cases with targets.
const (
	plainName       = "bridge + host-local"
	masqNFTName     = "the same, masquerade by nftables"
	masqDefaultName = "the same, masquerade by each one's default"
	chainName       = "bridge, portmap, bandwidth, firewall, tuning"
)

// listCases returns lists that grow by one plugin at a time.
func listCases() []benchCase {
	list := []benchCase{
		{name: plainName, list: conflist("plain", bridgePlugin("")), floor: "bridge:bench0", more: everySide()},
		{name: masqNFTName, list: conflist("masq", bridgePlugin(masqNFT)), floor: "bridge:bench0 masq", more: []string{library}},
		{name: masqDefaultName, list: conflist("masq", bridgePlugin(masqDefault)), floor: "bridge:bench0 masq"},
		{name: "the same, masquerade by iptables", list: conflist("masq", bridgePlugin(masqIPTables)), floor: "bridge:bench0 masq"},
	}
	plugins, words, name := []string{bridgePlugin(masqNFT)}, "bridge:bench0 masq", "bridge"
	for _, p := range []struct{ name, conf, word string }{
		{"portmap", portmap, " port"}, {"bandwidth", bandwidth, " bandwidth"}, {"firewall", firewall, ""}, {"tuning", tuning, " sysctl"},
	} {
		plugins, words, name = append(plugins, p.conf), words+p.word, name+", "+p.name
		c := benchCase{name: name, list: conflist("chain", plugins...), floor: words, ports: true, more: []string{fused, library}}
		if name == chainName {
			c.more = everySide()
		}
		list = append(list, c)
	}
	for i := range list {
		list[i].group, list[i].setup = groupLists, bridgeUp()
	}
	return list
}

// everySide returns every way to run Fairlead's plugins, and the reference plugins under Fairlead's runtime.
func everySide() []string { return []string{ownRuntime, fused, library, theirsUnderOur} }

// exampleCases returns the project's example lists. Two of them use a DHCP server, whose time is included.
func exampleCases() (list []benchCase) {
	for _, c := range []benchCase{
		{name: "10-my-network.conflist", floor: "bridge:cni0 masq port bandwidth", ports: true, setup: bridgeNamed("cni0"), more: []string{fused, library}},
		{name: "20-dbnet.conflist", floor: "bridge:cni1 sysctl", setup: bridgeNamed("cni1")},
		{name: "21-dbnet-0.3.1.conf", floor: "bridge:cni2", setup: bridgeNamed("cni2"), verbs: []string{"ADD", "DEL"}},
		{name: "30-wan.conf", floor: "macvlan:eth0", before: wan, verbs: []string{"ADD", "DEL"}},
		{name: "40-pci-ovs.conf", floor: "pair", before: openVSwitch, alone: true, verbs: []string{"ADD", "DEL"}},
		{name: "50-flannel.conflist", floor: "bridge:cni0 port", ports: true, setup: bridgeNamed("cni0"), alone: true, before: subnetEnv, verbs: []string{"ADD", "DEL"}},
		{name: "60-minicni.conf", floor: "bridge:minicni0", setup: bridgeNamed("minicni0"), alone: true, verbs: []string{"ADD", "DEL"}},
	} {
		c.group, c.list = groupExamples, withSockets(example(c.name))
		list = append(list, c)
	}
	return list
}

func bridgeNamed(name string) []string {
	return []string{"link add " + name + " type bridge", "link set " + name + " up"}
}

// example returns an example as a list, with the side in the network's name.
func example(file string) string {
	raw, err := examples.Networks.ReadFile(file)
	if err != nil {
		panic(err) // the example is embedded, and the test of the cases covers it
	}
	text := string(raw)
	_, rest, _ := strings.Cut(text, `"name": "`)
	name, _, _ := strings.Cut(rest, `"`)
	if strings.HasSuffix(file, ".conf") {
		_, version, _ := strings.Cut(text, `"cniVersion": "`)
		version, _, _ = strings.Cut(version, `"`)
		return `{"cniVersion": "` + version + `", "name": "` + name + `-$SIDE", "plugins": [` + text + `]}`
	}
	return strings.Replace(text, `"name": "`+name+`"`, `"name": "`+name+`-$SIDE"`, 1)
}

// subnetEnv writes flanneld's subnet file.
func subnetEnv(*world) error {
	if err := os.MkdirAll("/run/flannel", 0o755); err != nil {
		return err
	}
	return os.WriteFile("/run/flannel/subnet.env",
		[]byte("FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"), 0o600)
}
