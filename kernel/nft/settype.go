package nft

import (
	"bytes"
	"fmt"
	"strings"
)

// SetType is the type of a set, or of a map with the type of its values.
type SetType struct {
	Key, Data Types
	Verdict   bool // the values of the map are verdicts, and Data is nil
}

// verdictType is NFT_DATA_VERDICT of linux/netfilter/nf_tables.h.
const verdictType = 0xffffff00

// ParseSetType reads "ipv4_addr . inet_service", or for a map "... : ipv4_addr" or "... : verdict".
func ParseSetType(s string) (t SetType, err error) {
	key, data, isMap := strings.Cut(s, " : ")
	if t.Key, err = parseTypes(key); err != nil || !isMap {
		return t, err
	}
	if t.Verdict = data == "verdict"; t.Verdict {
		return t, nil
	}
	t.Data, err = parseTypes(data)
	return t, err
}

// IsMap reports whether the elements have values.
func (t SetType) IsMap() bool { return t.Verdict || t.Data != nil }

// Range encodes text whose parts may be ranges, such as "tcp . 80-90". It returns the first and the last value.
func (t Types) Range(s string) (first, last []byte, err error) {
	var from, to []string
	for i, part := range strings.Split(s, " . ") {
		lo, hi := part, part
		if i < len(t) {
			if lo, hi, err = t[i].bounds(part); err != nil {
				return nil, nil, err
			}
		}
		from, to = append(from, lo), append(to, hi)
	}
	if first, err = t.Value(strings.Join(from, " . ")); err != nil {
		return nil, nil, err
	}
	last, err = t.Value(strings.Join(to, " . "))
	return first, last, err
}

// bounds splits a range. A single value, which may have a hyphen in it, is both bounds.
func (t dataType) bounds(s string) (lo, hi string, err error) {
	lo, hi, isRange := strings.Cut(s, "-")
	if _, err := t.value(s); err == nil || !isRange {
		return s, s, err
	}
	first, err := t.value(lo)
	if err != nil {
		return "", "", err
	}
	last, err := t.value(hi)
	if err == nil && bytes.Compare(first, last) > 0 {
		err = fmt.Errorf("range %q ends before it starts", s)
	}
	return lo, hi, err
}

// FormatRange is the reverse of Range.
func (t Types) FormatRange(first, last []byte) string {
	from, to := strings.Split(t.Format(first), " . "), strings.Split(t.Format(last), " . ")
	for i := range min(len(from), len(to)) {
		if from[i] != to[i] {
			from[i] += "-" + to[i]
		}
	}
	return strings.Join(from, " . ")
}
