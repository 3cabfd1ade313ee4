package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/kernel"
)

// A benchCase is one plugin with one configuration.
type benchCase struct {
	name, plugin, conf string
	held               int  // addresses held before
	idle               bool // no kernel work: the floor is a program's start
	floor              func(o kernel.Owner) kernel.Objects
}

const ipam = `"ipam": {"type": "host-local", "subnet": "10.77.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]}`

func cases() []benchCase {
	list := []benchCase{
		{name: "loopback", plugin: "loopback", floor: func(kernel.Owner) kernel.Objects {
			return kernel.Objects{&kernel.Up{In: kernel.Container, Link: "lo"}}
		}},
		{name: "bridge + host-local", plugin: "bridge", conf: `"bridge": "bench0", "isGateway": true, ` + ipam, floor: bridged},
		{name: "bridge + host-local + masquerade (nftables)", plugin: "bridge",
			conf: `"bridge": "bench0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "nftables", ` + ipam, floor: masqueraded},
		{name: "ptp + host-local", plugin: "ptp", conf: ipam, floor: routed},
	}
	for _, held := range []int{250, 1000} {
		list = append(list, benchCase{name: fmt.Sprintf("bridge + host-local, %d held", held), plugin: "bridge", held: held,
			conf: `"bridge": "bench0", "isGateway": true, ` + ipam, floor: bridged})
	}
	for _, held := range []int{0, 1000, 10000, 50000} {
		list = append(list, benchCase{name: fmt.Sprintf("host-local, %d held", held), plugin: "host-local", held: held, idle: true,
			conf: `"ipam": {"type": "host-local", "subnet": "10.77.0.0/16"}`})
	}
	return list
}

// bridged is the kernel's part of an attachment to a bridge, and nothing else:
// no address worked out, no record, no check of what is there already.
func bridged(o kernel.Owner) kernel.Objects {
	host := o.LinkName("veth")
	return kernel.Objects{
		&kernel.Veth{Name: host, MAC: o.MAC("h"), PeerSide: kernel.Container, PeerName: "eth0", PeerMAC: o.MAC("c"), Master: "bench0", Mark: o.Mark()},
		&kernel.Up{Link: host},
		&kernel.Addr{In: kernel.Container, Link: "eth0", Prefix: netip.MustParsePrefix("10.77.255.9/16")},
		&kernel.Up{In: kernel.Container, Link: "eth0"},
		&kernel.Route{In: kernel.Container, Link: "eth0", Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.77.0.1")},
	}
}

func masqueraded(o kernel.Owner) kernel.Objects {
	part := func(what, name, text string) *kernel.NFT {
		return &kernel.NFT{Family: "inet", Table: "floor", What: what, Name: name, Text: text}
	}
	return append(bridged(o), part("table", "", ""), part("set", "s", "ipv4_addr"),
		&kernel.Element{Family: "inet", Table: "floor", Set: "s", Type: "ipv4_addr", Key: "10.77.255.9", Mark: o.Mark()})
}

func routed(o kernel.Owner) kernel.Objects {
	host := o.LinkName("veth")
	gw, ip := netip.MustParseAddr("10.77.0.1"), netip.MustParsePrefix("10.77.255.9/16")
	one := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, 32) }
	return kernel.Objects{
		&kernel.Veth{Name: host, MAC: o.MAC("h"), PeerSide: kernel.Container, PeerName: "eth0", PeerMAC: o.MAC("c"), Mark: o.Mark()},
		&kernel.Addr{Link: host, Prefix: one(gw)}, &kernel.Up{Link: host},
		&kernel.Route{Dst: one(ip.Addr()), Link: host},
		&kernel.Addr{In: kernel.Container, Link: "eth0", Prefix: ip, NoRoute: true}, &kernel.Up{In: kernel.Container, Link: "eth0"},
		&kernel.Route{In: kernel.Container, Dst: one(gw), Link: "eth0"},
		&kernel.Route{In: kernel.Container, Dst: ip.Masked(), Via: gw, Src: ip.Addr(), Link: "eth0"},
		&kernel.Route{In: kernel.Container, Link: "eth0", Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: gw},
	}
}

// bench is the prepared host.
type bench struct {
	dir   string
	netns map[string]string // contender -> path
}

var contenders = []string{"ours", "reference", "floor"}

func prepare() (*bench, error) {
	runtime.LockOSThread()
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return nil, err
	}
	b := &bench{dir: os.Getenv(insideVariable), netns: map[string]string{}}
	if err := syscall.Mount("bench", "/run", "tmpfs", 0, ""); err != nil {
		return nil, fmt.Errorf("mount over /run: %w", err)
	}
	// As on any machine, /run is memory and /var/lib is a disk.
	lib := filepath.Join(b.dir, "lib")
	if err := os.Mkdir(lib, 0o755); err != nil {
		return nil, err
	}
	if err := syscall.Mount(lib, "/var/lib", "", syscall.MS_BIND, ""); err != nil {
		return nil, fmt.Errorf("mount over /var/lib: %w", err)
	}
	for _, argv := range [][]string{
		{"ip", "link", "set", "lo", "up"}, {"ip", "link", "add", "bench0", "type", "bridge"},
		{"ip", "netns", "add", "ours"}, {"ip", "netns", "add", "reference"}, {"ip", "netns", "add", "floor"},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	for _, c := range contenders {
		b.netns[c] = "/run/netns/" + c
	}
	return b, nil
}

// measure runs a case n times for each contender in turn, ADD then DEL.
func (b *bench) measure(c benchCase, n int) ([]row, error) {
	if err := hold(c.held); err != nil {
		return nil, err
	}
	add := row{Case: c.name, Verb: "ADD", times: map[string][]float64{}}
	del := row{Case: c.name, Verb: "DEL", times: map[string][]float64{}}
	const warmUp = 2
	for i := range n + warmUp {
		for _, who := range contenders {
			a, d, err := b.once(c, who)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", who, err)
			}
			if i >= warmUp {
				add.times[who] = append(add.times[who], a)
				del.times[who] = append(del.times[who], d)
			}
		}
	}
	add.sum()
	del.sum()
	return []row{add, del}, nil
}

func (b *bench) once(c benchCase, who string) (add, del float64, err error) {
	if who == "floor" {
		return b.floor(c)
	}
	if add, err = b.plugin(c, who, "ADD"); err != nil {
		return 0, 0, err
	}
	del, err = b.plugin(c, who, "DEL")
	return add, del, err
}

// plugin times a plugin as a process, as a runtime starts it.
func (b *bench) plugin(c benchCase, who, verb string) (ms float64, err error) {
	conf := `{"cniVersion": "1.0.0", "name": "` + who + `", "type": "` + c.plugin + `"`
	if c.conf != "" {
		conf += ", " + c.conf
	}
	path := filepath.Join(b.dir, who)
	cmd := &exec.Cmd{Path: filepath.Join(path, c.plugin), Args: []string{c.plugin}, Stdin: strings.NewReader(conf + "}")}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + who,
		"CNI_NETNS=" + b.netns[who], "CNI_IFNAME=eth0", "CNI_PATH=" + path}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err = cmd.Run()
	ms = float64(time.Since(began)) / 1e6
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", verb, err, out.String())
	}
	return ms, nil
}

// floor times the start of an empty program and the kernel's work in process.
func (b *bench) floor(c benchCase) (add, del float64, err error) {
	start, err := b.empty()
	if err != nil {
		return 0, 0, err
	}
	if c.idle {
		end, err := b.empty()
		return start, end, err
	}
	ns, err := kernel.OpenNetns(b.netns["floor"])
	if err != nil {
		return 0, 0, err
	}
	defer ns.Close()
	e, err := kernel.Open(ns, kernel.Options{})
	if err != nil {
		return 0, 0, err
	}
	defer e.Close()
	list := c.floor(kernel.Owner{Network: "floor", ContainerID: "floor", IfName: "eth0"})
	began := time.Now()
	if err := e.Apply(list); err != nil {
		return 0, 0, err
	}
	add = start + float64(time.Since(began))/1e6
	if start, err = b.empty(); err != nil {
		return 0, 0, err
	}
	began = time.Now()
	err = e.Remove(list)
	return add, start + float64(time.Since(began))/1e6, err
}

func (b *bench) empty() (ms float64, err error) {
	cmd := exec.Command(filepath.Join(b.dir, "empty"))
	cmd.Stdin = strings.NewReader("{}")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err = cmd.Run()
	return float64(time.Since(began)) / 1e6, err
}

// hold fills the directories of both with addresses of other containers.
func hold(n int) error {
	for _, who := range []string{"ours", "reference"} {
		dir := filepath.Join("/var/lib/cni/networks", who)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		a := netip.MustParseAddr("10.77.0.1")
		for i := range n {
			a = a.Next()
			if err := os.WriteFile(filepath.Join(dir, a.String()), []byte("other"+strconv.Itoa(i)+"\r\neth0"), 0o644); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "last_reserved_ip.0"), []byte(a.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
