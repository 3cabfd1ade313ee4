package agent

import (
	"context"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/desired"
	"github.com/fairlead/fairlead/agent/enforce"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// RemoveObjects removes what agents have created in this host's kernel: routes, rules, tunnels, the nftables tables, and
// the namespaces of isolated networks. A namespace with containers stays, and the report has an error that names it. run
// is the directory of runtime state. With handOver, it removes the nftables tables only: flanneld uses the rest. RemoveObjects
// fails if an agent runs on this host.
func RemoveObjects(c *config.Config, run string, handOver bool) (*reconcile.Report, error) {
	unlock, err := lockHost(run)
	if err != nil {
		return nil, err
	}
	defer unlock()
	k, err := newKernelReconciler(c)
	if err != nil {
		return nil, err
	}
	defer k.close()
	if _, err := enforce.Remove(context.Background()); err != nil {
		return nil, err
	}
	if handOver {
		return k.rec.RemoveTable(), nil
	}
	return k.reconcile(&desired.State{}, true), nil
}
