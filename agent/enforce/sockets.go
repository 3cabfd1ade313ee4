package enforce

import (
	"errors"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/nftable"
	"github.com/fairlead/fairlead/kernel/reconcile"
)

// sockets are the connections to the kernel. All are in the network namespace of the thread that opened them.
type sockets struct {
	rules, cuts *nftable.Programmer
	conntrack   *kernel.Conntrack
	monitor     *reconcile.Monitor
}

func openSockets() (*sockets, error) {
	var s sockets
	var errs [4]error
	s.rules, errs[0] = nftable.Open()
	s.cuts, errs[1] = nftable.Open()
	s.conntrack, errs[2] = kernel.OpenConntrack()
	s.monitor, errs[3] = reconcile.NewTableMonitor()
	if err := errors.Join(errs[:]...); err != nil {
		s.close()
		return nil, err
	}
	return &s, nil
}

func (s *sockets) close() {
	s.rules.Close()
	s.cuts.Close()
	if s.conntrack != nil {
		s.conntrack.Close()
	}
	if s.monitor != nil {
		s.monitor.Close()
	}
}
