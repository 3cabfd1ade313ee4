package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/agent/admin"
	"github.com/fairlead/fairlead/agent/clustermap"
	"github.com/fairlead/fairlead/agent/store"
)

func (a *app) mapCommand() *cobra.Command {
	f := &agentFlags{}
	var file string
	c := &cobra.Command{
		Use: "map", Short: "show the cluster as tables or as a picture", GroupID: "cluster",
		Long: "Map shows the hosts, networks and containers of the cluster, and how each pair of hosts is\n" +
			"connected. It prints tables, or with --svg it draws a picture. If the store is Kubernetes, the\n" +
			"map has no containers: their number is -, and their list in JSON null.",
		Example: "  fairlead map\n  fairlead map --svg cluster.svg\n  fairlead map --json | jq '.tunnels[] | select(.state != \"connected\")'",
		Args:    want(0, 0),
	}
	f.add(c)
	c.Flags().StringVar(&file, "svg", "", "Draw a picture into this file. - is standard output.")
	return a.withStore(f, readsStore, c, func(ctx context.Context, s store.Store, _ []string) error {
		snap, _, err := admin.Snapshot(ctx, s)
		if err != nil {
			return err
		}
		m := clustermap.Of(snap)
		switch {
		case file == "-":
			return m.SVG(a.stdout)
		case file != "":
			return a.draw(m, file)
		case a.structured():
			return a.printData(m)
		}
		return a.printMap(m)
	})
}

func (a *app) draw(m *clustermap.Map, file string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := m.SVG(out); err != nil {
		out.Close()
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return a.printChanged("drew", file)
}

func (a *app) printMap(m *clustermap.Map) error {
	if len(m.Nodes) == 0 {
		_, err := fmt.Fprintln(a.stdout, noNodes)
		return err
	}
	t := table{{"NODE", "STATE", "ADDRESSES", "BLOCKS", "CONTAINERS"}}
	for _, n := range m.Nodes {
		containers := "-"
		if n.Containers != nil {
			containers = fmt.Sprint(len(n.Containers))
		}
		t = append(t, []string{n.Name, n.State, join(n.Addresses), join(n.Blocks), containers})
	}
	if err := t.print(a.stdout); err != nil {
		return err
	}
	t = table{{"CONTAINER", "NODE", "NETWORK", "INTERFACE", "ADDRESSES"}}
	for _, n := range m.Nodes {
		for _, c := range n.Containers {
			t = append(t, []string{c.Name, n.Name, c.Network, c.IfName, join(c.IPs)})
		}
	}
	fmt.Fprintln(a.stdout)
	if err := t.print(a.stdout); err != nil {
		return err
	}
	t = table{{"PAIRS", "CONNECTED BY"}}
	for _, by := range sortedKeys(m.Pairs) {
		t = append(t, []string{fmt.Sprint(m.Pairs[by]), by})
	}
	fmt.Fprintln(a.stdout)
	return t.print(a.stdout)
}
