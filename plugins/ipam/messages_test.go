package ipam

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/skel"
)

// TestMessages checks the error messages for invalid configurations, and that nothing is left behind.
func TestMessages(t *testing.T) {
	t.Parallel()
	const invalid, environment = cni.CodeInvalidNetworkConfig, cni.CodeInvalidEnvironment
	const in24 = `"subnet": "10.1.2.0/24"`
	for _, c := range []struct {
		ipam, more, args string
		code             uint
		want             string
	}{
		{`"subnet": "10.1.2.0"`, "", "", invalid,
			`ipam.subnet = "10.1.2.0": want an address with its prefix length, like 10.1.0.0/16 or fd00::/64`},
		{`"subnet": "10.1.2.0/33"`, "", "", invalid,
			`ipam.subnet = "10.1.2.0/33": want an address with its prefix length, like 10.1.0.0/16 or fd00::/64`},
		{`"subnet": 5`, "", "", invalid,
			`ipam.subnet = 5: want an address with its prefix length, like 10.1.0.0/16 or fd00::/64`},
		{`"subnet": "10.1.2.1/24"`, "", "", invalid,
			`ipam.subnet = "10.1.2.1/24": host bits are set: the network of this prefix length is 10.1.2.0/24`},
		{`"subnet": "10.1.2.0/31"`, "", "", invalid,
			`ipam.subnet = "10.1.2.0/31": the network 10.1.2.0/31 is too small to allocate from: want a prefix length of at most 30`},
		{`"subnet": "fd00::/127"`, "", "", invalid,
			`ipam.subnet = "fd00::/127": the network fd00::/127 is too small to allocate from: want a prefix length of at most 126`},
		{`"subnet": "::ffff:10.1.2.0/120"`, "", "", invalid,
			`ipam.subnet = "::ffff:10.1.2.0/120": an IPv4 network in IPv6 notation: write it in IPv4 notation, like "10.1.0.0/16"`},
		{``, "", "", invalid,
			`ipam.ranges: no IP ranges specified: want ranges, like [[{"subnet": "10.1.0.0/16"}]], or subnet`},
		{`"rangeStart": "10.1.2.4"`, "", "", invalid,
			`ipam.subnet: missing: want a network like "10.1.0.0/16" or "fd00:1::/64"`},
		{`"ranges": [[{` + in24 + `}, {}]]`, "", "", invalid,
			`ipam.ranges[0][1].subnet: missing: want a network like "10.1.0.0/16" or "fd00:1::/64"`},
		{`"ranges": [[]]`, "", "", invalid,
			`ipam.ranges[0] = []: empty range set: want at least one range, like {"subnet": "10.1.0.0/16"}`},
		{`"ranges": [{` + in24 + `}]`, "", "", invalid,
			`ipam.ranges[0] = {"subnet":"10.1.2.0/24"}: want a list, each element an object`},
		{in24 + `, "gateway": "fe80::1"`, "", "", invalid,
			`ipam.gateway = "fe80::1": want an address of a host, of the same family as the subnet 10.1.2.0/24`},
		{`"ranges": [[{` + in24 + `}, {"subnet": "10.2.0.0/16", "rangeStart": "10.2.0.9", "rangeEnd": "10.2.0.5"}]]`, "", "", invalid,
			`ipam.ranges[0][1].rangeStart = "10.2.0.9": the range starts after its end 10.2.0.5: want a start at or before it`},
		{in24 + `, "rangeEnd": "10.1.3.9"`, "", "", invalid,
			`ipam.rangeEnd = "10.1.3.9": 10.1.3.9 is not in the subnet 10.1.2.0/24: want an address from 10.1.2.1 to 10.1.2.254`},
		{`"ranges": [[{` + in24 + `}, {"subnet": "fd00::/64"}]]`, "", "", invalid,
			`ipam.ranges[0][1].subnet = "fd00::/64": mixed address families: the set's first range is in 10.1.2.0/24; put the other family into a separate range set`},
		{`"ranges": [[{` + in24 + `}], [{"subnet": "10.1.0.0/16"}]]`, "", "", invalid,
			`ipam.ranges[1][0] = {"subnet":"10.1.0.0/16"}: the range 10.1.0.1-10.1.255.254 overlaps with 10.1.2.1-10.1.2.254 (range set 0, range 0): want every address in one range only`},
		{in24, `"runtimeConfig": {"ipRanges": [[{"subnet": "10.1.2.0/25"}]]}, `, "", invalid,
			`ipam.subnet = "10.1.2.0/24": the range 10.1.2.1-10.1.2.254 overlaps with 10.1.2.1-10.1.2.126 (range set 0, range 0): want every address in one range only`},
		{in24, `"runtimeConfig": {"ips": "10.1.2.4"}, `, "", invalid,
			`runtimeConfig.ips = "10.1.2.4": want a list, each element a string`},
		{in24, `"args": {"cni": {"ips": ["10.1.2.4", "x"]}}, `, "", invalid,
			`args.cni.ips[1] = "x": want an address, like 10.1.0.9 or fd00::9`},
		{in24, "", "IP=x", environment, `CNI_ARGS: IP=x: want an address, like 10.1.0.9 or fd00::9`},
		{in24, "", "FOO=1", environment, `CNI_ARGS: unknown args ["FOO=1"]: this plugin accepts IP; with IgnoreUnknown=1 it ignores others`},
		{in24 + `, "routes": [{"gw": "10.1.2.1"}]`, "", "", invalid,
			`ipam.routes[0].dst: missing: want a destination, like "0.0.0.0/0" or "fd00:2::/64"`},
		{in24 + `, "routes": [{"dst": "10.0.0.0/8", "mtu": "big"}]`, "", "", invalid,
			`ipam.routes[0].mtu = "big": want a whole number, without quotes`},
		{in24 + `, "resolvConf": "/nowhere/resolv.conf"`, "", "", invalid,
			`ipam.resolvConf = "/nowhere/resolv.conf": want a file in the format of resolv.conf: open /nowhere/resolv.conf: no such file or directory`},
		{in24, "", "IP=10.9.2.1", cni.CodeGeneric,
			`allocate for network net: requested IP 10.9.2.1 is in no range set: want an address in 10.1.2.1-10.1.2.254`},
		{in24, "", "IP=10.1.2.1", cni.CodeGeneric,
			`allocate for network net: requested IP 10.1.2.1 is the gateway of the subnet 10.1.2.0/24: request another address`},
		{in24, "", "IP=10.1.2.4,10.1.2.5", cni.CodeGeneric,
			`allocate for network net: requested IPs 10.1.2.4 and 10.1.2.5 are both in range set 0 (10.1.2.1-10.1.2.254): an attachment gets one address from each range set`},
	} {
		t.Run(c.ipam+c.more+c.args, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if c.ipam != "" {
				c.ipam = ", " + c.ipam
			}
			conf := `{"cniVersion": "1.1.0", "name": "net", "type": "bridge", ` + c.more + `"ipam": {"type": "host-local", "dataDir": "` + dir + `"` + c.ipam + `}}`
			wantMessage(t, HostLocal(), call{verb: "ADD", id: "one", args: c.args, conf: conf}, c.code, c.want)
			noAddresses(t, dir+"/net")
		})
	}
}

func wantMessage(t *testing.T, p skel.Plugin, c call, code uint, want string) {
	t.Helper()
	exit, out := ours(p)(t, c)
	if exit == 0 {
		t.Fatalf("%s succeeds: %s", c.verb, out)
	}
	if gotCode, got := message(t, out); got != want || gotCode != code {
		t.Errorf("%s returned\n%d %s\nwant\n%d %s", c.verb, gotCode, got, code, want)
	}
}

func noAddresses(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "lock" {
			t.Errorf("%s still exists", filepath.Join(dir, e.Name()))
		}
	}
}

// TestAllocatedMessages checks the messages for addresses that are already allocated.
func TestAllocatedMessages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conf := `{"cniVersion": "1.1.0", "name": "net", "ipam": {"type": "host-local", "dataDir": "` + dir + `", "subnet": "10.1.2.0/30"}}`
	run := ours(HostLocal())
	mustRun(t, run, call{verb: "STATUS", conf: conf})
	mustRun(t, run, call{verb: "ADD", id: "one", conf: conf})
	wantMessage(t, HostLocal(), call{verb: "ADD", id: "one", conf: conf}, cni.CodeGeneric,
		"allocate for network net: 10.1.2.2 has been allocated to one eth0, duplicate allocation is not allowed: run DEL for the attachment first")
	wantMessage(t, HostLocal(), call{verb: "ADD", id: "two", conf: conf, args: "IP=10.1.2.2"}, cni.CodeGeneric,
		"allocate for network net: range set 0: requested IP 10.1.2.2 is already taken by container one eth0")
	wantMessage(t, HostLocal(), call{verb: "ADD", id: "two", conf: conf}, cni.CodeGeneric,
		"allocate for network net: range set 0: no IP addresses available in range set 10.1.2.1-10.1.2.2: all are allocated")
	wantMessage(t, HostLocal(), call{verb: "STATUS", conf: conf}, cni.CodePluginNotAvailable,
		"network net has no address to allocate: range set 0: no IP addresses available in range set 10.1.2.1-10.1.2.2: all are allocated")
	wantMessage(t, HostLocal(), call{verb: "CHECK", id: "two", conf: conf}, cni.CodeGeneric,
		"network net has no address for container two eth0, but ADD allocated one: run DEL and ADD again")
	if err := os.WriteFile(dir+"/net/10.1.2.2", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantMessage(t, HostLocal(), call{verb: "ADD", id: "two", conf: conf, args: "IP=10.1.2.2"}, cni.CodeGeneric,
		"allocate for network net: range set 0: requested IP 10.1.2.2 is already taken: "+dir+"/net/10.1.2.2 names no owner")
}

func TestOldVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"0.2.0": `cniVersion "0.2.0" does not support more than 1 address per family: want 0.3.0 or newer`,
		"0.1.0": `cniVersion "0.1.0" does not support more than 1 address per family: want 0.3.0 or newer`,
	} {
		dir := t.TempDir()
		two := `{"cniVersion": "` + version + `", "name": "net", "ipam": {"type": "host-local", "dataDir": "` + dir + `",
			"ranges": [[{"subnet": "10.1.0.0/16"}], [{"subnet": "10.2.0.0/16"}]]}}`
		wantMessage(t, HostLocal(), call{verb: "ADD", id: "one", conf: two}, cni.CodeInvalidNetworkConfig, want)
		noAddresses(t, dir+"/net")
		two = `{"cniVersion": "` + version + `", "name": "net", "ipam": {"type": "static",
			"addresses": [{"address": "10.1.0.2/16"}, {"address": "10.2.0.2/16"}]}}`
		wantMessage(t, Static(), call{verb: "ADD", id: "one", conf: two}, cni.CodeInvalidNetworkConfig, want)
	}
}

func TestStaticMessages(t *testing.T) {
	t.Parallel()
	const prev = `"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.4/24"}]}, `
	for _, c := range []struct {
		verb, ipam, more, args string
		code                   uint
		want                   string
	}{
		{"ADD", `"addresses": [{"address": "10.1.2.3"}]`, "", "", cni.CodeInvalidNetworkConfig,
			`ipam.addresses[0].address = "10.1.2.3": want an address with its prefix length, like 10.1.0.0/16 or fd00::/64`},
		{"ADD", `"addresses": [{"gateway": "10.1.2.3"}]`, "", "", cni.CodeInvalidNetworkConfig,
			`ipam.addresses[0].address: missing: want an address with its prefix length, like 10.1.0.9/16 or fd00::9/64`},
		{"ADD", `"addresses": [{"address": "10.1.2.3/24", "gateway": "fd00::1"}]`, "", "", cni.CodeInvalidNetworkConfig,
			`ipam.addresses[0].gateway = "fd00::1": want an address of the same family as 10.1.2.3/24`},
		{"ADD", `"addresses": {}`, "", "", cni.CodeInvalidNetworkConfig,
			`ipam.addresses = {}: want a list, each element an object`},
		{"ADD", `"x": 1`, `"runtimeConfig": {"ips": ["10.6.0.1"]}, `, "", cni.CodeInvalidNetworkConfig,
			`runtimeConfig.ips[0] = "10.6.0.1": want an address with its prefix length, like 10.1.0.9/16 or fd00::9/64`},
		{"ADD", `"x": 1`, "", "IP=10.6.0.1", cni.CodeInvalidEnvironment,
			`CNI_ARGS: IP=10.6.0.1: want an address with its prefix length, like 10.1.0.9/16 or fd00::9/64`},
		{"ADD", `"x": 1`, "", "IP=10.6.0.1/8;GATEWAY=x", cni.CodeInvalidEnvironment,
			`CNI_ARGS: GATEWAY=x: want an address, like 10.1.0.1 or fd00::1`},
		{"ADD", `"x": 1`, "", "FOO=1", cni.CodeInvalidEnvironment,
			`CNI_ARGS: unknown args ["FOO=1"]: this plugin accepts IP, GATEWAY; with IgnoreUnknown=1 it ignores others`},
		{"CHECK", `"addresses": []`, "", "", cni.CodeInvalidNetworkConfig,
			`prevResult: missing: CHECK needs the result of ADD`},
		{"CHECK", `"addresses": [{"address": "10.1.2.3/24"}, {"address": "10.1.2.4/24", "gateway": "10.1.2.1"}]`, prev, "", cni.CodeGeneric,
			"address 10.1.2.3/24 is not in prevResult: want the result of ADD for this configuration\naddress 10.1.2.4/24 with gateway 10.1.2.1 is not in prevResult: want the result of ADD for this configuration"},
	} {
		t.Run(c.verb+c.ipam+c.more+c.args, func(t *testing.T) {
			t.Parallel()
			conf := `{"cniVersion": "1.1.0", "name": "net", ` + c.more + `"ipam": {"type": "static", ` + c.ipam + `}}`
			wantMessage(t, Static(), call{verb: c.verb, id: "one", args: c.args, conf: conf}, c.code, c.want)
		})
	}
	good := `{"cniVersion": "1.1.0", "name": "net", ` + prev + `"ipam": {"type": "static", "addresses": [{"address": "10.1.2.4/24"}]}}`
	for _, verb := range []string{"CHECK", "DEL", "STATUS", "GC"} {
		mustRun(t, ours(Static()), call{verb: verb, id: "one", conf: good})
	}
}

// TestDelAndGCWithoutState checks that DEL and GC succeed without any state, and create none.
func TestDelAndGCWithoutState(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	conf := strings.ReplaceAll(`{"cniVersion": "1.1.0", "name": "net", "ipam": {"type": "host-local", "dataDir": "DIR"}}`, "DIR", dir)
	for _, verb := range []string{"DEL", "GC", "DEL"} {
		mustRun(t, ours(HostLocal()), call{verb: verb, id: "one", conf: conf})
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory was created: %v", err)
	}
}

// TestDelOfLongName checks that DEL and GC succeed for a network whose name no directory can have: ADD fails, so that there is
// nothing to release. Otherwise, its pods could not be deleted.
func TestDelOfLongName(t *testing.T) {
	t.Parallel()
	dir, name := t.TempDir(), strings.Repeat("x", 256)
	conf := `{"cniVersion": "1.1.0", "name": "` + name + `", "ipam": {"type": "host-local", "subnet": "10.1.2.0/24", "dataDir": "` + dir + `"}}`
	wantMessage(t, HostLocal(), call{verb: "ADD", id: "one", conf: conf}, 100,
		"open the lock of the network's addresses: open "+filepath.Join(dir, name, "lock")+": file name too long")
	for _, verb := range []string{"DEL", "GC"} {
		mustRun(t, ours(HostLocal()), call{verb: verb, id: "one", conf: conf})
	}
}

// TestDelOfInvalidConf checks that DEL releases addresses although keys that only ADD needs have become invalid.
func TestDelOfInvalidConf(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		`"args": "x"`, `"args": {"cni": []}`, `"args": {"cni": {"ips": "10.1.2.9"}}`, `"runtimeConfig": 5`, `"runtimeConfig": {"ips": "10.1.2.9"}`, `"runtimeConfig": {"ipRanges": {}}`,
	} {
		dir := t.TempDir()
		conf := `{"cniVersion": "1.1.0", "name": "net", "ipam": {"type": "host-local", "subnet": "10.1.2.0/24", "dataDir": "` + dir + `"}}`
		mustRun(t, ours(HostLocal()), call{verb: "ADD", id: "one", conf: conf})
		file := filepath.Join(dir, "net", "10.1.2.2")
		if _, err := os.Stat(file); err != nil {
			t.Fatal(err)
		}
		mustRun(t, ours(HostLocal()), call{verb: "DEL", id: "one", conf: strings.Replace(conf, "{", "{"+bad+", ", 1)})
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("%s: the address is not released: %v", bad, err)
		}
	}
}
