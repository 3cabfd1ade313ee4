package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/plugins/delegate"
)

// typos warns of keys that a plugin of ours does not know, and that are nearly ones
// which it does. Others are somebody's own: the specification allows them.
func (c *checked) typos(at, kind string, raw []byte) {
	if p := declared(kind); p != nil {
		c.nearly(at, kind, raw, append(keysOf(reflect.TypeOf(p.New()).Elem()), commonKeys()...))
	} else if kind == delegate.NetworkType {
		c.nearly(at, kind, raw, append([]string{"network", "mtu", "antiSpoof"}, commonKeys()...))
	}
	v, _ := rawjson.Find(raw, "ipam")
	of := text(v.Raw, "type")
	if known := ipamKeys()[of]; known != "" {
		c.nearly(below(at, "ipam"), of, v.Raw, append(strings.Fields(known), "type"))
	}
}

func (c *checked) nearly(at, kind string, raw []byte, known []string) {
	members, _ := rawjson.Members(raw)
	for _, m := range members {
		if slices.ContainsFunc(known, func(s string) bool { return strings.EqualFold(s, m.Key) }) {
			continue
		}
		if meant, ok := config.Meant(m.Key, known); ok {
			c.warn(below(at, m.Key), fmt.Sprintf("no key of %s, so it does nothing: did you mean %q?", kind, meant))
		}
	}
}
