package lab

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// Put writes an etcd key, as another program would.
func (c *Cluster) Put(ctx context.Context, key, value string) error {
	_, err := c.ask(ctx, "put", map[string]string{"key": coded(key), "value": coded(value)})
	return err
}

// Keys returns all etcd keys with a prefix, with their values.
func (c *Cluster) Keys(ctx context.Context, prefix string) (map[string]string, error) {
	end := []byte(prefix)
	end[len(end)-1]++
	raw, err := c.ask(ctx, "range", map[string]string{"key": coded(prefix), "range_end": coded(string(end))})
	if err != nil {
		return nil, err
	}
	var r struct {
		KVs []struct{ Key, Value []byte }
	}
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		return nil, fmt.Errorf("keys below %s: %w in %s", prefix, err, raw)
	}
	out := map[string]string{}
	for _, kv := range r.KVs {
		out[string(kv.Key)] = string(kv.Value)
	}
	return out, nil
}

func coded(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// ask sends a request to etcd's JSON gateway.
func (c *Cluster) ask(ctx context.Context, what string, args map[string]string) (string, error) {
	body, err := json.Marshal(args)
	if err != nil {
		return "", err
	}
	m := c.Stores[0]
	out, err := m.Run(ctx, "curl", "-s", "-m", "10", fmt.Sprintf("http://%s:2379/v3/kv/%s", m.V4, what), "-d", string(body))
	if err == nil && strings.Contains(out, `"error"`) {
		err = fmt.Errorf("etcd: %s: %s", what, out)
	}
	return out, err
}
