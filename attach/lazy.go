package attach

import (
	"fmt"

	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/internal/leanjson"
)

// Lazy is a value of a record that is decoded on demand: a later plugin of a list writes the earlier parts back
// without reading them.
type Lazy[T any] struct {
	value T
	raw   []byte // the value as it was read, valid JSON; nil: use value
	known bool   // value is raw, decoded
}

// LazyOf returns a value that is decoded already.
func LazyOf[T any](v T) Lazy[T] { return Lazy[T]{value: v} }

// Get decodes the value, once. The caller must not change it. An error means that another version of Fairlead wrote it.
func (l *Lazy[T]) Get() (T, error) {
	if l.raw == nil || l.known {
		return l.value, nil
	}
	var v T
	if err := rawjson.Unmarshal(l.raw, &v); err != nil {
		return v, fmt.Errorf("read the record of the attachment: %w", err)
	}
	l.value, l.known = v, true
	return v, nil
}

// AppendJSON appends the value as it was read.
func (l Lazy[T]) AppendJSON(b []byte) ([]byte, error) {
	if l.raw != nil {
		return append(b, l.raw...), nil
	}
	return leanjson.Append(b, l.value)
}

// UnmarshalJSON keeps the value undecoded, as part of data.
func (l *Lazy[T]) UnmarshalJSON(data []byte) error {
	*l = Lazy[T]{raw: data}
	return nil
}
