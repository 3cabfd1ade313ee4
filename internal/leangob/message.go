package leangob

import (
	"fmt"
	"math"
	"math/bits"
)

// message is a message that is being decoded. It keeps its first error.
type message struct {
	b   []byte
	err error
}

func (m *message) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf("gob: "+format, args...)
		m.b = nil
	}
}

func (m *message) end() error {
	if m.err == nil && len(m.b) > 0 {
		m.fail("%d bytes are left over", len(m.b))
	}
	return m.err
}

func (m *message) take(n uint64) []byte {
	if n > uint64(len(m.b)) {
		m.fail("the message is short")
		return nil
	}
	out := m.b[:n]
	m.b = m.b[n:]
	return out
}

func (m *message) uint() (v uint64) {
	first := m.take(1)
	if len(first) == 0 || first[0] < 128 {
		return sum(first)
	}
	n := -int(int8(first[0]))
	if n > 8 {
		m.fail("a number of more than 8 bytes")
		return 0
	}
	return sum(m.take(uint64(n)))
}

func sum(b []byte) (v uint64) {
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

func (m *message) int() int64 {
	v := m.uint()
	if v&1 != 0 {
		return ^int64(v >> 1)
	}
	return int64(v >> 1)
}

func (m *message) bytes() []byte { return m.take(m.uint()) }

// value reads a value of a type.
func (m *message) value(types map[int64]*typ, number int64, depth int) any {
	if depth > maxDepth {
		m.fail("a value is too deep")
	}
	if m.err != nil {
		return nil
	}
	switch number {
	case typeBool:
		return m.uint() != 0
	case typeInt:
		return m.int()
	case typeUint:
		return m.uint()
	case typeFloat:
		return math.Float64frombits(bits.ReverseBytes64(m.uint()))
	case typeBytes:
		return append([]byte(nil), m.bytes()...)
	case typeString:
		return string(m.bytes())
	}
	t := types[number]
	if t == nil {
		m.fail("type %d is not known", number)
		return nil
	}
	switch t.kind {
	case typeStruct:
		return m.fields(types, t, depth)
	case typeSlice:
		return m.list(types, t, depth)
	case typeMap:
		return m.pairs(types, t, depth)
	}
	return append([]byte(nil), m.bytes()...)
}

func (m *message) fields(types map[int64]*typ, t *typ, depth int) any {
	out := map[string]any{}
	for i := -1; ; {
		step := m.uint()
		if step == 0 || m.err != nil {
			return out
		}
		if step > uint64(len(t.fields)-1-i) {
			m.fail("a struct has no field %d beyond %d", step, i)
			return out
		}
		i += int(step)
		out[t.fields[i].name] = m.value(types, t.fields[i].typ, depth+1)
	}
}

func (m *message) list(types map[int64]*typ, t *typ, depth int) any {
	out := []any{}
	for n := m.uint(); n > 0 && m.err == nil; n-- {
		if len(m.b) == 0 { // every element has at least one byte
			m.fail("the message is short")
		}
		out = append(out, m.value(types, t.elem, depth+1))
	}
	return out
}

func (m *message) pairs(types map[int64]*typ, t *typ, depth int) any {
	out := map[string]any{}
	for n := m.uint(); n > 0 && m.err == nil; n-- {
		key, ok := m.value(types, t.key, depth+1).(string)
		if !ok {
			m.fail("a map's key is no string")
			return out
		}
		out[key] = m.value(types, t.elem, depth+1)
	}
	return out
}
