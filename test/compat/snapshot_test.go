package compat

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The parts of a namespace, in the words of ip -json.
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

const sysctls = "/proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding" +
	" /proc/sys/net/ipv4/conf/*/route_localnet /proc/sys/net/ipv6/conf/*/accept_ra /proc/sys/net/ipv6/conf/*/disable_ipv6"

// snapshot is the text of a namespace, equal for equal effects: what is random
// on both sides, and what is in the list of deliberate differences, is left out.
func (h *host) snapshot(name string) string {
	h.t.Helper()
	cmd := exec.Command("nsenter", "--net="+h.netns[name], "--", "sh", "-c",
		"ip -j -d addr; echo; ip -4 -j -d route show table all; echo; ip -j -d -6 route show table all; echo; grep . "+sysctls+"; true")
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("snapshot of %s: %v", name, err)
	}
	parts := strings.SplitN(string(out), "\n\n", 4)
	if len(parts) != 4 {
		h.t.Fatalf("snapshot of %s: %s", name, out)
	}
	lines := linesOf[nsLink](h.t, parts[0])
	lines = append(lines, linesOf[nsRoute](h.t, parts[1])...)
	lines = append(lines, linesOf[nsRoute](h.t, parts[2])...)
	lines = append(lines, sysctlLines(parts[3])...)
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// linesOf reads a list that ip printed; of an empty one it prints nothing, or [].
func linesOf[T interface{ lines() []string }](t testing.TB, text string) (out []string) {
	var list []T
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("output of ip: %v: %s", err, text)
	}
	for _, x := range list {
		out = append(out, x.lines()...)
	}
	return out
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
	if r.Type != "unicast" || strings.HasPrefix(r.Dst, "fe80::") {
		return nil
	}
	s := "route " + r.Dst
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

// sysctlLines are those of links that are not the kernel's defaults.
func sysctlLines(text string) (out []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "/proc/sys/")
		if strings.Contains(line, "/default/") || strings.Contains(line, "/lo/") ||
			strings.Contains(line, "/all/") && !strings.Contains(line, "/all/forwarding") {
			continue
		}
		out = append(out, "sysctl "+line)
	}
	return out
}

var (
	vethName = regexp.MustCompile(`\bveth[0-9a-f]{6,}\b`)
	macText  = regexp.MustCompile(`\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b`)
)

// normal replaces what is a host's own: paths, random or derived names and
// hardware addresses. Those that the case itself asks for stay; lines are sorted.
func (h *host) normal(text, keep string) string {
	for name, path := range h.netns {
		text = strings.ReplaceAll(text, path, "NETNS-"+name)
	}
	text = strings.ReplaceAll(text, h.dir, "$DIR")
	text = vethName.ReplaceAllString(text, "vethX")
	return macText.ReplaceAllStringFunc(text, func(mac string) string {
		if strings.Contains(keep, mac) || mac == "00:00:00:00:00:00" {
			return mac
		}
		return "MAC"
	})
}
