package plugin

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/internal/plainfile"
	"github.com/fairlead/fairlead/kernel"
)

// facts answers for the kernel as it will be once every pending object of the session exists. If the answer cannot be
// predicted with certainty, it applies the pending objects first.
type facts struct{ *session }

func (facts) HostID() string { return kernel.HostID() }

func (facts) Firewalld() bool { return kernel.Firewalld() }

func (facts) ReadFile(path string) ([]byte, error)  { return plainfile.Read(path) }
func (facts) Readlink(path string) (string, error)  { return os.Readlink(path) }
func (facts) Glob(pattern string) ([]string, error) { return filepath.Glob(pattern) }

func (f facts) ForwardDropChains(adminChain string) ([]kernel.ForwardDropChain, error) {
	return f.engine.ForwardDropChains(adminChain)
}

// Link caches its answer until the session changes the link.
func (f facts) Link(s kernel.Side, name string) (*kernel.LinkInfo, error) {
	if l := f.plannedLink(s, name); l != nil {
		return l, nil
	}
	if f.mayChange(s, name) {
		if err := f.flush(); err != nil {
			return nil, err
		}
	}
	key := link{s, name}
	if l := f.links[key]; l != nil {
		return l, nil
	}
	l, err := f.engine.Link(s, name)
	if err == nil {
		f.links[key] = l
	}
	return l, err
}

// plannedLink returns a link that the session will create and that no pending object changes. It gets a negative index
// until it exists; then it is updated with the kernel's values.
func (f facts) plannedLink(s kernel.Side, name string) (l *kernel.LinkInfo) {
	for i, o := range f.pending {
		before := l
		if l = kernel.PlanLink(o.Object, s, name, l); l != nil && l != before {
			l.Index, l.Peer = l.Index-2*i, l.Peer-2*i
		}
	}
	if l == nil {
		return nil
	}
	known := f.planned[link{s, name}]
	if known == nil {
		f.planned[link{s, name}] = l
		return l
	}
	known.Up = l.Up
	return known
}

// OtherEnd applies pending objects first, because a planned link has no peer yet.
func (f facts) OtherEnd(in *kernel.LinkInfo) (*kernel.LinkInfo, error) {
	if in.Index < 0 {
		if err := f.flush(); err != nil {
			return nil, err
		}
	}
	return f.engine.OtherEnd(in)
}

// mayChange reports whether a pending object creates or changes the link, or might.
func (f facts) mayChange(s kernel.Side, name string) bool {
	exists := f.links[link{s, name}] != nil
	for _, o := range f.pending {
		if kernel.MayChangeLink(o.Object, s, name, exists) {
			return true
		}
	}
	return false
}

// applyPending applies all pending objects, before a question that concerns all of them.
func (f facts) applyPending() error {
	if len(f.pending) == 0 {
		return nil
	}
	return f.flush()
}

func (f facts) Links(s kernel.Side) ([]*kernel.LinkInfo, error) {
	if err := f.applyPending(); err != nil {
		return nil, err
	}
	return f.engine.Links(s)
}

func (f facts) Addrs(s kernel.Side, l *kernel.LinkInfo) ([]kernel.AddrInfo, error) {
	if err := f.applyPending(); err != nil {
		return nil, err
	}
	return f.engine.AddrInfos(s, l.Index)
}

func (f facts) Routes(s kernel.Side, family byte, table int) ([]kernel.RouteInfo, error) {
	if err := f.applyPending(); err != nil {
		return nil, err
	}
	return f.engine.Routes(s, family, table)
}

func (f facts) Rules(s kernel.Side, family byte) ([]kernel.RuleInfo, error) {
	if err := f.applyPending(); err != nil {
		return nil, err
	}
	return f.engine.Rules(s, family)
}

func (f facts) DefaultLink(s kernel.Side) (string, error) {
	if err := f.applyPending(); err != nil {
		return "", err
	}
	return f.engine.DefaultLink(s)
}

// Sysctl applies pending objects first if one of them may set the key or create the link that the key belongs to.
func (f facts) Sysctl(s kernel.Side, key string) (string, error) {
	for _, o := range f.pending {
		if strings.Contains(key, "/conf/") || strings.Contains(key, "/neigh/") || kernel.SetsSysctl(o.Object, s, key) {
			if err := f.flush(); err != nil {
				return "", err
			}
			break
		}
	}
	return f.engine.Sysctl(s, key)
}

// LinkTo predicts the link where a pending host route (/32 or /128) decides. For a shorter prefix, the kernel's answer
// counts if it agrees already; otherwise the pending objects are applied first.
func (f facts) LinkTo(a netip.Addr) (string, error) {
	by, bits := "", -1
	for _, o := range f.pending {
		d, ok := kernel.DestinationOf(o.Object)
		if ok && d.Side == kernel.Host && d.Table == 0 && d.Prefix.IsValid() && d.Prefix.Contains(a) && d.Prefix.Bits() > bits {
			by, bits = d.Link, d.Prefix.Bits()
		}
	}
	if bits == a.BitLen() {
		return by, nil
	}
	if bits >= 0 {
		if now, err := f.engine.LinkTo(a); err == nil && now == by {
			return by, nil
		}
		if err := f.flush(); err != nil {
			return "", err
		}
	}
	return f.engine.LinkTo(a)
}

func (f facts) Uplinks() ([]string, error) { return f.engine.Uplinks() }
