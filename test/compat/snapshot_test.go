package compat

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// These types are the objects of a namespace as ip -json prints them.
type (
	nsLink struct {
		Index    int      `json:"ifindex"`
		Name     string   `json:"ifname"`
		Flags    []string `json:"flags"`
		MTU      int      `json:"mtu"`
		Master   string   `json:"master"`
		MAC      string   `json:"address"`
		Promisc  int      `json:"promiscuity"`
		LinkInfo struct {
			Kind string         `json:"info_kind"`
			Data map[string]any `json:"info_data"`
			Port map[string]any `json:"info_slave_data"`
		} `json:"linkinfo"`
		Addrs []nsAddr `json:"addr_info"`
	}
	nsAddr struct {
		Local     string `json:"local"`
		Bits      int    `json:"prefixlen"`
		Broadcast string `json:"broadcast"`
		Scope     string `json:"scope"`
	}
	nsRoute struct {
		Type, Dst, Gateway, Dev, Scope, Prefsrc string
		Table                                   any
		Metric                                  int
		Flags                                   []string
		Metrics                                 []map[string]any
	}
)

// sysctls returns the sysctls below /proc/sys/net that affect packets.
func sysctls() []string {
	return []string{
		"ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv4/conf/*/route_localnet", "ipv6/conf/*/accept_ra", "ipv6/conf/*/disable_ipv6", "ipv6/conf/*/keep_addr_on_down",
	}
}

// snapshot returns a namespace as text that is equal for equal effects. It omits random values and deliberate
// differences.
func (h *host) snapshot(name string) string {
	h.T.Helper()
	var lines []string
	err := kerneltest.Inside(h.Netns[name], func() error { // commands inherit the thread's namespace
		var o nsObjects
		err := errors.Join(o.read("addr show", "route show table all", "rule show", "neigh show nud permanent"),
			o.read("-6", "rule show")) // the routes are of both families
		lines = o.lines()
		for _, more := range []func() ([]string, error){queues, ruleset, func() ([]string, error) { return bridgeVLANs(o.links) }} {
			list, e := more()
			lines, err = append(lines, list...), errors.Join(err, e)
		}
		lines = append(lines, sysctlLines()...)
		return err
	})
	if err != nil {
		h.T.Fatalf("snapshot of %s: %v", name, err)
	}
	for i := range lines {
		lines[i] = linkName.ReplaceAllString(lines[i], "${1}X") // random names would change the order
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (l nsLink) lines() []string {
	if l.Name == "lo" && !slices.Contains(l.Flags, "UP") {
		return []string{"link lo down"}
	}
	s := strings.TrimSpace("link " + l.Name + " " + l.LinkInfo.Kind)
	s += fmt.Sprintf(" mtu %d mac %s", l.MTU, l.MAC)
	if l.Master != "" {
		s += " master " + l.Master
	}
	for _, f := range []string{"UP", "PROMISC"} {
		if slices.Contains(l.Flags, f) {
			s += " " + strings.ToLower(f)
		}
	}
	for _, k := range []string{"hairpin", "isolated"} {
		if l.LinkInfo.Port[k] == true {
			s += " " + k
		}
	}
	for _, k := range []string{"mode", "bcqueuelen", "protocol", "id", "type", "persist", "multi_queue", "user", "group"} {
		if v, ok := l.LinkInfo.Data[k]; ok && l.LinkInfo.Kind != "bridge" {
			s += fmt.Sprintf(" %s %v", k, v)
		}
	}
	if l.LinkInfo.Data["vlan_filtering"] == 1.0 {
		s += fmt.Sprintf(" vlan_filtering default_pvid %v", l.LinkInfo.Data["vlan_default_pvid"])
	}
	out := []string{s}
	for _, a := range l.Addrs {
		if strings.HasPrefix(a.Local, "fe80:") {
			continue
		}
		line := fmt.Sprintf("addr %s/%d dev %s scope %s", a.Local, a.Bits, l.Name, a.Scope)
		if a.Broadcast != "" {
			line += " brd " + a.Broadcast
		}
		out = append(out, line)
	}
	return out
}

func (r nsRoute) lines() []string {
	if strings.HasPrefix(r.Dst, "fe80::") || strings.Contains(r.Dst, ":") && r.Table == "local" { // the latter follow the addresses
		return nil
	}
	s := "route " + r.Dst
	if r.Type != "unicast" {
		s = r.Type + " " + s
	}
	if r.Gateway != "" {
		s += " via " + r.Gateway
	}
	s += " dev " + r.Dev + " scope " + r.Scope
	if r.Prefsrc != "" {
		s += " src " + r.Prefsrc
	}
	if r.Metric != 0 {
		s += fmt.Sprintf(" metric %d", r.Metric)
	}
	if r.Table != nil && r.Table != "main" {
		s += fmt.Sprintf(" table %v", r.Table)
	}
	for _, m := range r.Metrics {
		text, _ := json.Marshal(m)
		s += " " + string(text)
	}
	return []string{s}
}

// sysctlLines returns the sysctls of the calling thread's namespace and of its links.
func sysctlLines() (out []string) {
	for _, pattern := range sysctls() {
		files, _ := filepath.Glob("/proc/sys/net/" + pattern) // the patterns are well-formed
		for _, f := range files {
			if link := filepath.Base(filepath.Dir(f)); link == "default" || link == "lo" || link == "all" && strings.Contains(pattern, "*") {
				continue
			}
			if raw, err := os.ReadFile(f); err == nil { // otherwise the link has just been deleted
				out = append(out, "sysctl "+strings.TrimPrefix(f, "/proc/sys/")+":"+strings.TrimSpace(string(raw)))
			}
		}
	}
	return out
}

var (
	linkName = regexp.MustCompile(`\b(veth|bwp)[0-9a-f]{6,}\b`)
	macText  = regexp.MustCompile(`\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b`)
)

// normalize replaces values specific to a host: paths, and random or derived names and hardware addresses. Values in
// the case's configuration stay. It sorts the lines.
func (h *host) normalize(text, keep string) string {
	for name, path := range h.Netns {
		text = strings.ReplaceAll(text, path, "NETNS-"+name)
	}
	text = strings.ReplaceAll(text, h.Dir, "$DIR")
	text = linkName.ReplaceAllString(text, "${1}X")
	return macText.ReplaceAllStringFunc(text, func(mac string) string {
		if strings.Contains(keep, mac) {
			return mac
		}
		return "MAC"
	})
}

// containsLink reports whether a snapshot contains a link.
func containsLink(snapshot, name string) bool {
	return strings.Contains("\n"+snapshot, "\nlink "+name+" ")
}
