package compat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// nsObjects are the objects of a namespace that ip(8) prints.
type nsObjects struct {
	links  []nsLink
	routes []nsRoute
	other  []string // rules and permanent neighbours
}

// read adds the objects that the commands of a batch print. A first argument of -6 selects IPv6.
func (o *nsObjects) read(commands ...string) error {
	args := []string{"-json", "-details", "-batch", "-"}
	family := "IPv4 "
	if commands[0] == "-6" {
		family = "IPv6 "
		args, commands = append([]string{"-6"}, args...), commands[1:]
	}
	cmd := exec.Command("ip", args...)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var list []json.RawMessage
		if err := d.Decode(&list); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		for _, raw := range list {
			if err := o.add(family, raw); err != nil {
				return err
			}
		}
	}
}

func (o *nsObjects) add(family string, raw json.RawMessage) error {
	var keys map[string]any
	if err := json.Unmarshal(raw, &keys); err != nil {
		return err
	}
	if keys["ifindex"] != nil {
		o.links = append(o.links, nsLink{})
		return json.Unmarshal(raw, &o.links[len(o.links)-1])
	}
	if keys["type"] != nil {
		o.routes = append(o.routes, nsRoute{})
		return json.Unmarshal(raw, &o.routes[len(o.routes)-1])
	}
	if _, ok := keys["l3mdev"]; ok { // the kernel's rule, which stays after the last VRF
		return nil
	}
	what := "neighbour "
	if keys["priority"] != nil {
		what = "rule " + family
	}
	delete(keys, "protocol") // a rule's creator
	text, err := json.Marshal(keys)
	if len(keys) > 0 { // the address list has an empty object for each link of another family
		o.other = append(o.other, what+string(text))
	}
	return err
}

func (o *nsObjects) lines() (lines []string) {
	for _, l := range o.links {
		lines = append(lines, l.lines()...)
	}
	for _, r := range o.routes {
		lines = append(lines, r.lines()...)
	}
	return append(lines, o.other...)
}

// queues returns the queueing disciplines that somebody configured. The cases of bandwidth compare their bursts.
func queues() (lines []string, err error) {
	out, err := exec.Command("tc", "qdisc", "show").Output()
	for line := range strings.Lines(string(out)) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " burst ")
		if strings.Contains(line, " 0: dev ") { // the kernel's default has no handle
			continue
		}
		lines = append(lines, regexp.MustCompile(` refcnt \d+`).ReplaceAllString(line, ""))
	}
	return lines, err
}

// ruleset returns the rules and policies of nftables and iptables that neither implementation owns. Rules of the
// implementations differ: see the list of differences. The cases test their effect.
func ruleset() (lines []string, err error) {
	out, err := exec.Command("nft", "-s", "list", "ruleset").Output()
	table, chain := "", ""
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		name, _ := strings.CutSuffix(line, " {")
		switch {
		case strings.HasPrefix(line, "table "):
			table = name
		case strings.HasSuffix(line, "{"):
			chain = name
		case line == "" || line == "}" || strings.HasPrefix(line, "type ") && strings.HasSuffix(line, "policy accept;"):
		case owned.MatchString(table+" "+chain+" "+line) || strings.HasPrefix(line, "meta mark ") && !strings.Contains(line, "0x00004000"):
			// A rule for packets with a mark is the portmap plugin's, except the one of kubeMarks.
		default:
			lines = append(lines, fmt.Sprintf("%s %s: %s", table, chain, line))
		}
	}
	return lines, err
}

// owned matches rules in tables and chains of either implementation, and rules that lead to such chains.
var owned = regexp.MustCompile(`^table (inet|bridge) (fairlead|cni_plugins_masquerade)|^table ip6? cni_(hostport|plugins)|` +
	`chain (CNI|FL)-|(jump|goto) (CNI|FL)-|comment "fairlead|^table bridge nat chain (cni|PREROUTING)`)

// bridgeVLANs returns the VLANs of the ports of bridges that filter VLANs.
func bridgeVLANs(links []nsLink) (lines []string, err error) {
	if !slices.ContainsFunc(links, func(l nsLink) bool { return l.LinkInfo.Data["vlan_filtering"] == 1.0 }) {
		return nil, nil
	}
	out, err := exec.Command("/sbin/bridge", "-json", "vlan", "show").Output()
	var ports []struct {
		Ifname string
		Vlans  []map[string]any
	}
	err = errors.Join(err, json.Unmarshal(out, &ports))
	for _, p := range ports {
		for _, v := range p.Vlans {
			text, _ := json.Marshal(v) // it was decoded from JSON
			lines = append(lines, "vlan of "+p.Ifname+": "+string(text))
		}
	}
	return lines, err
}
