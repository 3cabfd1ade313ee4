package compat

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// badInput is a plugin call that fails in at least one implementation.
type badInput struct {
	name   string
	plugin string            // "" means bridge
	verb   string            // "" means ADD
	env    map[string]string // overrides; "-" unsets
	conf   string            // stdin
	why    string            // the reason for a deliberate difference
}

func conf(keys string) string {
	return `{"cniVersion": "1.1.0", "name": "net", "type": "bridge", "bridge": "cni0", ` + keys + `}`
}

func addressed(ipam string) string {
	return conf(`"ipam": {"type": "host-local", "dataDir": "$DIR/ipam", ` + ipam + `}`)
}

func badInputs() []badInput {
	good := addressed(`"subnet": "10.1.0.0/24"`)
	old := func(version string) string { return strings.Replace(good, "1.1.0", version, 1) }
	return []badInput{
		{name: "invalid JSON", conf: `{"cniVersion": `},
		{name: "a value of the wrong type", conf: conf(`"mtu": "big"`)},
		{name: "an unknown `cniVersion`", conf: old("9.9.9")},
		{name: "no network name", conf: strings.Replace(good, `"name": "net"`, `"name": ""`, 1)},
		{name: "a network name that is not a valid file name", conf: strings.Replace(good, `"net"`, `"a/b"`, 1)},
		{name: "no container ID", env: map[string]string{"CNI_CONTAINERID": "-"}, conf: good},
		{name: "a container ID that is not a valid file name", env: map[string]string{"CNI_CONTAINERID": "a/b"}, conf: good},
		{name: "no interface name", env: map[string]string{"CNI_IFNAME": "-"}, conf: good},
		{name: "an interface name of 16 bytes", env: map[string]string{"CNI_IFNAME": "a123456789012345"}, conf: good},
		{name: "an interface name with a slash", env: map[string]string{"CNI_IFNAME": "a/b"}, conf: good},
		{name: "no `CNI_COMMAND`", env: map[string]string{"CNI_COMMAND": "-"}, conf: good},
		{name: "an unknown `CNI_COMMAND`", verb: "MOVE", conf: good},
		{name: "no `CNI_NETNS`", env: map[string]string{"CNI_NETNS": "-"}, conf: good},
		{name: "a namespace that does not exist", env: map[string]string{"CNI_NETNS": "/nowhere"}, conf: good},
		{name: "the host's own namespace", env: map[string]string{"CNI_NETNS": "host"}, conf: good},
		{name: "an unknown key in `CNI_ARGS`", env: map[string]string{"CNI_ARGS": "COLOUR=red"}, conf: good},
		{name: "`CNI_ARGS` that are not pairs", env: map[string]string{"CNI_ARGS": "red"}, conf: good},
		{name: "an unknown IPAM plugin", conf: conf(`"ipam": {"type": "nobody"}`)},
		{name: "an IPAM plugin with a path", conf: conf(`"ipam": {"type": "../host-local", "dataDir": "$DIR/ipam", "subnet": "10.1.0.0/24"}`)},
		{name: "an invalid subnet", conf: addressed(`"subnet": "10.1.0.0/40"`)},
		{name: "no subnet at all", conf: addressed(`"ranges": []`)},
		{name: "a subnet without usable addresses", conf: addressed(`"subnet": "10.1.0.0/32"`)},
		{name: "`rangeStart` after `rangeEnd`", conf: addressed(`"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.8"`)},
		{name: "`rangeStart` outside the subnet", conf: addressed(`"subnet": "10.1.0.0/24", "rangeStart": "10.2.0.9"`)},
		{name: "ranges that overlap", conf: addressed(`"ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.1.0.0/16"}]]`)},
		{name: "two families in a range set", conf: addressed(`"ranges": [[{"subnet": "10.1.0.0/24"}, {"subnet": "fd01::/64"}]]`)},
		{name: "an exhausted range", conf: addressed(`"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.1", "rangeEnd": "10.1.0.1"`)},
		{name: "a requested address outside the ranges", env: map[string]string{"CNI_ARGS": "IP=10.9.0.1"}, conf: good},
		{name: "an interface that already exists", env: map[string]string{"CNI_IFNAME": "lo"}, conf: good},
		{name: "CHECK without `prevResult`", verb: "CHECK", conf: good},
		{name: "CHECK at 0.3.1", verb: "CHECK", conf: old("0.3.1")},
		{name: "GC at 1.0.0", verb: "GC", conf: old("1.0.0")},
		{name: "STATUS at 1.0.0", verb: "STATUS", conf: old("1.0.0")},
		{name: "portmap without `prevResult`", plugin: "portmap", conf: `{"cniVersion": "1.1.0", "name": "net", "type": "portmap", "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}}`},
		{name: "static with an invalid address", plugin: "static", conf: `{"cniVersion": "1.1.0", "name": "net", "type": "x", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5"}]}}`},
		{name: "host-device without a device", plugin: "host-device", conf: `{"cniVersion": "1.1.0", "name": "net", "type": "host-device"}`},
		{name: "ptp with an unknown backend", plugin: "ptp", conf: strings.Replace(good, `"bridge": "cni0"`, `"ipMasq": true, "ipMasqBackend": "pf"`, 1)},
	}
}

// outcome returns how a plugin ends: success, or an error and its code.
func (b badInput) outcome(h *host) string {
	h.T.Helper()
	h.container("a") // a new one: the reference leaves what a failed ADD created
	h.ip("a", "link set lo up")
	dir := h.T.TempDir()
	env := map[string]string{
		"CNI_COMMAND": b.verb, "CNI_CONTAINERID": "bad", "CNI_NETNS": h.Netns["a"], "CNI_IFNAME": "eth0",
		"CNI_ARGS": "-", "CNI_PATH": h.side.pluginDir(h.T),
	}
	if b.verb == "" {
		env["CNI_COMMAND"] = "ADD"
	}
	maps.Copy(env, b.env)
	if env["CNI_NETNS"] == "host" {
		env["CNI_NETNS"] = h.Netns["host"]
	}
	list := h.env()
	for _, k := range slices.Sorted(maps.Keys(env)) {
		if env[k] != "-" {
			list = append(list, k+"="+env[k])
		}
	}
	plugin := b.plugin
	if plugin == "" {
		plugin = "bridge"
	}
	out, err := h.command(list, strings.ReplaceAll(b.conf, "$DIR", dir), filepath.Join(env["CNI_PATH"], plugin))
	if err == nil {
		return "success"
	}
	var e struct{ Code int }
	if json.Unmarshal([]byte(out), &e) != nil {
		return "fails without an error in JSON"
	}
	h.T.Logf("%v: %s: %s", h.side, b.name, strings.TrimSpace(out))
	return fmt.Sprintf("error %d", e.Code)
}

// errorCodes compares the error codes of both implementations.
func errorCodes(t *testing.T, p *page) {
	answers := map[bool][]string{}
	for _, ours := range []bool{false, true} {
		h := newSideHost(t, side{ourPlugins: ours})
		for _, b := range badInputs() {
			answers[ours] = append(answers[ours], b.outcome(h))
		}
	}
	for i, b := range badInputs() {
		referenceOut, fairleadOut := answers[false][i], answers[true][i]
		bothReject := strings.HasPrefix(referenceOut, "error") && strings.HasPrefix(fairleadOut, "error")
		if referenceOut != fairleadOut && !bothReject && b.why == "" {
			t.Errorf("%s: reference plugin: %s, our plugin: %s", b.name, referenceOut, fairleadOut)
		}
		if referenceOut == fairleadOut && b.why != "" {
			t.Errorf("%s: both: %s; remove the explanation of a difference", b.name, fairleadOut)
		}
		p.error(b, referenceOut, fairleadOut)
	}
}
