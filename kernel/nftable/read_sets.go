package nftable

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/netlink"
	"github.com/fairlead/fairlead/kernel/nft"
)

// sets reads the sets and maps. It skips those without a name: they belong to a rule.
func (r *reading) sets(ctx context.Context) error {
	msgs, err := r.list("sets", unix.NFT_MSG_GETSET)
	for _, m := range msgs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if netlink.Uint32BE(netlink.Attr(m[4:], unix.NFTA_SET_FLAGS))&unix.NFT_SET_ANONYMOUS != 0 {
			continue
		}
		name, _ := nft.ParseSet(m[4:])
		if err := r.set(name, m); err != nil {
			return err
		}
	}
	return err
}

func (r *reading) set(name string, m []byte) error {
	want := r.desired.sets[name]
	if want == nil {
		r.differs("set %s is not in the desired table", name)
		r.have.sets[name] = &set{Elements: nft.Elements{Family: r.desired.family, Table: r.desired.name, Set: name}}
		return nil
	}
	have := &set{Elements: want.Elements, text: want.text, unused: !r.used[nft.SetName(want.Family, want.Table, name)]}
	r.have.sets[name] = have
	if d := want.part().Differs(m); len(d) > 0 {
		have.irregular = true
		r.replace = r.replace || !have.unused
		r.differs("set %s: %s", name, d[0])
		return nil
	}
	msgs, err := want.Dump(r.p.conn)
	if err != nil {
		return fmt.Errorf("list set %s: %w", name, err)
	}
	values, regular := want.Parse(msgs)
	have.values, have.irregular = values, !regular
	if d := have.compare(want); len(d) > 0 {
		r.differs("set %s: %s", name, strings.Join(d, ", "))
	}
	return nil
}

const maxExamples = 5 // elements that are named for each set

// compare describes the elements that differ.
func (s *set) compare(want *set) (d []string) {
	var missing, wrong, unknown []string
	for k, w := range want.values {
		if v, ok := s.values[k]; !ok {
			missing = append(missing, s.KeyText(k))
		} else if v != w {
			wrong = append(wrong, s.KeyText(k))
		}
	}
	for k := range s.values {
		if _, ok := want.values[k]; !ok {
			unknown = append(unknown, s.KeyText(k))
		}
	}
	d = appendExamples(d, "without", missing)
	d = appendExamples(d, "with another value for", wrong)
	d = appendExamples(d, "has also", unknown)
	if s.irregular {
		d = append(d, "has elements with a timeout, a comment, a statement, or no end")
	}
	return d
}

func appendExamples(d []string, what string, keys []string) []string {
	if len(keys) == 0 {
		return d
	}
	slices.Sort(keys)
	text := what + " " + strings.Join(keys[:min(len(keys), maxExamples)], " and ")
	if more := len(keys) - maxExamples; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return append(d, text)
}
