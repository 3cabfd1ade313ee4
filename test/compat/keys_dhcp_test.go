package compat

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/dhcptest"
	"github.com/fairlead/fairlead/kernel/kerneltest"
)

// dhcpKeys returns bridges that get addresses from dnsmasq through each side's daemon.
func dhcpKeys() []keyCase {
	with := func(keys string) string {
		return `{"type": "bridge", "bridge": "cni0", "ipam": {"type": "dhcp", ` + keys + `"daemonSocketPath": "$DIR/dhcp.sock"}}`
	}
	const name = "IgnoreUnknown=1;K8S_POD_NAME=pod"
	classless := "--dhcp-option=121,10.9.0.0/16,10.0.0.7,0.0.0.0/0,10.0.0.1"
	list := []keyCase{
		{key: "daemonSocketPath", plugins: with("")},
		{key: "daemonSocketPath", with: "no daemon answers", plugins: strings.Replace(with(""), "dhcp.sock", "no.sock", 1)},
		{key: "priority", plugins: with(`"priority": 7, `)},
		{key: "request", with: "names and numbers", plugins: with(`"request": [{"option": "26"}, {"option": "subnet-mask"}], `)},
		{key: "request", with: "name servers", plugins: with(`"request": [{"option": "6"}, {"option": "15"}], `)},
		{key: "request", with: "an unknown name", plugins: with(`"request": [{"option": "nosuch"}], `)},
		{key: "request.skipDefault", plugins: with(`"request": [{"skipDefault": true, "option": "routers"}], `)},
		{key: "request.skipDefault", with: "and nothing else", plugins: with(`"request": [{"skipDefault": true}], `)},
		{key: "provide", plugins: with(`"provide": [{"option": "host-name", "value": "web"}, {"option": "60", "value": "class"}, {"option": "dhcp-client-identifier", "value": "Aid"}], `)},
		{key: "provide.fromArg", plugins: with(`"provide": [{"option": "host-name", "value": "web", "fromArg": "K8S_POD_NAME"}], `), cniArgs: name},
		{key: "provide.fromArg", with: "missing", plugins: with(`"provide": [{"option": "host-name", "value": "web", "fromArg": "OTHER"}, {"option": "60", "fromArg": "OTHER"}], `), cniArgs: name},
		{key: "routes", plugins: with(`"routes": [{"dst": "10.7.0.0/16", "gw": "10.0.0.9"}], `)},
	}
	for i := range list {
		list[i].prepare = dhcp()
	}
	return of("dhcp", append(list,
		keyCase{key: "request", with: "classless routes", plugins: with(`"request": [{"option": "121"}], `), prepare: dhcp(classless)},
		keyCase{key: "request", with: "static routes", plugins: with(`"request": [{"option": "33"}], `), prepare: dhcp("--dhcp-option=33,10.8.0.1,10.0.0.8")}))
}

// dhcp creates a network whose server has one free address, and starts the side's daemon.
func dhcp(options ...string) func(*host) {
	return func(h *host) {
		n := dhcptest.New(h.T, "cni0", "10.0.0.1/24")
		server := n.Dnsmasq(append([]string{"--log-dhcp", "--dhcp-range=10.0.0.50,10.0.0.50,255.255.255.0,120", "--dhcp-option=6,10.0.0.53", "--dhcp-option=15,example.org"}, options...)...)
		h.requests = func() string { return serverLog(server.Log()) }
		h.daemon()
	}
}

// daemon starts the side's DHCP daemon.
func (h *host) daemon() {
	h.T.Helper()
	socket := filepath.Join(h.Dir, "dhcp.sock")
	cmd := exec.Command(filepath.Join(h.path(), "dhcp"), "daemon", "-socketpath", socket, "-timeout", "1s", "-resendtimeout=10s", "-pidfile", filepath.Join(h.Dir, "pid"))
	cmd.Env = append(os.Environ(), h.env()...)
	log, err := os.Create(filepath.Join(h.Dir, "daemon.log"))
	if err != nil {
		h.T.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
	kerneltest.Eventually(h.T, func() error {
		err := kerneltest.Listens(socket)
		if err != nil {
			text, _ := os.ReadFile(log.Name())
			err = fmt.Errorf("%v: the daemon does not listen: %w: %s", h.side, err, text)
		}
		return err
	})
}

// serverLog returns the clients' requests from the server's log, each line once.
func serverLog(log string) string {
	var out []string
	for _, m := range regexp.MustCompile(`(?m)(requested options|vendor class|client provides name|user class): .*$`).FindAllString(log, -1) {
		if !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
