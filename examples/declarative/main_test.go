package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

func TestAddCheckDel(t *testing.T) {
	t.Parallel()
	kerneltest.Host(t)
	dir := t.TempDir()
	bin := filepath.Join(dir, "declarative")
	kerneltest.Run(t, "go", "build", "-o", bin, ".")
	netns := kerneltest.Netns(t)
	kerneltest.Run(t, "ip", "link", "add", "host0", "type", "veth", "peer", "name", "eth0", "netns", netns)
	kerneltest.Run(t, "ip", "addr", "add", "10.1.0.1/24", "dev", "host0")
	kerneltest.Run(t, "ip", "link", "set", "host0", "up")
	kerneltest.In(t, netns, "ip", "link", "set", "eth0", "up")

	call := func(verb, behind string) string {
		cmd := exec.Command(bin)
		cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID=c", "CNI_NETNS="+netns,
			"CNI_IFNAME=eth0", "CNI_PATH="+dir, "FAIRLEAD_RUN="+dir)
		cmd.Stdin = strings.NewReader(`{"cniVersion":"1.0.0","name":"net","behind":` + behind + `,
			"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.2/24"}]}}`)
		out, _ := cmd.Output()
		return string(out)
	}
	const good = `["10.9.0.0/24","10.8.0.0/24"]`
	if out := call("ADD", good); !strings.Contains(out, `"ips":[{"address":"10.1.0.2/24"}]`) {
		t.Fatal(out)
	}
	if s := kerneltest.Run(t, "ip", "route"); !strings.Contains(s, "10.9.0.0/24 via 10.1.0.2 dev host0 proto 102") {
		t.Errorf("routes:\n%s", s)
	}
	if s := kerneltest.In(t, netns, "sysctl", "-n", "net.ipv4.ip_forward"); s != "1\n" {
		t.Errorf("ip_forward is %s", s)
	}
	if out := call("CHECK", good); out != "" {
		t.Error(out)
	}
	kerneltest.Run(t, "ip", "route", "del", "10.8.0.0/24")
	if out := call("CHECK", good); !strings.Contains(out, "host: ip route add 10.8.0.0/24 via 10.1.0.2 dev host0: is missing") {
		t.Error(out)
	}
	for range 2 {
		if out := call("DEL", "[]"); out != "" {
			t.Error(out)
		}
	}
	if s := kerneltest.Run(t, "ip", "route"); strings.Contains(s, "10.9.0.0") {
		t.Errorf("left:\n%s", s)
	}
	for behind, want := range map[string]string{
		`[]`:              `behind = []: want at least one subnet`,
		`["10.9.0.1/24"]`: `behind[0] = \"10.9.0.1/24\": want a subnet, like 10.9.0.0/24`,
		`["10.9.0.0"]`:    `behind[0] = \"10.9.0.0\": want an address with its prefix length`,
		`["fd00::/64"]`:   `behind[0] = \"fd00::/64\": the container has no address of this family`,
	} {
		if out := call("ADD", behind); !strings.Contains(out, want) {
			t.Errorf("%s: %s", behind, out)
		}
	}
}
