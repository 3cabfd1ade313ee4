package probe

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
)

// Encode returns the targets as compressed JSON: those of thousands of nodes fit into a ConfigMap, which holds 1 MiB.
func (t Targets) Encode() ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if err := json.NewEncoder(w).Encode(t); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// DecodeTargets decodes targets.
func DecodeTargets(raw []byte) (t Targets, err error) {
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return t, err
	}
	raw, err = io.ReadAll(r)
	if err != nil {
		return t, err
	}
	return t, json.Unmarshal(raw, &t)
}
