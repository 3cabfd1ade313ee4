package plugin

import (
	"slices"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/kernel"
)

// withoutOthers returns the objects that are not another attachment's by now. Of objects that are found by an address, the
// attachment that got the address next has equal ones, and its ADD created none where they existed.
func (s *session) withoutOthers(o kernel.Owner, list kernel.Objects) (kernel.Objects, error) {
	var texts []string
	for _, x := range list {
		if kernel.FoundByAddress(x) {
			texts = append(texts, kernel.RecordedText(x))
		}
	}
	if len(texts) == 0 {
		return list, nil
	}
	slices.Sort(texts)
	records, err := s.dir.ListWith(slices.Compact(texts))
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, r := range records {
		if r.Owner() != o {
			noteFoundByAddress(r, taken)
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(x kernel.Object) bool {
		if r, is := x.(*kernel.ReferenceRules); is && taken[r.Addr] {
			return true
		}
		return kernel.FoundByAddress(x) && taken[x.String()]
	}), nil
}

// noteFoundByAddress adds a record's objects that are found by an address, and its addresses. It skips parts that cannot be
// read.
func noteFoundByAddress(r *attach.Record, taken map[string]bool) {
	for i := range r.Parts {
		p := &r.Parts[i]
		if list, err := p.Objects.Get(); err == nil {
			for _, x := range list {
				if kernel.FoundByAddress(x) {
					taken[x.String()] = true
				}
			}
		}
		if res, err := p.Result.Get(); err == nil && res != nil {
			for _, ip := range res.IPs {
				taken[ip.Address.Addr().String()] = true
			}
		}
	}
}
