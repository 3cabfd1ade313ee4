package ovs

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugin/plugintest"
)

func TestGolden(t *testing.T) {
	t.Parallel()
	plugintest.Golden(t, Plugin())
}

func FuzzConfig(f *testing.F) { plugintest.Fuzz(f, Plugin()) }

// FuzzTrunks checks that ids reads what trunks writes, each ID once and in order.
func FuzzTrunks(f *testing.F) {
	f.Add(5, 10, 20)
	f.Add(0, 0, 4094)
	f.Fuzz(func(t *testing.T, id, first, last int) {
		list := []vlanRange{{ID: &id}, {MinID: &first, MaxID: &last}}
		if list[0].problem() != "" || list[1].problem() != "" {
			return
		}
		got := ids(trunks(list))
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("%v is not sorted, or has one twice", got)
		}
		for v := range maxVLAN + 1 {
			if want := v == id || first <= v && v <= last; slices.Contains(got, v) != want {
				t.Fatalf("%d of %s: %v, want %v", v, trunks(list), !want, want)
			}
		}
	})
}

func TestDatabase(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		defaultSocket:                  "unix:" + defaultSocket,
		"unix:/run/db.sock":            "unix:/run/db.sock",
		"tcp:[::1]:6640":               "tcp:[::1]:6640",
		"":                             "",
		"db.sock":                      "",
		"tcp:localhost:6640":           "",
		"ssl:192.0.2.1:6640":           "",
		"/" + strings.Repeat("x", 107): "",
	} {
		if got, problem := database(in); got != want || (problem == "") != (want != "") {
			t.Errorf("%q: %q, %q, want %q", in, got, problem, want)
		}
	}
}

// TestInvalidConfig checks the messages for invalid configurations.
func TestInvalidConfig(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{
		``:                                 `bridge: missing: want the name of an Open vSwitch bridge`,
		`"bridge": "a-bridge-with-a-name"`: `interface name is too long`,
		`"bridge": "b", "vlan": 4095`:      `vlan = 4095: want a VLAN ID from 0 (none) to 4094`,
		`"bridge": "b", "trunk": [{}]`:     `trunk[0] = {}: want id, or minID and maxID`,
		`"bridge": "b", "trunk": [{"id": 1}, {"minID": 9, "maxID": 5}]`:          `trunk[1] = {"minID":9,"maxID":5}: minID is greater than maxID`,
		`"bridge": "b", "trunk": [{"minID": 9}]`:                                 `want both minID and maxID, or id`,
		`"bridge": "b", "trunk": [{"id": -1}]`:                                   `want VLAN IDs from 0 (untagged) to 4094`,
		`"bridge": "b", "mtu": 65536`:                                            `mtu = 65536: want 0`,
		`"bridge": "b", "ofport_request": 65280`:                                 `ofport_request = 65280: want 0`,
		`"bridge": "b", "datapathType": "dpdk"`:                                  `datapathType = "dpdk": want "system"`,
		`"bridge": "b", "socket_file": "db.sock"`:                                `socket_file = "db.sock": want the path of a socket`,
		`"bridge": "b", "deviceID": "0000:00:01.0"`:                              `deviceID = "0000:00:01.0": a host device cannot be a switch port`,
		`"bridge": "b", "mac": "02"`:                                             `"02" is not a hardware address`,
		`"bridge": "b", "vxlanID": 16777216`:                                     `vxlanID = 16777216: want a VXLAN network identifier`,
		`"bridge": "b", "vxlanID": 1, "vxlanPort": 65536`:                        `vxlanPort = 65536: want 0 (4789)`,
		`"bridge": "b", "vxlanID": 1, "vxlanLocal": "here"`:                      `vxlanLocal = "here": want an address of this host`,
		`"bridge": "b", "vxlanID": 1, "vxlanRemote": ["192.0.2.1", "flow"]`:      `vxlanRemote[1] = "flow": want the address of another host`,
		`"bridge": "b", "vxlanID": 1, "vxlanRemote": ["192.0.2.1", "192.0.2.1"]`: `vxlanRemote[1] = "192.0.2.1": is listed twice`,
		`"bridge": "b", "vxlanRemote": ["192.0.2.1"]`:                            `vxlanRemote = ["192.0.2.1"]: needs vxlanID`,
		`"bridge": "b", "vxlanLocal": "192.0.2.1"`:                               `needs vxlanID`,
		`"bridge": "b", "vxlanPort": 1`:                                          `needs vxlanID`,
	} {
		conf := `{"cniVersion": "1.0.0", "name": "n", "type": "ovs"`
		if keys != "" {
			conf += ", " + keys
		}
		err := Plugin().Validate([]byte(conf+"}"), plugin.Env{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", keys, err, want)
		}
	}
}
