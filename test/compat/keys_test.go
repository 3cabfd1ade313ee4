package compat

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// keyCase is a configuration that tests one key, run by both sides.
type keyCase struct {
	plugin, key string
	with        string // the value or the circumstances, if a key has several cases
	plugins     string // the list's "plugins"
	capArgs     string
	cniArgs     string
	version     string // "" means the newest
	prepare     func(*host)
	before      func(*recorder) // called when the containers exist
	second      bool            // adds a second container, b
	meanwhile   func(*recorder)
	probes      []probe
	alone       bool   // use the reference runtime for both sides, because it has its own /var/lib and /sys
	needs       string // a feature of kerneltest; "": every kernel can run it
}

func (k keyCase) name() string {
	if k.with == "" {
		return k.plugin + "/" + k.key
	}
	return k.plugin + "/" + k.key + " " + k.with
}

func (k keyCase) record(t testing.TB, s side) *recorder {
	r := k.recordOnce(t, s)
	for range 3 {
		if !strings.Contains(r.firstErr, notSettled) {
			break
		}
		r = k.recordOnce(t, s)
	}
	return r
}

// notSettled is in an error of the reference plugins. They wait 5 seconds for IPv6 addresses, which is not always enough on
// a busy machine.
const notSettled = "still has tentative addresses after"

func (k keyCase) recordOnce(t testing.TB, s side) *recorder {
	h := newSideHost(t, s)
	r := &recorder{host: h, keep: k.plugins + k.capArgs + k.cniArgs + " 02:00:00:00:00:05"}
	if k.prepare != nil {
		k.prepare(h)
	}
	version := k.version
	if version == "" {
		version = cni.Current
	}
	h.write(fmt.Sprintf(`{"cniVersion": %q, "name": "net", "plugins": [%s]}`, version, k.plugins))
	names := []string{"a"}
	if k.second {
		names = append(names, "b")
	}
	do := func(verb string) (ok bool) {
		ok = true
		for _, n := range names {
			ok = r.do(call{verb: verb, netns: n, capArgs: k.capArgs, cniArgs: k.cniArgs}) && ok
		}
		return ok
	}
	for _, n := range names {
		h.container(n)
		h.ip(n, "link set lo up")
	}
	if k.before != nil {
		k.before(r)
	}
	if !k.add(r, do) {
		return r
	}
	r.recordState("added", append(names, "host")...)
	if k.probes != nil {
		h.serve("a", "tcp", ":80")
		h.serve("a", "udp", ":53")
	}
	if h.requests != nil {
		r.note("requests to the DHCP server", h.requests())
	}
	do("check")
	if k.meanwhile != nil {
		k.meanwhile(r)
	}
	for _, p := range k.probes {
		r.probe(p)
	}
	do("del")
	r.recordState("deleted", append(names, "host")...)
	return r
}

// add attaches the containers and reports whether that succeeded. After a failure it runs DEL and records the remaining
// state. If our plugin failed, its ADD must leave nothing.
func (k keyCase) add(r *recorder, do func(verb string) bool) bool {
	r.T.Helper()
	empty := r.snapshot("a")
	r.note(beforeStep+"a", empty)
	if do("add") {
		return true
	}
	if now := r.snapshot("a"); r.side.ourPlugins && !k.second && !k.chained() && now != empty {
		r.T.Errorf("our failed ADD left something:\n%s", kerneltest.Diff(empty, now))
	}
	do("del")
	r.note(afterFailedADD+"container", changes(empty, r.snapshot("a")))
	r.note(afterFailedADD+"addresses allocated", r.files("ipam", func(s string) string { return s }))
	return false
}

func allKeys() []keyCase {
	var all []keyCase
	for _, list := range [][]keyCase{bridgeKeys(), ptpKeys(), macvlanKeys(), ipvlanKeys(), vlanKeys(), tapKeys(), dummyKeys(), hostDeviceKeys(), portmapKeys(), hostLocalKeys(), staticKeys(), bandwidthKeys(), firewallKeys(), sbrKeys(), tuningKeys(), vrfKeys(), dhcpKeys()} {
		all = append(all, list...)
	}
	return all
}

// chained reports whether the list has several plugins. If a later one fails, the objects of the first stay until DEL.
func (k keyCase) chained() bool {
	var list []json.RawMessage
	return json.Unmarshal([]byte("["+k.plugins+"]"), &list) == nil && len(list) > 1
}
