package netconf

import "encoding/json"

// IPAMTexts returns the texts that a key has in the objects ipam of a configuration, at any depth: plugins may contain
// others.
func IPAMTexts(conf []byte, key string) (out []string) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if in, ok := v["ipam"].(map[string]any); ok {
				if text, ok := in[key].(string); ok && text != "" {
					out = append(out, text)
				}
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	var v any
	if json.Unmarshal(conf, &v) == nil {
		walk(v)
	}
	return out
}
