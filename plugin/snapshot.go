package plugin

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
)

// snapshot answers a plugin's questions from memory, so that planning makes no system call. A question without an answer
// ends the plugin's function. Then settle finds the answer and calls the function again.
type snapshot struct {
	answers map[question]answer
}

// question is a method of Facts and its arguments.
type question struct {
	method string
	side   kernel.Side
	name   string // of a link, sysctl, file or chain
	family byte
	table  int
	addr   netip.Addr
	link   *kernel.LinkInfo
}

type answer struct {
	value any
	err   error
}

// unanswered is the panic that ends a plugin's function.
type unanswered struct {
	question
	find func(Facts) (any, error)
}

// ask returns the answer to a question, which find gets from the real facts.
func ask[T any](s *snapshot, q question, find func(Facts) (T, error)) (T, error) {
	a, ok := s.answers[q]
	if !ok {
		panic(unanswered{q, func(f Facts) (any, error) { return find(f) }})
	}
	v, _ := a.value.(T)
	return v, a.err
}

// certain is ask for a question that always has an answer.
func certain[T any](s *snapshot, q question, find func(Facts) T) T {
	v, _ := ask(s, q, func(f Facts) (T, error) { return find(f), nil })
	return v
}

func (s *snapshot) Link(side kernel.Side, name string) (*kernel.LinkInfo, error) {
	return ask(s, question{method: "Link", side: side, name: name}, func(f Facts) (*kernel.LinkInfo, error) { return f.Link(side, name) })
}

func (s *snapshot) Links(side kernel.Side) ([]*kernel.LinkInfo, error) {
	return ask(s, question{method: "Links", side: side}, func(f Facts) ([]*kernel.LinkInfo, error) { return f.Links(side) })
}

func (s *snapshot) OtherEnd(in *kernel.LinkInfo) (*kernel.LinkInfo, error) {
	return ask(s, question{method: "OtherEnd", link: in}, func(f Facts) (*kernel.LinkInfo, error) { return f.OtherEnd(in) })
}

func (s *snapshot) Sysctl(side kernel.Side, key string) (string, error) {
	return ask(s, question{method: "Sysctl", side: side, name: key}, func(f Facts) (string, error) { return f.Sysctl(side, key) })
}

func (s *snapshot) Addrs(side kernel.Side, l *kernel.LinkInfo) ([]kernel.AddrInfo, error) {
	return ask(s, question{method: "Addrs", side: side, link: l}, func(f Facts) ([]kernel.AddrInfo, error) { return f.Addrs(side, l) })
}

func (s *snapshot) Routes(side kernel.Side, family byte, table int) ([]kernel.RouteInfo, error) {
	return ask(s, question{method: "Routes", side: side, family: family, table: table}, func(f Facts) ([]kernel.RouteInfo, error) {
		return f.Routes(side, family, table)
	})
}

func (s *snapshot) Rules(side kernel.Side, family byte) ([]kernel.RuleInfo, error) {
	return ask(s, question{method: "Rules", side: side, family: family}, func(f Facts) ([]kernel.RuleInfo, error) { return f.Rules(side, family) })
}

func (s *snapshot) LinkTo(a netip.Addr) (string, error) {
	return ask(s, question{method: "LinkTo", addr: a}, func(f Facts) (string, error) { return f.LinkTo(a) })
}

func (s *snapshot) DefaultLink(side kernel.Side) (string, error) {
	return ask(s, question{method: "DefaultLink", side: side}, func(f Facts) (string, error) { return f.DefaultLink(side) })
}

func (s *snapshot) Uplinks() ([]string, error) {
	return ask(s, question{method: "Uplinks"}, Facts.Uplinks)
}

func (s *snapshot) ForwardDropChains(adminChain string) ([]kernel.ForwardDropChain, error) {
	return ask(s, question{method: "ForwardDropChains", name: adminChain}, func(f Facts) ([]kernel.ForwardDropChain, error) {
		return f.ForwardDropChains(adminChain)
	})
}

func (s *snapshot) Firewalld() bool {
	return certain(s, question{method: "Firewalld"}, Facts.Firewalld)
}

func (s *snapshot) HostID() string {
	return certain(s, question{method: "HostID"}, Facts.HostID)
}

func (s *snapshot) ReadFile(path string) ([]byte, error) {
	return ask(s, question{method: "ReadFile", name: path}, func(f Facts) ([]byte, error) { return f.ReadFile(path) })
}

func (s *snapshot) Readlink(path string) (string, error) {
	return ask(s, question{method: "Readlink", name: path}, func(f Facts) (string, error) { return f.Readlink(path) })
}

func (s *snapshot) Glob(pattern string) ([]string, error) {
	return ask(s, question{method: "Glob", name: pattern}, func(f Facts) ([]string, error) { return f.Glob(pattern) })
}

// planning is a pure function of a plugin's configuration.
type planning func(*Attachment, *cni.Result) (kernel.Objects, error)

// maxQuestions ends the planning of a plugin that asks something else each time.
const maxQuestions = 10_000

// settle calls a plugin's function until the snapshot has all the answers that it needs. Each call gets a copy of the
// result; the one of the last call replaces it.
func settle(att *Attachment, r *cni.Result, f planning) (kernel.Objects, error) {
	s := &snapshot{answers: map[question]answer{}}
	of := *att
	of.Facts = s
	for range maxQuestions {
		res := r.Clone()
		list, missing, err := s.call(f, &of, res)
		if missing == nil {
			*r = *res
			return list, err
		}
		value, err := missing.find(att.Facts)
		if f, ok := att.Facts.(facts); ok && f.applyErr != nil { // not this plugin's error, whatever it does about it
			return nil, f.applyErr
		}
		s.answers[missing.question] = answer{value, err}
	}
	return nil, fmt.Errorf("the plugin asked for %d different facts about the host: it must ask for the same facts in each call", maxQuestions)
}

// call calls a plugin's function. missing is the question that ended it, or nil.
func (s *snapshot) call(f planning, att *Attachment, r *cni.Result) (list kernel.Objects, missing *unanswered, err error) {
	defer func() {
		if p := recover(); p != nil {
			u, ok := p.(unanswered)
			if !ok {
				panic(p)
			}
			missing = &u
		}
	}()
	list, err = f(att, r)
	return list, nil, err
}
