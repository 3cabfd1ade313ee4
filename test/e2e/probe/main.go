// Probe is the only program in the image of the end-to-end tests' containers. The tests also run it outside of
// containers. As a plugin of a list, under the name e2e-record, it records the runtimes' calls.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	if filepath.Base(os.Args[0]) == "e2e-record" {
		exit(record())
	}
	if len(os.Args) < 2 {
		exit(fmt.Errorf("usage: probe serve ADDR | query NETWORK ADDR [LOCAL-ADDR] | repeat NETWORK ADDR [TIMES] | flood ADDR | stream ADDR [INTERVAL] | drops | links | ready ADDR|yes|no | sleep"))
	}
	args := append(os.Args[2:], "", "")
	switch os.Args[1] {
	case "serve":
		exit(serve(args[0]))
	case "query":
		exit(query(args[0], args[1], args[2]))
	case "repeat":
		exit(repeat(args[0], args[1], args[2]))
	case "ready":
		exit(ready(args[0]))
	case "flood":
		exit(flood(args[0]))
	case "stream":
		exit(stream(args[0], args[1]))
	case "drops":
		exit(drops())
	case "links":
		exit(links())
	case "sleep":
		sleep()
	}
	exit(fmt.Errorf("probe: unknown command %q", os.Args[1]))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// sleep waits for SIGTERM or SIGINT. Process 1 of a container survives signals that it does not handle.
func sleep() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	os.Exit(0)
}

// query sends one request to a server and prints the answer: the server's name, and the address that the request came
// from.
func query(network, addr, local string) error {
	d := net.Dialer{Timeout: 2 * time.Second}
	if local != "" {
		from, err := net.ResolveUDPAddr(network, local)
		if err != nil {
			return err
		}
		d.LocalAddr = from
	}
	answer, err := request(d, network, addr, time.Second)
	fmt.Print(answer)
	return err
}

// request sends one request to a server and returns its answer.
func request(d net.Dialer, network, addr string, timeout time.Duration) (string, error) {
	c, err := d.Dial(network, addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(timeout))
	if _, err := c.Write([]byte("who\n")); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

// Link is a network interface as seen in the container.
type Link struct {
	Name, MAC string
	MTU       int
	Addresses []string
}

func links() error {
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	var out []Link
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return err
		}
		l := Link{Name: i.Name, MAC: i.HardwareAddr.String(), MTU: i.MTU}
		for _, a := range addrs {
			if ip := a.(*net.IPNet); ip.IP.IsGlobalUnicast() {
				l.Addresses = append(l.Addresses, ip.IP.String())
			}
		}
		out = append(out, l)
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}
