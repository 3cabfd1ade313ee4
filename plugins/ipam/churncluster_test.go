package ipam

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/address/local"
	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store/storetest"
	"github.com/fairlead/fairlead/internal/etcdtest"
)

const churnNodes = 10

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// churn configures TestChurnCluster, from the environment or with small defaults.
type churn struct {
	during time.Duration
	pace   int  // ADDs per second on all nodes
	calm   bool // kill nothing and restart no agent
}

func churnOf(t *testing.T) churn {
	t.Helper()
	c := churn{during: 8 * time.Second, pace: 200}
	if v := os.Getenv("FAIRLEAD_CHURN"); v != "" {
		var err error
		c.during, err = time.ParseDuration(v)
		must(t, err)
		c.pace, c.calm = 1000, os.Getenv("FAIRLEAD_CHURN_CALM") != ""
	}
	if v := os.Getenv("FAIRLEAD_CHURN_PACE"); v != "" {
		var err error
		c.pace, err = strconv.Atoi(v)
		must(t, err)
	}
	return c
}

// Containers come and go on ten nodes, one process per node, half of them with addresses from blocks and half with
// cluster-wide ones. Meanwhile every agent is restarted, one node's process is killed, and one of three etcd members is
// killed and comes back. No address belongs to two containers at a time, and none is lost.
func TestChurnCluster(t *testing.T) {
	how := churnOf(t)
	c := etcdtest.Start(t, etcdtest.Options{Members: 3})
	s := c.Store(t)
	storetest.Put(t, s, cluster.NetworkKey("default"), `{"subnets": [{"cidr": "10.244.0.0/16"}]}`)
	var nodes []*churnNode
	for i := range churnNodes {
		n := newChurnNode(t, fmt.Sprint(churnNodeEnv, "=n", i), churnStoreEnv+"="+strings.Join(c.Endpoints(), ","),
			churnForEnv+"="+how.during.String(), fmt.Sprint(churnRateEnv, "=", how.pace/churnNodes), fmt.Sprint(churnCalmEnv, "=", how.calm))
		n.env = append(n.env, local.LibVariable+"="+n.lib, local.RunVariable+"="+n.run)
		n.start()
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		n.begin()
	}
	if !how.calm {
		disturb(c, nodes[0], how.during)
	}
	for i, n := range nodes {
		if err := n.wait(); err != nil {
			t.Errorf("node %d: %v", i, err)
		}
	}
	reportChurn(t, nodes, how.during)
	reportCost(t, c, nodes)
	left, _, err := s.List(storetest.Context(t), cluster.AddressesPrefix)
	must(t, err)
	if len(left) > 0 {
		t.Errorf("%d addresses are lost: the store has %s of the last, that nobody holds", len(left), left[0].Value)
		logLife(t, nodes, string(left[0].Value))
	}
}

// disturb kills an etcd member and a node's process, and restarts both.
func disturb(c *etcdtest.Cluster, n *churnNode, during time.Duration) {
	time.Sleep(during / 3)
	c.Members[2].Kill()
	n.kill()
	n.start()
	n.begin()
	time.Sleep(during / 3)
	c.Members[2].Restart()
}

// logLife prints what happened to the container of an address, and the restarts of its node's agent.
func logLife(t *testing.T, nodes []*churnNode, address string) {
	t.Helper()
	var a cluster.Address
	must(t, json.Unmarshal([]byte(address), &a))
	for i, n := range nodes {
		if a.Node != fmt.Sprint("n", i) {
			continue
		}
		log, err := os.ReadFile(filepath.Join(n.lib, "log"))
		must(t, err)
		for line := range strings.Lines(string(log)) {
			if f := strings.Fields(line); len(f) > 1 && (f[1] == a.Container || f[0] == "agent") {
				t.Log(strings.TrimSpace(line))
			}
		}
	}
}
