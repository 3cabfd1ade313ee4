package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// These functions copy b's elements and rules with other addresses and ports. The copies simulate ten thousand
// containers without their ADDs.

// other returns the address and the first host port of the n-th copy.
func other(n int) (addr string, port int) {
	return fmt.Sprintf("10.9.%d.%d", 1+n/250, 1+n%250), 20000 + n*2
}

// copyNFT copies the nftables rules, and elements of sets and maps, that refer to b.
func (h host) copyNFT(others int) error {
	text, err := h.sh("", "nft -j list ruleset")
	if err != nil {
		return err
	}
	var have struct {
		Nftables []map[string]map[string]any `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(text), &have); err != nil {
		return err
	}
	var add []any
	for _, o := range have.Nftables {
		if rule := o["rule"]; rule != nil && isOfB(rule) {
			delete(rule, "handle")
			for n := range others {
				add = append(add, map[string]any{"add": map[string]any{"rule": asOther(rule, n)}})
			}
		}
		for _, what := range []string{"set", "map"} {
			if s := o[what]; s != nil {
				add = append(add, elements(s, others)...)
			}
		}
	}
	raw, err := json.Marshal(map[string]any{"nftables": add})
	if err != nil {
		return err
	}
	file := filepath.Join("/run/state", h.ns("")+".json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return err
	}
	if _, err = h.sh("", "nft -j -f "+file); err != nil {
		return err
	}
	return h.expect("nft list ruleset", others)
}

// elements copies b's elements of a set or map, a thousand per command.
func elements(set map[string]any, others int) (add []any) {
	list, _ := set["elem"].([]any)
	for _, e := range list {
		if !isOfB(e) {
			continue
		}
		for first := 0; first < others; first += 1000 {
			var elem []any
			for n := first; n < min(first+1000, others); n++ {
				elem = append(elem, asOther(e, n))
			}
			add = append(add, map[string]any{"add": map[string]any{"element": map[string]any{
				"family": set["family"], "table": set["table"], "name": set["name"], "elem": elem}}})
		}
	}
	return add
}

// isOfB reports whether a part of a ruleset contains b's address or host ports.
func isOfB(v any) bool {
	raw, _ := json.Marshal(v) // it was decoded from JSON
	return strings.Contains(string(raw), `"`+podB+`"`) || strings.Contains(string(raw), strconv.Itoa(echoHostPort+1)) ||
		strings.Contains(string(raw), strconv.Itoa(iperfHostPort+1))
}

// asOther converts such a part for the n-th copy.
func asOther(v any, n int) any {
	addr, port := other(n)
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = asOther(e, n)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = asOther(e, n)
		}
		return out
	case string:
		return strings.ReplaceAll(v, podB, addr)
	case float64:
		switch v {
		case echoHostPort + 1:
			return port
		case iperfHostPort + 1:
			return port + 1
		}
	}
	return v
}

// copyIptables copies b's iptables rules and chains.
func (h host) copyIptables(others int) error {
	text, err := h.sh("", "iptables-save -t nat")
	if err != nil {
		return err
	}
	mine := ownChains(text)
	if len(mine) == 0 {
		return fmt.Errorf("no chain contains b's address:\n%s", text)
	}
	var b strings.Builder
	b.WriteString("*nat\n")
	for n := range others {
		addr, port := other(n)
		swap := []string{podB, addr, strconv.Itoa(echoHostPort + 1), strconv.Itoa(port), strconv.Itoa(iperfHostPort + 1), strconv.Itoa(port + 1)}
		for _, c := range mine {
			name := fmt.Sprintf("%s%06d", c[:min(len(c), 20)], n)
			fmt.Fprintf(&b, ":%s - [0:0]\n", name)
			swap = append(swap, c, name)
		}
		r := strings.NewReplacer(swap...)
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "-A") && namesAny(line, append(mine, podB+"/32")) {
				b.WriteString(r.Replace(line))
			}
		}
	}
	b.WriteString("COMMIT\n")
	file := filepath.Join("/run/state", h.ns("")+".rules")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		return err
	}
	if _, err = h.sh("", "iptables-restore --noflush "+file); err != nil {
		return err
	}
	return h.expect("iptables-save -t nat", others)
}

// ownChains returns the chains that contain only b's rules.
func ownChains(text string) (list []string) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > 1 && f[0] == "-A" && strings.HasPrefix(f[1], "CNI-") && strings.Contains(line, podB) && !strings.Contains(f[1], "HOSTPORT") {
			if len(list) == 0 || list[len(list)-1] != f[1] {
				list = append(list, f[1])
			}
		}
	}
	return list
}

func namesAny(line string, words []string) bool {
	for _, w := range words {
		if strings.Contains(line, w) {
			return true
		}
	}
	return false
}

// expect checks that the last copy exists.
func (h host) expect(list string, others int) error {
	if others == 0 {
		return nil
	}
	text, err := h.sh("", list)
	if err != nil {
		return err
	}
	addr, port := other(others - 1)
	if !strings.Contains(text, addr) || !strings.Contains(text, strconv.Itoa(port)) {
		return fmt.Errorf("%s shows neither %s nor port %d", list, addr, port)
	}
	return nil
}
