package leangob

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
)

// Limits of what is read: a message in bytes, elements of a list, depth of a value.
const (
	maxMessage = 16 << 20
	maxDepth   = 64
)

// Decoder reads the values of a stream.
type Decoder struct {
	r     io.Reader
	types map[int64]*typ
}

// typ is a type that the stream defined.
type typ struct {
	kind      int64 // typeStruct, typeSlice, typeArray, typeMap or typeOpaque
	key, elem int64
	fields    []field
}

type field struct {
	name string
	typ  int64
}

// NewDecoder returns a decoder of a stream. It reads no further than the
// values asked for.
func NewDecoder(r io.Reader) *Decoder {
	return &Decoder{r: r, types: builtin()}
}

// builtin are the types in which types are defined.
func builtin() map[int64]*typ {
	of := func(fields ...field) *typ { return &typ{kind: typeStruct, fields: fields} }
	common := field{"CommonType", typeCommon}
	return map[int64]*typ{
		typeWire: of(field{"ArrayT", typeArray}, field{"SliceT", typeSlice}, field{"StructT", typeStruct}, field{"MapT", typeMap},
			field{"GobEncoderT", typeOpaque}, field{"BinaryMarshalerT", typeOpaque}, field{"TextMarshalerT", typeOpaque}),
		typeArray:      of(common, field{"Elem", typeInt}, field{"Len", typeInt}),
		typeCommon:     of(field{"Name", typeString}, field{"Id", typeInt}),
		typeSlice:      of(common, field{"Elem", typeInt}),
		typeStruct:     of(common, field{"Field", typeFieldSlice}),
		typeField:      of(field{"Name", typeString}, field{"Id", typeInt}),
		typeFieldSlice: {kind: typeSlice, elem: typeField},
		typeMap:        of(common, field{"Key", typeInt}, field{"Elem", typeInt}),
		typeOpaque:     of(common),
	}
}

// Decode returns the next value: bool, int64, uint64, float64, []byte or
// string; a struct, without its zero fields, or a map with keys of strings is
// a map[string]any; a list is an []any.
func (d *Decoder) Decode() (any, error) {
	for {
		m, err := d.message()
		if err != nil {
			return nil, err
		}
		number := m.int()
		if number < 0 {
			if err := d.define(-number, m); err != nil {
				return nil, err
			}
			continue
		}
		if t := d.types[number]; t == nil || t.kind != typeStruct {
			m.uint() // a zero where a struct has its first field
		}
		v := m.value(d.types, number, 0)
		return v, m.end()
	}
}

// message reads one message whole.
func (d *Decoder) message() (*message, error) {
	size, err := readUint(d.r)
	if err != nil {
		return nil, err
	}
	if size > maxMessage {
		return nil, fmt.Errorf("gob: a message of %d bytes is too long", size)
	}
	m := &message{}
	if m.b, err = io.ReadAll(io.LimitReader(d.r, int64(size))); err == nil && uint64(len(m.b)) < size {
		err = io.ErrUnexpectedEOF
	}
	return m, err
}

func readUint(r io.Reader) (v uint64, err error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:1]); err != nil || b[0] < 128 {
		return uint64(b[0]), err
	}
	n := -int(int8(b[0]))
	if n > len(b) {
		return 0, errors.New("gob: a number of more than 8 bytes")
	}
	_, err = io.ReadFull(r, b[:n])
	for _, c := range b[:n] {
		v = v<<8 | uint64(c)
	}
	return v, err
}

// define reads the definition of a type.
func (d *Decoder) define(number int64, m *message) error {
	wire, _ := m.value(d.types, typeWire, 0).(map[string]any)
	if err := m.end(); err != nil {
		return err
	}
	if number < firstType || d.types[number] != nil {
		return fmt.Errorf("gob: type %d is defined twice", number)
	}
	for kind, def := range wire {
		t, def := &typ{}, def.(map[string]any)
		t.elem, _ = def["Elem"].(int64)
		t.key, _ = def["Key"].(int64)
		switch kind {
		case "StructT":
			t.kind = typeStruct
			list, _ := def["Field"].([]any)
			for _, f := range list {
				f := f.(map[string]any)
				name, _ := f["Name"].(string)
				number, _ := f["Id"].(int64)
				t.fields = append(t.fields, field{name, number})
			}
		case "SliceT", "ArrayT":
			t.kind = typeSlice
		case "MapT":
			t.kind = typeMap
		default:
			t.kind = typeOpaque
		}
		d.types[number] = t
	}
	return nil
}

// message is a message that is being read; its first error stays.
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
		if len(m.b) == 0 { // every element takes a byte
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
