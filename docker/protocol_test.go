package docker_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestProtocol calls each method, and compares the responses byte by byte.
func TestProtocol(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for _, c := range []struct{ method, request, want string }{
		{"Plugin.Activate", "", `{"Implements":["NetworkDriver","IpamDriver"]}`},
		{"NetworkDriver.GetCapabilities", "{}", `{"ConnectivityScope":"global","Scope":"local"}`},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n1","Options":{"com.docker.network.enable_ipv6":false,"com.docker.network.generic":{"mtu":"1400"},"of.tomorrow":[1]},` + pool4 + `}`, `{}`},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n1","Options":{},` + pool4 + `}`, `{}`}, // asked again
		{"NetworkDriver.AllocateNetwork", `{"NetworkID":"n1"}`, `{"Options":{}}`},
		{"NetworkDriver.FreeNetwork", `{"NetworkID":"n1"}`, `{}`},
		{"NetworkDriver.DiscoverNew", `{"DiscoveryType":1,"DiscoveryData":{"Address":"192.0.2.1","Self":true}}`, `{}`},
		{"NetworkDriver.DiscoverDelete", `{"DiscoveryType":1}`, `{}`},
		{"NetworkDriver.CreateEndpoint", `{` + ids("n1", "e1") + `,"Interface":{"Address":"10.20.0.5/24","AddressIPv6":"","MacAddress":"02:42:0a:14:00:05"}}`, `{}`},
		{"NetworkDriver.EndpointOperInfo", `{` + ids("n1", "e1") + `}`,
			`{"Value":{"com.docker.network.endpoint.macaddress":"02:42:0a:14:00:05","fairlead.network":"docker-n1","fairlead.state":"staged","fairlead.type":"bridge"}}`},
		{"NetworkDriver.Join", `{` + ids("n1", "e1") + `,"SandboxKey":"/nowhere","Options":{"com.docker.network.portmap":[]}}`,
			`{"InterfaceName":{"SrcName":"SRC","DstPrefix":"eth"},"Gateway":"10.20.0.1","DisableGatewayService":false}`},
		{"NetworkDriver.ProgramExternalConnectivity", `{` + ids("n1", "e1") + `,"Options":{}}`, `{}`},
		{"NetworkDriver.RevokeExternalConnectivity", `{` + ids("n1", "e1") + `}`, `{}`},
		{"NetworkDriver.Leave", `{` + ids("n1", "e1") + `}`, `{}`},
		{"NetworkDriver.DeleteEndpoint", `{` + ids("n1", "e1") + `}`, `{}`},
		{"NetworkDriver.RevokeExternalConnectivity", `{` + ids("n1", "e1") + `}`, `{}`}, // after the host was started again
		{"NetworkDriver.Leave", `{` + ids("n1", "e1") + `}`, `{}`},
		{"NetworkDriver.DeleteEndpoint", `{` + ids("n1", "e1") + `}`, `{}`},
		{"NetworkDriver.DeleteNetwork", `{"NetworkID":"n1"}`, `{}`},
		{"NetworkDriver.DeleteNetwork", `{"NetworkID":"n1"}`, `{}`},
		{"IpamDriver.GetCapabilities", "", `{"RequiresMACAddress":false,"RequiresRequestReplay":false}`},
		{"IpamDriver.GetDefaultAddressSpaces", "{}", `{"GlobalDefaultAddressSpace":"fairlead","LocalDefaultAddressSpace":"fairlead"}`},
		{"IpamDriver.RequestPool", `{"AddressSpace":"fairlead","Pool":"10.30.0.0/29"}`, `{"PoolID":"10.30.0.0-29","Pool":"10.30.0.0/29","Data":{}}`},
		{"IpamDriver.RequestPool", `{"AddressSpace":"fairlead","Pool":"10.30.0.0/29"}`, `{"PoolID":"10.30.0.0-29","Pool":"10.30.0.0/29","Data":{}}`}, // asked again
		{"IpamDriver.RequestAddress", `{"PoolID":"10.30.0.0-29","Address":"10.30.0.6","Options":{"RequestAddressType":"com.docker.network.gateway"}}`, `{"Address":"10.30.0.6/29","Data":{}}`},
		{"IpamDriver.RequestAddress", `{"PoolID":"10.30.0.0-29"}`, `{"Address":"10.30.0.1/29","Data":{}}`},
		{"IpamDriver.RequestAddress", `{"PoolID":"10.30.0.0-29","Address":"10.30.0.3","Options":null}`, `{"Address":"10.30.0.3/29","Data":{}}`},
		{"IpamDriver.ReleaseAddress", `{"PoolID":"10.30.0.0-29","Address":"10.30.0.3"}`, `{}`},
		{"IpamDriver.ReleaseAddress", `{"PoolID":"10.30.0.0-29","Address":"10.30.0.3"}`, `{}`},
		{"IpamDriver.ReleasePool", `{"PoolID":"10.30.0.0-29"}`, `{}`},
		{"IpamDriver.ReleasePool", `{"PoolID":"10.30.0.0-29"}`, `{}`},
		{"IpamDriver.ReleaseAddress", `{"PoolID":"10.30.0.0-29","Address":"10.30.0.3"}`, `{}`},
		{"IpamDriver.RequestPool", `{"Pool":"fd30::/64","V6":true}`, `{"PoolID":"fd30..-64","Pool":"fd30::/64","Data":{}}`},
		{"IpamDriver.RequestAddress", `{"PoolID":"fd30..-64"}`, `{"Address":"fd30::2/64","Data":{}}`},
	} {
		status, got := h.raw(c.method, c.request)
		if list, err := h.records.List(""); err == nil && len(list) == 1 {
			got = strings.ReplaceAll(got, list[0].IfName, "SRC")
		}
		if status != http.StatusOK || got != c.want {
			t.Errorf("%s %s: %d %s, want %s", c.method, c.request, status, got, c.want)
		}
	}
}

// TestValidOptions checks that a network is created with each option.
func TestValidOptions(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	pool6 := `"IPv6Data":[{"Pool":"fd20::/64","Gateway":"fd20::1/64"}]`
	for _, c := range []struct{ options, pools string }{
		{`"bridge":"br9","masquerade":"false","isolate-ports":"true","anti-spoof":"true","hairpin":"true","vlan":"5","mtu":"0"`, pool4},
		{`"anti-spoof":"true"`, pool6},
		{`"anti-spoof":"true"`, pool4 + "," + pool6},
		{`"isolate-ports":"true"`, `"IPv4Data":[]`},
		{`"type":"macvlan"`, pool4},
		{`"type":"macvlan","parent":"lo","mode":"passthru"`, pool6},
		{`"type":"ipvlan","parent":"lo","mode":"l3s"`, pool4},
		{`"type":"vlan","parent":"lo","vlan":"5"`, pool4},
		{`"type":"ovs","bridge":"o0","vlan":"5","vxlan":"7","datapath":"netdev","socket":"/run/x.sock","mtu":"1400"`, pool4},
		{`"type":"cluster","masquerade":"true","mtu":"1400"`, `"IPv4Data":[]`},
		{`"type":"cluster","network":"blue"`, `"IPv4Data":[]`},
	} {
		request := `{"NetworkID":"n1","Options":{"com.docker.network.generic":{` + c.options + `}},` + c.pools + `}`
		if _, got := h.raw("NetworkDriver.CreateNetwork", request); got != "{}" {
			t.Errorf("%s: %s", request, got)
		}
		h.call("NetworkDriver.DeleteNetwork", `{"NetworkID":"n1"}`)
	}
}

// TestMalformed checks that each error names what is wrong and what is allowed.
func TestMalformed(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.network("n1", "", pool4)
	h.network("mac", `"type":"ipvlan","parent":"lo"`, pool4)
	h.call("IpamDriver.RequestPool", `{"Pool":"10.30.0.0/24","SubPool":"10.30.0.128/25"}`)
	options := func(o string) string {
		return `{"NetworkID":"n2","Options":{"com.docker.network.generic":{` + o + `}}}`
	}
	for _, c := range []struct{ method, request, want string }{
		{"NetworkDriver.Nothing", "{}", "there is no method"},
		{"", "{}", "there is no method"},
		{"NetworkDriver.CreateNetwork", "", "NetworkID"},
		{"NetworkDriver.CreateNetwork", "null", "NetworkID"},
		{"NetworkDriver.CreateNetwork", "{", "not a valid message"},
		{"NetworkDriver.CreateNetwork", "[]", "not a valid message"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":7}`, "not a valid message"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"../x"}`, "want 1 to 128 letters and digits"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n2","IPv4Data":[{"Pool":"x"}]}`, `pool "x": want a subnet`},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n2","IPv4Data":[{"Pool":"10.0.0.0/8","Gateway":"10.0.0.1"}]}`, `gateway "10.0.0.1"`},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n2","Options":{"com.docker.network.internal":"x"}}`, "want true or false"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n2","Options":{"com.docker.network.generic":[]}}`, "want an object of strings"},
		{"NetworkDriver.CreateNetwork", options(`"mtu":7`), `option "mtu": want a text`},
		{"NetworkDriver.CreateNetwork", options(`"mtu":"big"`), "option mtu=big: want a number"},
		{"NetworkDriver.CreateNetwork", options(`"mtu":"-5"`), "option mtu=-5: want 0"},
		{"NetworkDriver.CreateNetwork", options(`"vlan":"9999"`), "option vlan=9999: want"},
		{"NetworkDriver.CreateNetwork", options(`"type":"macvlan","macvlan_mode":"routed"`), "option mode=routed: want"},
		{"NetworkDriver.CreateNetwork", options(`"type":"vlan","vlan":"7"`), "option parent: "},
		{"NetworkDriver.CreateNetwork", options(`"type":"ovs"`), "option bridge: missing"},
		{"NetworkDriver.CreateNetwork", options(`"masquerade":"perhaps"`), "want true or false"},
		{"NetworkDriver.CreateNetwork", options(`"parent":"eth0"`),
			`option "parent": a network of type bridge has no such option: want one of anti-spoof, bridge, hairpin, isolate-ports, masquerade, mtu, name, type, vlan`},
		{"NetworkDriver.CreateNetwork", options(`"mtu":"1400","com.docker.network.driver.mtu":"1400"`), "set twice"},
		{"NetworkDriver.CreateNetwork", options(`"type":"overlay"`), "option type=overlay: want one of bridge, macvlan, ipvlan, vlan, ovs, cluster"},
		{"NetworkDriver.CreateNetwork", options(`"type":""`), "option type=: want one of"},
		{"NetworkDriver.CreateNetwork", options(`"type":"macvlan","parent":""`), "want a value"},
		{"NetworkDriver.CreateNetwork", options(`"name":"a b"`), "option name=a b"},
		{"NetworkDriver.CreateNetwork", options(`"name":"docker-n1"`), "Docker's network n1 has this name already"},
		{"NetworkDriver.CreateNetwork", options(`"bridge":"lo"`), "it is not a bridge"},
		{"NetworkDriver.CreateNetwork", options(`"bridge":"a/b"`), "option bridge=a/b"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n2","Options":{"com.docker.network.generic":{"type":"cluster"}},` + pool4 + `}`, "--ipam-driver null"},
		{"NetworkDriver.CreateEndpoint", `{` + ids("n9", "e1") + `}`, "network n9 is not a network of this driver"},
		{"NetworkDriver.CreateEndpoint", `{"NetworkID":"n1"}`, "EndpointID"},
		{"NetworkDriver.CreateEndpoint", `{` + ids("n1", "e1") + `,"Interface":{"Address":"10.20.0.5"}}`, "want an address with its prefix length"},
		{"NetworkDriver.CreateEndpoint", `{` + ids("n1", "e1") + `,"Interface":{"Address":"10.20.0.5/24","MacAddress":"x"}}`, `args.cni.mac`},
		{"NetworkDriver.CreateEndpoint", `{` + ids("mac", "e1") + `,"Interface":{"Address":"10.20.0.5/24","MacAddress":"02:00:00:00:00:01"}}`, "--mac-address"},
		{"NetworkDriver.EndpointOperInfo", `{` + ids("n1", "e1") + `}`, "network n1 has no endpoint e1"},
		{"NetworkDriver.Join", `{` + ids("n1", "e1") + `,"SandboxKey":"/x"}`, "network n1 has no endpoint e1"},
		{"NetworkDriver.ProgramExternalConnectivity", `{` + ids("n1", "e1") + `}`, "network n1 has no endpoint e1"},
		{"NetworkDriver.Leave", `{` + ids("n1", "") + `}`, "EndpointID"},
		{"NetworkDriver.DeleteEndpoint", `{` + ids("", "e1") + `}`, "NetworkID"},
		{"NetworkDriver.DeleteNetwork", `{}`, "NetworkID"},
		{"IpamDriver.RequestPool", `{"Pool":"10.0.0.1/8"}`, "want a subnet"},
		{"IpamDriver.RequestPool", `{"Pool":"10.0.0.0/32"}`, "--subnet 10.0.0.0/32: the network 10.0.0.0/32 is too small"},
		{"IpamDriver.RequestPool", `{"Pool":"10.40.0.0/24","SubPool":"10.40.0.0/32"}`, "--ip-range 10.40.0.0/32 has only the network"},
		{"IpamDriver.RequestPool", `{"Pool":"10.40.0.0/24","SubPool":"10.40.0.255/32"}`, "--ip-range 10.40.0.255/32 has only the network"},
		{"IpamDriver.RequestPool", `{"SubPool":"10.0.0.0/24"}`, "needs a --subnet"},
		{"IpamDriver.RequestPool", `{"Pool":"10.40.0.0/24","SubPool":"10.50.0.0/25"}`, "is not within the subnet"},
		{"IpamDriver.RequestPool", `{"Pool":"10.40.0.0/24","SubPool":"x"}`, "--ip-range x"},
		{"IpamDriver.RequestPool", `{"Pool":"10.30.0.0/16"}`, "overlaps with 10.30.0.0/24"},
		{"IpamDriver.RequestPool", `{"Options":{"x":"y"}}`, "--ipam-opt x: this IPAM driver has no such option: want network"},
		{"IpamDriver.RequestPool", `{"Options":{"network":"blue"}}`, "want a --subnet"},
		{"IpamDriver.RequestPool", `{"Pool":"10.9.0.0/24","SubPool":"10.9.0.0/25","Options":{"network":"blue"}}`, "no --ip-range"},
		{"IpamDriver.RequestAddress", `{"PoolID":"../x"}`, "want the ID of a pool"},
		{"IpamDriver.RequestAddress", `{"PoolID":"10.9.0.0-24"}`, "there is no pool 10.9.0.0-24"},
		{"IpamDriver.RequestAddress", `{"PoolID":"10.30.0.0-24_10.30.0.128-25","Address":"10.31.0.1"}`, "want an address of the subnet 10.30.0.0/24"},
		{"IpamDriver.ReleaseAddress", `{"PoolID":"10.30.0.0-24_10.30.0.128-25","Address":"x"}`, `address "x"`},
	} {
		h.fails(c.method, c.request, c.want)
	}
	for _, body := range []string{"{", "[]"} {
		if status, _ := h.raw("NetworkDriver.Leave", body); status != http.StatusBadRequest {
			t.Errorf("%s: status %d", body, status)
		}
	}
}

// TestSamePoolTwice requests a pool twice before a network is created: for two networks at once, and again because dockerd
// was killed.
func TestSamePoolTwice(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	const pool, id = `{"Pool":"10.20.0.0/24"}`, `{"PoolID":"10.20.0.0-24"}`
	gateway := `{"PoolID":"10.20.0.0-24","Address":"10.20.0.1","Options":{"RequestAddressType":"com.docker.network.gateway"}}`
	h.call("IpamDriver.RequestPool", pool)
	h.call("IpamDriver.RequestPool", pool)
	h.call("IpamDriver.RequestAddress", gateway)
	h.call("IpamDriver.RequestAddress", gateway)
	h.network("n1", "", pool4)
	h.fails("NetworkDriver.CreateNetwork", `{"NetworkID":"n2",`+pool4+`}`, "subnet 10.20.0.0/24 overlaps with the subnet of Docker's network n1")
	h.network("n1", "", pool4) // its reply was lost
	h.call("IpamDriver.RequestAddress", id)
	h.call("IpamDriver.ReleasePool", id) // of n2
	if a := h.call("IpamDriver.RequestAddress", id)["Address"]; a != "10.20.0.3/24" {
		t.Errorf("the second address of n1 is %v", a)
	}
	h.fails("IpamDriver.RequestPool", pool, "overlaps")
	h.call("NetworkDriver.DeleteNetwork", `{"NetworkID":"n1"}`)
	h.call("IpamDriver.ReleasePool", id)
	h.fails("IpamDriver.RequestAddress", id, "there is no pool")

	h.call("IpamDriver.RequestPool", pool)
	h.start() // and dockerd starts again, too
	h.call("IpamDriver.RequestPool", pool)
	h.call("IpamDriver.RequestAddress", gateway)
	h.network("n3", "", pool4)
}

// TestInvalidGateway requests gateways through which the kernel accepts no route.
func TestInvalidGateway(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	id := h.call("IpamDriver.RequestPool", `{"Pool":"10.30.0.0/24"}`)["PoolID"].(string)
	for _, a := range []string{"10.30.0.0", "10.30.0.255", "10.31.0.1"} {
		request := `{"PoolID":"` + id + `","Address":"` + a + `","Options":{"RequestAddressType":"com.docker.network.gateway"}}`
		h.fails("IpamDriver.RequestAddress", request, a)
	}
}

// TestAddressesRunOut requests addresses from a part of a pool until none is left, and one outside it.
func TestAddressesRunOut(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	id := h.call("IpamDriver.RequestPool", `{"Pool":"10.30.0.0/24","SubPool":"10.30.0.252/30"}`)["PoolID"].(string)
	request := func(address string) string { return `{"PoolID":"` + id + `","Address":"` + address + `"}` }
	got := map[any]bool{}
	for range 3 { // 10.30.0.255 is the broadcast address
		got[h.call("IpamDriver.RequestAddress", request(""))["Address"]] = true
	}
	if !got["10.30.0.252/24"] || !got["10.30.0.253/24"] || !got["10.30.0.254/24"] {
		t.Errorf("got %v", got)
	}
	h.fails("IpamDriver.RequestAddress", request(""), "no IP addresses available")
	h.fails("IpamDriver.RequestAddress", request("10.30.0.253"), "10.30.0.253")
	h.call("IpamDriver.RequestAddress", request("10.30.0.7"))
	h.call("IpamDriver.ReleaseAddress", request("10.30.0.253"))
	if a := h.call("IpamDriver.RequestAddress", request(""))["Address"]; a != "10.30.0.253/24" {
		t.Errorf("after a release: %v", a)
	}
}

// TestAuxiliaryAddresses checks that auxiliary addresses are not assigned, also after a reboot, when they are not allocated any
// more and dockerd does not request them again.
func TestAuxiliaryAddresses(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	id := h.call("IpamDriver.RequestPool", `{"Pool":"10.30.0.0/24","SubPool":"10.30.0.248/29"}`)["PoolID"].(string)
	request := func(address string) string { return `{"PoolID":"` + id + `","Address":"` + address + `"}` }
	create := func(addresses string) string {
		return `{"NetworkID":"n1","IPv4Data":[{"Pool":"10.30.0.0/24","AuxAddresses":{` + addresses + `}}]}`
	}
	h.call("IpamDriver.RequestAddress", request("10.30.0.250"))
	h.fails("NetworkDriver.CreateNetwork", create(`"a":"x"`), `auxiliary address a="x" of pool 10.30.0.0/24`)
	h.call("NetworkDriver.CreateNetwork", create(`"a":"10.30.0.250/24","first":"10.30.0.248/24","next":"10.30.0.251/24","last":"10.30.0.254/24","outside":"10.30.0.9/24"`))
	h.call("IpamDriver.ReleaseAddress", request("10.30.0.250")) // a reboot frees it, too
	h.start()
	got := map[any]bool{}
	for range 3 {
		got[h.call("IpamDriver.RequestAddress", request(""))["Address"]] = true
	}
	if !got["10.30.0.249/24"] || !got["10.30.0.252/24"] || !got["10.30.0.253/24"] {
		t.Errorf("got %v", got)
	}
	h.fails("IpamDriver.RequestAddress", request(""), "no IP addresses available")
	for _, a := range []string{"10.30.0.250", "10.30.0.254", "10.30.0.9"} {
		h.fails("IpamDriver.RequestAddress", request(a), a)
	}
}

// TestSubnetsWithoutARequest checks that each network gets a subnet of its own, also after the driver started again.
func TestSubnetsWithoutARequest(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	var got []string
	for _, v6 := range []string{"false", "false", "true", "true"} {
		r := h.call("IpamDriver.RequestPool", `{"V6":`+v6+`}`)
		h.call("IpamDriver.RequestAddress", `{"PoolID":"`+r["PoolID"].(string)+`"}`)
		got = append(got, r["Pool"].(string))
		h.start()
	}
	if want := "10.208.0.0/24 10.208.1.0/24 fd66:6c00::/64 fd66:6c00:0:1::/64"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
