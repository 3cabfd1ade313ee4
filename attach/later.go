package attach

import (
	"fmt"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/internal/leanjson"
)

// Later is a value of a record that is decoded when it is asked for: a plugin
// that stands behind others in a list writes their parts again, and needs none.
type Later[T any] struct {
	value T
	raw   []byte // as it was read; nil: value is it
}

// Now is a value that is there.
func Now[T any](v T) Later[T] { return Later[T]{value: v} }

// Get is the value. An error means that another version of Fairlead wrote it.
func (l Later[T]) Get() (T, error) {
	if l.raw == nil {
		return l.value, nil
	}
	var v T
	if err := cni.Decode(l.raw, &v); err != nil {
		return v, fmt.Errorf("read the record of the attachment: %w", err)
	}
	return v, nil
}

// AppendJSON writes it as it was read.
func (l Later[T]) AppendJSON(b []byte) ([]byte, error) {
	if l.raw != nil {
		return append(b, l.raw...), nil
	}
	return leanjson.Append(b, l.value)
}

// UnmarshalJSON keeps it as it is.
func (l *Later[T]) UnmarshalJSON(data []byte) error {
	*l = Later[T]{raw: append([]byte(nil), data...)}
	return nil
}
