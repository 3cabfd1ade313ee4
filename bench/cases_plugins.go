package main

// pluginCases returns a case for each plugin, measured as a process that a runtime waits for.
func pluginCases() []benchCase {
	up0 := []string{"link add up0 type veth peer name up1", "link set up0 up", "link set up1 up"}
	on := func(typ string) string {
		return `{"type": "` + typ + `", "master": "up0", "mode": "` + map[string]string{"macvlan": "bridge", "ipvlan": "l2"}[typ] + `", ` + ipamOn("77") + `}`
	}
	static := `"ipam": {"type": "static", "addresses": [{"address": "10.77.0.5/16"}]}`
	first := []benchCase{
		{only: "loopback", list: conflist("p", `{"type": "loopback"}`), floor: "loopback", ifname: "lo"},
		{only: "bridge", list: conflist("p", bridgePlugin("")), floor: "bridge:bench0", setup: bridgeUp()},
		{only: "ptp", list: conflist("p", ptpPlugin), floor: "ptp"},
		{only: "macvlan", list: conflist("p", on("macvlan")), floor: "macvlan:up0", setup: up0},
		{only: "ipvlan", needs: "ipvlan", list: conflist("p", on("ipvlan")), floor: "ipvlan:up0", setup: up0},
		{only: "vlan", needs: "vlan", list: conflist("p", `{"type": "vlan", "master": "up0", "vlanId": 5, `+static+`}`), floor: "vlan:up0", setup: up0},
		{only: "tap", list: conflist("p", `{"type": "tap", `+static+`}`), floor: "tap"},
		{only: "dummy", needs: "dummy", list: conflist("p", `{"type": "dummy", `+static+`}`), floor: "dummy"},
		{only: "host-device", list: conflist("p", `{"type": "host-device", "device": "up0", `+static+`}`), floor: "device:up0", setup: up0},
		{only: "host-local", list: conflist("p", `{"type": "host-local", `+ipamOn("77")+`}`)},
		{only: "static", list: conflist("p", `{"type": "static", `+static+`}`)},
	}
	for _, p := range []struct{ name, conf, word string }{
		{"portmap", portmap, "port"}, {"bandwidth", bandwidth, "bandwidth"}, {"firewall", firewall, ""}, {"tuning", tuning, "sysctl"},
		{"sbr", `{"type": "sbr"}`, "sbr"}, {"vrf", `{"type": "vrf", "vrfname": "blue"}`, "vrf"},
	} {
		first = append(first, benchCase{only: p.name, chained: true, list: conflist("p", bridgePlugin(""), p.conf),
			floor: "bridge:bench0 |" + p.word, setup: bridgeUp(), ports: true})
	}
	for i := range first {
		switch first[i].only {
		case "sbr":
			first[i].verbs = []string{"ADD", "DEL"} // the reference plugin's CHECK fails after its own ADD
		case "vrf":
			first[i].needs, first[i].verbs = "vrf", []string{"ADD", "DEL"} // the reference bridge's CHECK does not find the moved routes either
		}
		first[i].group, first[i].name = groupPlugins, first[i].only
	}
	return first
}
