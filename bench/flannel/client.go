package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/kernel/netns"
)

// client is a connection to a lab's etcd, from one of its hosts.
type client struct {
	http *http.Client
	base string
}

func dial(nsPath string, to netip.Addr) (*client, error) {
	ns, err := netns.Open(nsPath)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	where := net.JoinHostPort(to.String(), "2379")
	var conn net.Conn
	if err := ns.Do(func() (err error) { conn, err = net.Dial("tcp", where); return err }); err != nil {
		return nil, err
	}
	one := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	return &client{&http.Client{Transport: &http.Transport{DialContext: one, MaxConnsPerHost: 1}}, "http://" + where}, nil
}

func (c *client) put(key, value string) error {
	code := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	body, err := json.Marshal(map[string]string{"key": code(key), "value": code(value)})
	if err != nil {
		return err
	}
	r, err := c.http.Post(c.base+"/v3/kv/put", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != http.StatusOK {
		return fmt.Errorf("write %s: %s: %w", key, r.Status, err)
	}
	return nil
}

// traffic returns etcd's counters: keys written, and bytes sent to clients.
func (c *client) traffic() (puts, sent float64, err error) {
	r, err := c.http.Get(c.base + "/metrics")
	if err != nil {
		return 0, 0, err
	}
	defer r.Body.Close()
	raw, err := io.ReadAll(r.Body)
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "etcd_mvcc_put_total":
			puts = v
		case "etcd_network_client_grpc_sent_bytes_total":
			sent = v
		}
	}
	return puts, sent, err
}
